"""Sends the input of retries.yml: three payments that failed, to be tried again after 2, 3 and 3 minutes: time for the
first start.
"""

from confluent_kafka import Producer

from wheel_udf.client import kafka

SERVERS = "127.0.0.1:9092"

producer = Producer({"bootstrap.servers": SERVERS})
for number, delay in enumerate(("2 minutes", "150 seconds", "3 minutes"), start=1):
    record = kafka.schedule(
        f"payment-{number}",
        delay=delay,
        destination="payments",
        value=b'{"amount": 12}',
        headers={"attempt": "2"},
    )
    producer.produce("retries", **record)
left = producer.flush(30)
print(f"sent to {SERVERS}, {left} of 3 not confirmed; next: wheel-udf run --config retries.yml")
