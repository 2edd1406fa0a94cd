"""Questions to a Kafka cluster: which topics exist, which offsets they have, how large a record may be, new topics.

With a missing topic or a broker that cannot be reached, Spark's connector fails after minutes, or fails a batch again
and again. The functions here ask first, through confluent-kafka's admin client (the extra ``kafka``)::

    options {kafka.bootstrap.servers: ..., kafka.security.protocol: ..., startingOffsets: ...}
             '-- servers and login go to the client (wheel_udf.kafka.settings); the others are ignored

There is one client for each cluster and identity; it is open until :func:`close_all`, or until its cluster does not
answer. Each question has a timeout, so a cluster that is down costs seconds.

A cluster that Spark's client may reach and this one cannot (a JKS store, another login, certificates that only the JVM
trusts) is not asked: the log says so in one line, all topics are taken for existing ones without limits, and none is
created.

Caveats: an answer may be out of date a moment later. A user who may read a topic but not describe its configuration
gets its partitions, and None for the size. A topic that the user may not describe is taken for a missing one.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from wheel_udf.common.errors import ConfigError, SinkError
from wheel_udf.common.extras import missing_package
from wheel_udf.common.names import KAFKA_SERVERS
from wheel_udf.common.secrets import hide, remember_options
from wheel_udf.kafka.settings import client_options, login_settings

if TYPE_CHECKING:  # a job without Kafka needs no confluent-kafka
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

TIMEOUT_MS: Final = 10_000
"""How long an answer may take, in ms; a cluster that is up answers in a few."""

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Kafka's own topics; brokers accept no records for them from clients."""

_ABSENT: Final = ("UNKNOWN_TOPIC_OR_PART", "TOPIC_EXCEPTION")
_FORBIDDEN: Final = ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED")
_LEADERLESS: Final = (
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
    "UNKNOWN_LEADER_EPOCH",  # of a leader that has not heard yet of the election that the client knows
    "FENCED_LEADER_EPOCH",  # the other way round
    "_NOENT",
)
_REFUSED: Final = ("_AUTHENTICATION", "_SSL")
_LOOK_S: Final = 0.1
_URL_SAFE: Final = str.maketrans("+/", "-_")

_log = logging.getLogger(__name__)

open_clients: dict[str, tuple[AdminClient, list[KafkaError]]] = {}
"""By settings: the client, and the errors that it has reported since the last question."""

_clients_lock: Final = threading.Lock()
_warned: set[str] = set()


class UncheckedError(SinkError):
    """The cluster cannot be asked with these options; Spark's own client may reach it."""


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
    options: Mapping[str, str], topics: Collection[str], *, timeout_ms: int = TIMEOUT_MS
) -> dict[str, TopicInfo]:
    """Describes topics.

    Args:
        options: As given to Spark's connector.
        topics: Names; a name that no topic can have is treated as a missing topic.
        timeout_ms: For each of the two requests.

    Returns:
        The description of each topic that exists, by name.

    Raises:
        SinkError: The cluster does not answer in that time or refuses to.
        ConfigError: confluent-kafka is not installed.
    """
    names = sorted(set(topics))
    if not names:
        return {}
    try:
        with _asking(options, timeout_ms) as question:
            found = question.topics(names, _ABSENT + _FORBIDDEN)
            configs = question.configs(list(found))
    except UncheckedError:
        return {name: TopicInfo(partitions=1) for name in names}
    return {
        name: TopicInfo(
            partitions=len(info.partitions),
            max_message_bytes=int(configs[name]["max.message.bytes"].value) if name in configs else None,
            may_write=any(each.name in ("WRITE", "ALL") for each in info.authorized_operations)
            if info.authorized_operations
            else None,
            compacted=name in configs and "compact" in configs[name]["cleanup.policy"].value,
        )
        for name, info in found.items()
    }


def missing_topics(options: Mapping[str, str], names: Collection[str]) -> list[str]:
    """The topics that do not exist, sorted; raises as :func:`describe`."""
    return sorted(set(names) - describe(options, names).keys())


def topic_names(options: Mapping[str, str]) -> list[str]:
    """All topics visible to this user, sorted, without Kafka's own. Raises as :func:`describe`."""
    try:
        with _asking(options) as question:
            return sorted(question.names() - INTERNAL_TOPICS)
    except UncheckedError:
        return []


def offsets(
    options: Mapping[str, str], topics: Collection[str], *, timeout_ms: int = TIMEOUT_MS
) -> dict[str, TopicOffsets]:
    """The offsets of each topic that exists, by name; arguments and errors as those of :func:`describe`.

    Raises:
        UncheckedError: The cluster is not asked.
    """
    with _asking(options, timeout_ms) as question:
        found = question.topics(sorted(set(topics)), _ABSENT)
        places = {(name, part.id) for name, each in found.items() for part in each.partitions}
        first, end = question.ends(places, "earliest"), question.ends(places, "latest")
    return {
        name: TopicOffsets(
            str(each.topic_id).translate(_URL_SAFE),  # as Kafka's own tools show it
            {part.id: (first[name, part.id], end[name, part.id]) for part in each.partitions},
        )
        for name, each in found.items()
    }


def create(options: Mapping[str, str], topic: str, partitions: int = -1) -> None:
    """Creates a topic; an existing one is left as it is.

    Args:
        options: As given to Spark's connector.
        topic: The name.
        partitions: How many; -1 for the cluster's default. The replication factor is always the cluster's default.

    Raises:
        SinkError: The cluster cannot be reached or does not allow it.
    """
    with _asking(options, what=f"the topic {topic} cannot be created") as question:
        question.create(topic, partitions)


def close_all() -> None:
    """Closes all clients; the next question opens a new one, and warns again."""
    with _clients_lock:
        open_clients.clear()
        _warned.clear()


