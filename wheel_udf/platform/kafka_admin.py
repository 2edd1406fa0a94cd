"""Questions to a Kafka cluster: which topics exist, which offsets they have, how large a record may be, new topics.

With a missing topic or a broker that cannot be reached, Spark's connector fails after minutes, or fails a batch again
and again. The functions here ask first, through the admin client of the same ``kafka-clients`` jar that the connector
uses, in the driver's JVM::

    options {kafka.bootstrap.servers: ..., kafka.security.protocol: ..., startingOffsets: ...}
             '-- those that begin with kafka. go to the client without it; the others are Spark's own

There is one client for each cluster and identity; it lives until :func:`close_all`, or until its cluster does not
answer (the client would try again for ever and log a warning each time). Each question has a timeout, so a cluster
that is down costs seconds.

Caveats: an answer may be out of date a moment later. A user who may read a topic but not describe its configuration
gets its partitions, and None for the size. For a user who may not describe the topic at all, Kafka answers that it is
missing.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from wheel_udf.common.errors import SinkError
from wheel_udf.common.names import KAFKA_SERVERS
from wheel_udf.common.secrets import hide, remember_options
from wheel_udf.platform.jvm import java_class, java_gateway

TIMEOUT_MS: Final = 10_000
"""How long an answer may take, in ms; a cluster that is up answers in a few."""

_PREFIX: Final = "kafka."
_ABSENT: Final = ("UnknownTopicOrPartitionException", "InvalidTopicException")
_SIZE: Final = "max.message.bytes"
_CLEANUP: Final = "cleanup.policy"

_clients: dict[tuple[str, ...], tuple[Any, Any]] = {}  # the client, and how long it may take to close
_clients_lock: Final = threading.RLock()  # a client that cannot be made is dropped while it is held


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as its cluster describes it.

    Attributes:
        partitions: How many it has.
        max_message_bytes: The largest batch of records the topic takes, in bytes; None if this user may not ask.
        may_write: Whether this user may write to it; None if the cluster does not tell.
        compacted: Whether it keeps the latest record of each key, and so takes none without a key; False if this user
            may not ask.
    """

    partitions: int
    max_message_bytes: int | None = None
    may_write: bool | None = None
    compacted: bool = False


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """The records that a topic holds now.

    Attributes:
        topic_id: The id that Kafka gave to the topic when it was created; a topic that is created again gets another
            one.
        ranges: By partition: the earliest offset, and the one behind the latest.
    """

    topic_id: str
    ranges: Mapping[int, tuple[int, int]]


def describe(
    spark: SparkSession,
    options: Mapping[str, str],
    topics: Collection[str],
    *,
    timeout_ms: int = TIMEOUT_MS,
) -> dict[str, TopicInfo]:
    """Describes topics.

    Args:
        spark: The session.
        options: As given to Spark's connector; those without ``kafka.`` are ignored.
        topics: Names; a name that no topic can have is treated as a missing topic.
        timeout_ms: For each of the two requests.

    Returns:
        The description of each topic that exists, by name.

    Raises:
        SinkError: The cluster does not answer in that time or refuses to.
    """
    if not topics:
        return {}
    return _Question(spark, options, timeout_ms).describe(sorted(set(topics)))


def missing_topics(
    spark: SparkSession, options: Mapping[str, str], names: Collection[str], timeout_ms: int = TIMEOUT_MS
) -> list[str]:
    """Which of the topics do not exist, sorted; raises as :func:`describe`."""
    found = describe(spark, options, names, timeout_ms=timeout_ms)
    return sorted(set(names) - found.keys())


def topic_names(spark: SparkSession, options: Mapping[str, str], timeout_ms: int = TIMEOUT_MS) -> list[str]:
    """All topics of the cluster that this user may see, sorted, without Kafka's own; raises as :func:`describe`."""
    return sorted(_Question(spark, options, timeout_ms).names())


def offsets(
    spark: SparkSession,
    options: Mapping[str, str],
    topics: Collection[str],
    *,
    timeout_ms: int = TIMEOUT_MS,
) -> dict[str, TopicOffsets]:
    """The offsets of each topic that exists, by name; arguments and errors as those of :func:`describe`."""
    return _Question(spark, options, timeout_ms).offsets(sorted(set(topics)))


