"""Punctual delivery: gives entries to Kafka at their due time, between two batches.

In: rows of kind ``ahead`` of a batch, a few seconds before they are due. Out: records in Kafka, and news for the next
tick: what is confirmed, how much room is left::

    batch --rows `ahead`--> packing --TimedRecords--> sender --at the due time--> producers --> Kafka
                               |                        |
                 cannot be sent: rejects                |-- news --> board --> the next tick (wheel_udf.control)
                                                        `-- note --> <checkpoint>/wheel-sender.json (sender_note)

    delivery.py   PunctualDelivery: the sender of one query and its two threads

Entries stay in the state of their shard until the news confirms them (:mod:`wheel_udf.policies.in_flight`).

May import: common, wheel, policies, control, kafka, spark, checkpoint, stream, sinks; confluent-kafka inside
functions alone.
"""