@contextmanager
def _asking(
    options: Mapping[str, str], timeout_ms: int = TIMEOUT_MS, what: str = "the Kafka cluster does not answer"
) -> Iterator[_Question]:
    """Provides a client for questions; its exceptions become errors of this package, and end it."""
    if (missing := missing_package("confluent_kafka", "kafka", KAFKA_SERVERS)) is not None:
        raise missing
    from confluent_kafka import KafkaException

    remember_options(options)
    given, question = client_options(options), None
    servers = hide(given.get("bootstrap.servers", ""))
    try:
        settings = login_settings(given)
    except ConfigError as fault:
        raise _unchecked(servers, f"{fault.field}; rule: {fault.rule}") from None
    try:
        question = _Question(settings, timeout_ms / 1000)
        yield question
    except KafkaException as fault:
        with _clients_lock:
            open_clients.pop(str(settings), None)
        error = fault.args[0] if question is None else question.cause_of(fault.args[0])
        # Hidden before it is cut: half a password is a secret too.
        reason = re.sub(r"\s+", " ", hide(f"{error.name()}: {error.str()}"))[:300]
        if error.name() == "_SSL":
            raise _unchecked(servers, reason) from None
        what = "no client can be made from the options of Kafka" if question is None else what
        hint = "check the servers, the security options, and that the cluster is up"
        raise SinkError(f"{what} ({reason})", field=KAFKA_SERVERS, value=servers, hint=hint) from None


def _unchecked(servers: str, reason: str) -> UncheckedError:
    what = f"librdkafka cannot ask the Kafka cluster {servers} ({reason})"
    if what not in _warned:
        _warned.add(what)
        _log.warning("%s; its topics are neither checked nor created: see docs/kafka.md", what)
    return UncheckedError(what)


class _Question:
    """Requests to one cluster; each raises KafkaException, also if there is no answer in time."""

    def __init__(self, settings: Mapping[str, str], timeout_s: float) -> None:
        from confluent_kafka import admin

        self._kafka: Any = admin
        with _clients_lock:
            if (key := str(settings)) not in open_clients:
                reported: list[KafkaError] = []
                own: dict[str, Any] = {
                    "error_cb": reported.append,
                    "log_level": 0,  # it would write to standard error what is in the errors here
                    "reconnect.backoff.max.ms": 1_000,  # not 10 s: a broker that is back is found in time
                }
                open_clients[key] = admin.AdminClient({**settings, **own}), reported
            self._admin, self._reported = open_clients[key]
        self._timeout_s = timeout_s
        self._admin.poll(0)
        self._reported.clear()

    def cause_of(self, error: KafkaError) -> KafkaError:
        """The client's own report during a wait that timed out, instead of the timeout."""
        self._admin.poll(0)
        causes = [each for each in self._reported if each.name() != "_ALL_BROKERS_DOWN"]
        return causes[-1] if causes and error.name() in ("_TIMED_OUT", "_TRANSPORT") else error

    def topics(self, names: list[str], absent: Collection[str]) -> dict[str, Any]:
        """Kafka's descriptions of the topics that exist."""
        from confluent_kafka import TopicCollection

        more = {"include_authorized_operations": True, "request_timeout": self._timeout_s}
        return self._answers(self._admin.describe_topics(TopicCollection(names), **more), absent)

    def configs(self, names: Collection[str]) -> dict[str, Any]:
        """The configurations of topics, as far as this user may read them."""
        kind = self._kafka.ConfigResource
        resources = [kind(kind.Type.TOPIC, name) for name in names]
        if not resources:
            return {}
        futures = self._admin.describe_configs(resources, request_timeout=self._timeout_s)
        return self._answers({each.name: futures[each] for each in resources}, _ABSENT + _FORBIDDEN)

    def ends(self, places: Collection[tuple[str, int]], end: str) -> dict[tuple[str, int], int]:
        """The earliest or the latest offset of partitions; those that have no leader for the moment are asked again."""
        from confluent_kafka import TopicPartition

        found: dict[tuple[str, int], int] = {}
        spec = getattr(self._kafka.OffsetSpec, end)()
        for absent in (*[_LEADERLESS] * int(self._timeout_s / _LOOK_S), ()):
            asked = {TopicPartition(*place): spec for place in places if place not in found}
            futures = self._admin.list_offsets(asked, request_timeout=self._timeout_s)
            answers = self._answers(futures, absent).items()
            found |= {(part.topic, part.partition): answer.offset for part, answer in answers}
            if len(found) == len(places):
                break
            self.names()  # the client learns who leads the partitions now
            self._admin.poll(_LOOK_S)
        return found

    def names(self) -> set[str]:
        return set(self._admin.list_topics(timeout=self._timeout_s).topics)

    def create(self, name: str, partitions: int) -> None:
        topic = self._kafka.NewTopic(name, num_partitions=partitions)
        made = self._admin.create_topics([topic], request_timeout=self._timeout_s)
        self._answers(made, ["TOPIC_ALREADY_EXISTS"])

    def _answers(self, futures: Mapping[Any, Future[Any]], absent: Collection[str]) -> dict[Any, Any]:
        """The answers to the parts of a request, without parts whose error is in `absent`."""
        from confluent_kafka import KafkaException

        while wait(futures.values(), _LOOK_S).not_done:
            self._admin.poll(0)
            if refused := [each for each in self._reported if each.name() in _REFUSED]:
                raise KafkaException(refused[0])  # the client would try again until the time is over
        faults = {part: future.exception() for part, future in futures.items()}
        for fault in faults.values():
            if fault and not (isinstance(fault, KafkaException) and fault.args[0].name() in absent):
                raise fault
        return {part: future.result() for part, future in futures.items() if not faults[part]}