def create(
    spark: SparkSession,
    options: Mapping[str, str],
    topic: str,
    partitions: int = -1,
    *,
    timeout_ms: int = TIMEOUT_MS,
) -> None:
    """Creates a topic; an existing one is left as it is.

    Args:
        spark: The session.
        options: As given to Spark's connector.
        topic: The name.
        partitions: How many; -1 for the cluster's default. The replication factor is always the cluster's default.
        timeout_ms: For the request.

    Raises:
        SinkError: The cluster cannot be reached or does not allow it.
    """
    _Question(spark, options, timeout_ms).create(topic, partitions)


def close_all() -> None:
    """Closes all clients; the next question opens a new one."""
    with _clients_lock:
        clients = list(_clients.values())
        _clients.clear()
    for client, patience in clients:
        with suppress(Py4JError):  # a JVM that has ended has closed its clients
            client.close(patience)


class _Question:
    """Requests to one cluster, with one set of options."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str], timeout_ms: int) -> None:
        self._spark = spark
        self._timeout_ms = timeout_ms
        self._servers = next((value for key, value in options.items() if key.lower() == KAFKA_SERVERS), "")
        remember_options(options)
        self._settings = {
            key[len(_PREFIX) :]: value for key, value in options.items() if key.lower().startswith(_PREFIX)
        }
        # With the id of the JVM: clients of an earlier JVM cannot be used.
        identity = [f"{key}={self._settings[key]}" for key in sorted(self._settings)]
        self._key = (str(id(java_gateway(spark))), *identity)
        self._client = self._cached()

    def describe(self, topics: list[str]) -> dict[str, TopicInfo]:
        found = self._found(topics)
        configs = self._configs(list(found))
        return {
            topic: TopicInfo(
                partitions=description.partitions().size(),
                max_message_bytes=int(configs[topic].get(_SIZE).value()) if topic in configs else None,
                may_write=_may_write(description),
                compacted=topic in configs and "compact" in configs[topic].get(_CLEANUP).value(),
            )
            for topic, description in found.items()
        }

    def _found(self, topics: list[str]) -> dict[str, Any]:
        """Kafka's descriptions of the topics that exist."""
        settings = self._kafka("clients.admin.DescribeTopicsOptions")()
        settings.includeAuthorizedOperations(True)  # noqa: FBT003  # a Java method
        futures = self._client.describeTopics(self._list(topics), settings).topicNameValues()
        found: dict[str, Any] = {}
        for topic in topics:
            try:
                found[topic] = self._answer(futures.get(topic))
            except Py4JJavaError as fault:
                if _class_of(fault) not in _ABSENT:
                    raise self._unreachable(fault) from None
        return found

    def offsets(self, topics: list[str]) -> dict[str, TopicOffsets]:
        found = self._found(topics)
        numbers = {
            topic: [each.partition() for each in description.partitions()]
            for topic, description in found.items()
        }
        first, last = self._ends(numbers, "earliest"), self._ends(numbers, "latest")
        return {
            topic: TopicOffsets(
                description.topicId().toString(),
                {number: (first[topic, number], last[topic, number]) for number in numbers[topic]},
            )
            for topic, description in found.items()
        }

    def _ends(self, numbers: Mapping[str, list[int]], end: str) -> dict[tuple[str, int], int]:
        spec = getattr(self._kafka("clients.admin.OffsetSpec"), end)()
        partition_of = self._kafka("common.TopicPartition")
        asked = self._java("java.util.HashMap")()
        places = {
            (topic, number): partition_of(topic, number) for topic in numbers for number in numbers[topic]
        }
        for partition in places.values():
            asked.put(partition, spec)
        result = self._client.listOffsets(asked)
        try:
            return {
                place: self._answer(result.partitionResult(partition)).offset()
                for place, partition in places.items()
            }
        except Py4JJavaError as fault:
            raise self._unreachable(fault) from None

    def _configs(self, topics: list[str]) -> dict[str, Any]:
        """The configurations of topics, as far as this user may read them."""
        kind = self._kafka("common.config.ConfigResource$Type").TOPIC
        resource_of = self._kafka("common.config.ConfigResource")
        resources = {topic: resource_of(kind, topic) for topic in topics}
        if not resources:
            return {}
        futures = self._client.describeConfigs(self._list(resources.values())).values()
        configs = {}
        for topic, resource in resources.items():
            try:
                configs[topic] = self._answer(futures.get(resource))
            except Py4JJavaError as fault:
                if "Authorization" not in _class_of(fault) and _class_of(fault) not in _ABSENT:
                    raise self._unreachable(fault) from None
        return configs

    def names(self) -> list[str]:
        try:
            return list(self._answer(self._client.listTopics().names()))
        except Py4JJavaError as fault:
            raise self._unreachable(fault) from None

    def create(self, topic: str, partitions: int) -> None:
        optional, number = self._java("java.util.Optional"), self._java("java.lang.Integer")
        count = optional.empty() if partitions < 1 else optional.of(number.valueOf(partitions))
        fresh = self._kafka("clients.admin.NewTopic")(topic, count, optional.empty())
        try:
            self._answer(self._client.createTopics(self._list([fresh])).all())
        except Py4JJavaError as fault:
            if _class_of(fault) != "TopicExistsException":
                raise self._unreachable(fault, what=f"the topic {topic} cannot be created") from None

    def _cached(self) -> Any:
        with _clients_lock:
            if self._key not in _clients:
                _clients[self._key] = self._connect(), self._java("java.time.Duration").ofMillis(0)
            return _clients[self._key][0]

    def _drop(self) -> None:
        with _clients_lock:
            client, patience = _clients.pop(self._key, (None, None))
        if client is not None:
            client.close(patience)

    def _connect(self) -> Any:
        known = self._kafka("clients.admin.AdminClientConfig").configNames()
        properties = self._java("java.util.Properties")()
        for key, value in self._settings.items():
            if key in known or key.startswith(("sasl.", "ssl.")):  # the others are for consumers or producers
                properties.setProperty(key, value)
        properties.setProperty("default.api.timeout.ms", str(self._timeout_ms))
        properties.setProperty("request.timeout.ms", str(self._timeout_ms))
        try:
            return self._kafka("clients.admin.Admin").create(properties)
        except Py4JJavaError as fault:
            raise self._unreachable(fault, what="no client can be made from the options of Kafka") from None

    def _answer(self, future: Any) -> Any:
        return future.get(self._timeout_ms, self._java("java.util.concurrent.TimeUnit").MILLISECONDS)

    def _list(self, items: Collection[Any]) -> Any:
        made = self._java("java.util.ArrayList")()
        for item in items:
            made.add(item)
        return made

    def _kafka(self, name: str) -> Any:
        return self._java(f"org.apache.kafka.{name}")

    def _java(self, name: str) -> Any:
        return java_class(self._spark, name)

    def _unreachable(
        self, fault: Py4JJavaError, what: str = "the Kafka cluster does not answer"
    ) -> SinkError:
        self._drop()
        return SinkError(
            f"{what} ({_reason(fault)})",
            field=KAFKA_SERVERS,
            value=hide(self._servers),
            hint="check the servers, the security options, and that the cluster is up",
        )


def _may_write(description: Any) -> bool | None:
    allowed = description.authorizedOperations()
    if allowed is None or allowed.isEmpty():
        return None
    return any(operation.toString() in {"WRITE", "ALL"} for operation in allowed)


def _causes(fault: Py4JJavaError) -> list[Any]:
    """The exception and its causes, the innermost last: futures wrap the cause."""
    found = [fault.java_exception]
    while (cause := found[-1].getCause()) is not None and len(found) < 10:
        found.append(cause)
    return found


def _class_of(fault: Py4JJavaError) -> str:
    name: str = _causes(fault)[-1].getClass().getSimpleName()
    return name


def _reason(fault: Py4JJavaError) -> str:
    innermost = _causes(fault)[-1]
    message = innermost.getMessage() or "no answer in time"
    # Hidden before it is cut: half a password is a secret too.
    return re.sub(r"\s+", " ", hide(f"{innermost.getClass().getSimpleName()}: {message}"))[:300]
