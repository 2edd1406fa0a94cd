"""Creates and deletes topics for tests and demos with confluent-kafka.

The job itself uses :mod:`wheel_udf.kafka.admin`, with the options of Spark's connector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from wheel_udf.common.errors import SessionError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


def create_topics(
    bootstrap: str,
    names: Sequence[str],
    *,
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
    client: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
) -> None:
    """Creates topics with one replica and waits until they exist.

    Args:
        bootstrap: Bootstrap servers.
        names: The topics.
        partitions: Partitions of each topic.
        config: Topic settings, such as ``{"max.message.bytes": "2000"}``.
        client: Settings of the client, such as SASL (names of librdkafka).
        timeout_s: Longest wait, in seconds.

    Raises:
        SessionError: confluent-kafka is not installed, or the broker refuses (for example because a topic exists).
    """
    admin = _admin(bootstrap, client)
    from confluent_kafka import KafkaException
    from confluent_kafka.cimpl import NewTopic

    asked = [
        NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        for name in names
    ]
    for name, made in admin.create_topics(
        asked, operation_timeout=timeout_s, request_timeout=timeout_s
    ).items():
        try:
            made.result(timeout_s)
        except (KafkaException, TimeoutError) as fault:
            raise SessionError(
                "the topic cannot be created", field=name, value=_said(fault, timeout_s)
            ) from fault


def delete_topics(
    bootstrap: str, names: Sequence[str], *, client: Mapping[str, str] | None = None, timeout_s: float = 60.0
) -> None:
    """Deletes those of the topics that exist and waits until they are deleted.

    Args:
        bootstrap: Bootstrap servers.
        names: The topics.
        client: Settings of the client, as for :func:`create_topics`.
        timeout_s: Longest wait, in seconds.

    Raises:
        SessionError: confluent-kafka is not installed, or the broker refuses.
    """
    admin = _admin(bootstrap, client)
    from confluent_kafka import KafkaException

    there = [name for name in names if name in admin.list_topics(timeout=timeout_s).topics]
    if not there:
        return
    for name, gone in admin.delete_topics(
        there, operation_timeout=timeout_s, request_timeout=timeout_s
    ).items():
        try:
            gone.result(timeout_s)
        except (KafkaException, TimeoutError) as fault:
            raise SessionError(
                "the topic cannot be deleted", field=name, value=_said(fault, timeout_s)
            ) from fault


def _said(fault: Exception, timeout_s: float) -> str:
    return str(fault) or f"no answer within {timeout_s:.0f} s"


def _admin(bootstrap: str, client: Mapping[str, str] | None) -> AdminClient:
    try:
        from confluent_kafka.admin import AdminClient
    except ImportError as fault:
        hint = "pip install 'wheel-udf[kafka]', or `make setup`"
        raise SessionError("the Kafka client is not installed", field="confluent-kafka", hint=hint) from fault
    # 4: warnings and worse. librdkafka writes notes on its own threads to standard error, among the lines of whoever
    # asks.
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 4, **(client or {})})
