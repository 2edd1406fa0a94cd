"""Sends the input of retries.yml: three payments that failed, to be tried again after 5, 10 and 30 seconds."""

from confluent_kafka import Producer

SERVERS = "127.0.0.1:9092"

producer = Producer({"bootstrap.servers": SERVERS})
for number, delay in enumerate(("5 seconds", "9 seconds", "30 seconds"), start=1):
    headers = {
        "wheel-id": f"payment-{number}",
        "wheel-delay": delay,
        "wheel-target": "payments",
        "attempt": "2",
    }
    producer.produce("retries", key=f"payment-{number}", value=b'{"amount": 12}', headers=headers)
left = producer.flush(30)
print(f"sent to {SERVERS}, {left} of 3 not confirmed; next: wheel-udf run --config retries.yml")
