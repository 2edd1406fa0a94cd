"""Kafka: questions to a cluster, asked with librdkafka (confluent-kafka).

::

    options of a config (kafka.*) --> settings.py: options for librdkafka --> admin.py: topics, offsets, limits

In: the options of a Kafka client. Out: facts about topics, offsets, errors in one sentence.

May import: common; confluent-kafka, inside functions alone.
"""
