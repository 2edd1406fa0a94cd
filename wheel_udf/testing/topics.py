"""Creates and deletes topics for tests and demos with confluent-kafka.

The job itself uses :mod:`wheel_udf.kafka.admin`, with the options of Spark's connector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from wheel_udf.common.errors import SessionError
from wheel_udf.common.extras import missing_package

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
        ConfigError: confluent-kafka is not installed.
        SessionError: The broker refuses (for example because a topic exists), or does not answer.
    """
    admin = topics_admin(bootstrap, client)
    from confluent_kafka.cimpl import NewTopic

    asked = [
        NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        for name in names
    ]
    made = admin.create_topics(asked, operation_timeout=timeout_s, request_timeout=timeout_s)
    _wait(made, "the topic cannot be created", timeout_s)


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
        ConfigError: confluent-kafka is not installed.
        SessionError: The broker refuses, or does not answer.
    """
    admin = topics_admin(bootstrap, client)
    if there := [name for name in names if name in admin.list_topics(timeout=timeout_s).topics]:
        gone = admin.delete_topics(there, operation_timeout=timeout_s, request_timeout=timeout_s)
        _wait(gone, "the topic cannot be deleted", timeout_s)


def _wait(answers: Mapping[str, Future[None]], what: str, timeout_s: float) -> None:
    from confluent_kafka import KafkaException

    for name, answer in answers.items():
        try:
            answer.result(timeout_s)
        except (KafkaException, TimeoutError) as fault:
            value = str(fault) or f"no answer within {timeout_s:.0f} s"
            raise SessionError(what, field=name, value=value) from fault


def topics_admin(bootstrap: str, client: Mapping[str, str] | None) -> AdminClient:
    """A client that makes and drops topics."""
    if (fault := missing_package("confluent_kafka", "kafka", "wheel_udf.testing.topics")) is not None:
        raise fault
    from confluent_kafka.admin import AdminClient

    # 4: warnings and worse. librdkafka writes notes on its own threads to standard error, among the lines of whoever
    # asks.
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 4, **(client or {})})
