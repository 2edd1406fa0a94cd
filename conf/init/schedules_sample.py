"""Sends the input of schedules.yml: schedules due in 2 minutes and more (time for the first start); the first is
changed, the second cancelled.
"""

import time

from confluent_kafka import Producer

SERVERS = "127.0.0.1:9092"

producer = Producer({"bootstrap.servers": SERVERS})
now_s = int(time.time())


def schedule(name: str, in_s: int, text: str) -> None:
    headers = {
        "scheduler-epoch": str(now_s + in_s),
        "scheduler-target-topic": "notices",
        "scheduler-target-key": name,
    }
    producer.produce("schedules", key=name, value=text.encode(), headers=headers)


for number in (1, 2, 3):
    schedule(f"notice-{number}", 120 + 10 * number, f"first text {number}")
schedule("notice-1", 125, "second text 1")
producer.produce("schedules", key="notice-2", value=None)  # a tombstone
left = producer.flush(30)
print(f"sent to {SERVERS}, {left} of 5 not confirmed; next: wheel-udf run --config schedules.yml")
