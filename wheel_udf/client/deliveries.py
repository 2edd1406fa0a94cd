"""A Kafka consumer that sees each delivery once.

The scheduler delivers to Kafka at least once: a batch that did not finish is sent again, with the same header
``wheel-fire-id``. A repetition is in the partition of the first one if the record has a key. :class:`Deliveries`
remembers the fire ids of the last records of each partition and drops what it has seen::

    partition   f1 f2 f3 f4 | f1 f2 f3 f4 f5 ...       the batch of f1 to f4 was sent twice
    returned    f1 f2 f3 f4                f5

The memory is a number of records and not a time, because only records count: between a delivery and its repetition
there is at most the rest of its batch in a partition, but hours if the job stood still.

Restart and rebalance
    The ids are in this process; the topic has them, too. When a partition is assigned, reading begins `memory` records
    before the committed offset; these are remembered and not returned. So a repetition is also dropped if the first
    delivery was handled by an earlier process, or by another member of the group. Cost: reading them once, for 100,000
    records some seconds.

Offsets outside the log
    A committed offset before the beginning of the log (retention) or beyond its end (a log that was truncated,
    restored or created again) does not describe the present records. Then ``auto.offset.reset`` decides, as in any
    consumer: ``earliest`` returns all of them, ``latest`` only new ones, ``error`` raises.

What it does not do
    * What was handled and not committed when the process died is returned again: the consumer itself is at least once.
      Offsets are committed every ``auto.commit.interval.ms`` (5 s by default), at a rebalance and by
      :meth:`Deliveries.close`.
    * A repetition without a key can be in another partition, and so can one after partitions were added. It is
      returned: ids are remembered by partition, so that a partition can move to another member with its memory.
    * Repetitions further apart than `memory` are returned.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from wheel_udf.common.command_facts import COMMAND_HEADERS, FIRE_ID_HEADER
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.extras import missing_package
from wheel_udf.common.secrets import remember_options

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

_log = logging.getLogger(__name__)

_STORES: Final = "enable.auto.offset.store"
_PATIENCE_S: Final = 60.0
_ATTEMPT: Final = COMMAND_HEADERS["attempt"]

Place = tuple[str | None, int | None]
"""(topic, partition)."""


class Deliveries:
    """Reads deliveries from topics and drops repetitions. An offset is stored after its delivery was handled.

    ::

        settings = {"bootstrap.servers": "127.0.0.1:9092", "group.id": "orders"}
        with Deliveries(settings, ["orders_to_close"]) as deliveries:
            for delivery in deliveries:  # a confluent_kafka.Message
                print(delivery.key(), delivery.value())

    A delivery counts as handled when the next one is asked for. If the body of the loop raises, its delivery is
    returned again after a restart.

    Args:
        settings: Settings of confluent-kafka's ``Consumer``, with ``bootstrap.servers`` and ``group.id``.
            ``auto.offset.reset`` is ``earliest`` by default.
        topics: The topics. One that does not exist yet is waited for, with a warning in the log.
        memory: How many records of each partition are remembered: more than a batch of the job puts into one partition
            (``limits.fired_per_batch``, or what falls due while the job stands). About 150 bytes each.

    Attributes:
        consumer: The consumer, for pausing, seeking and metrics.
        repeated: How many repetitions were dropped.

    Raises:
        ConfigError: confluent-kafka is not installed, `memory` is below 1, or the settings let the client store
            offsets by itself.
    """

    def __init__(self, settings: Mapping[str, Any], topics: Sequence[str], *, memory: int = 100_000) -> None:
        if memory < 1:
            raise ConfigError("not a number of records", field="memory", value=memory, rule="at least 1")
        if str(settings.get(_STORES, False)).lower() not in ("false", "0"):
            hint = "leave it out: an offset is stored after its delivery was handled"
            raise ConfigError("deliveries would be lost", field=_STORES, rule="false", hint=hint)
        if (fault := missing_package("confluent_kafka", "kafka", "wheel_udf.client.Deliveries")) is not None:
            raise fault
        from confluent_kafka import Consumer

        remember_options(settings)
        strategy, protocol = settings.get("partition.assignment.strategy", ""), settings.get("group.protocol")
        self._cooperative = "cooperative" in str(strategy) or protocol == "consumer"
        self.repeated = 0
        self.memory = memory
        self._seen: dict[Place, dict[bytes, None]] = {}
        self._handled_to: dict[Place, int] = {}
        self._read_to: dict[Place, int] = {}
        self._returned: Message | None = None
        self._closing = False
        self.consumer = Consumer({"auto.offset.reset": "earliest", **settings, _STORES: False})
        self.consumer.subscribe(
            list(topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def poll(self, timeout_s: float = 1.0) -> Message | None:
        """Returns the next delivery that was not seen before; None if none came in time, or if a repetition came.

        Args:
            timeout_s: How long to wait.

        Raises:
            KafkaException: The consumer cannot go on. With ``auto.offset.reset: error`` also if a committed offset is
                not in the log.
        """
        self._settle()
        message = self.consumer.poll(timeout_s)
        if message is None:
            return None
        if (error := message.error()) is not None:
            return self._pass_over(error)
        place, attempt, offset = _place_of(message), _attempt_of(message), message.offset() or 0
        known = self._seen.setdefault(place, {})
        # An offset that was read before is one of a new log, and so are all that come later.
        if self._read_to.get(place, -1) < offset < self._handled_to.get(place, 0):
            self._read_to[place] = offset
            self._remember(known, attempt)
            return None
        self._handled_to.pop(place, None)
        self._returned = message
        if attempt is not None and attempt in known:
            self.repeated += 1
            return None
        return message

    def __iter__(self) -> Iterator[Message]:
        """Iterates over deliveries without an end."""
        while True:
            if (message := self.poll()) is not None:
                yield message

    def close(self) -> None:
        """Commits what was handled and leaves the group. The last returned delivery does not count as handled."""
        self._returned, self._closing = None, True
        self.consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- what was handled -----------------------------------------------------------------------------

    def _settle(self) -> None:
        """Remembers the record that was returned (or dropped) last, and stores its offset."""
        message, self._returned = self._returned, None
        if message is not None and (known := self._seen.get(_place_of(message))) is not None:
            self._remember(known, _attempt_of(message))
            self.consumer.store_offsets(message)

    def _remember(self, known: dict[bytes, None], attempt: bytes | None) -> None:
        if attempt is not None:
            known.pop(attempt, None)  # the last record of several counts
            known[attempt] = None
            if len(known) > self.memory:
                del known[next(iter(known))]

    @staticmethod
    def _pass_over(error: Any) -> None:
        from confluent_kafka import KafkaError, KafkaException

        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            _log.warning("waiting for a topic: %s", error.str())
        elif error.code() != KafkaError._PARTITION_EOF and not error.retriable():  # noqa: SLF001  # its public name
            raise KafkaException(error)

    # --- partitions -----------------------------------------------------------------------------------

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Begins each partition `memory` records before the committed offset, if that offset is in the log."""
        if self._closing:  # a rebalance that came too late; a closing consumer sends no more requests
            return
        for partition in consumer.committed(partitions, timeout=_PATIENCE_S):
            place = partition.topic, partition.partition
            mine = next(each for each in partitions if (each.topic, each.partition) == place)
            self._seen[place] = {}
            self._read_to.pop(place, None)
            if partition.offset >= 0:
                first, end = consumer.get_watermark_offsets(mine, timeout=_PATIENCE_S)
                if first <= partition.offset <= end:
                    mine.offset = max(first, partition.offset - self.memory)
                    self._handled_to[place] = partition.offset
        if self._cooperative:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            for of_places in (self._seen, self._handled_to, self._read_to):
                of_places.pop((partition.topic, partition.partition), None)


def _place_of(message: Message) -> Place:
    return message.topic(), message.partition()


def _attempt_of(message: Message) -> bytes | None:
    """The fire id of a delivery with the number of its attempt, which is a delivery of its own; None for a record that
    the scheduler has not written.
    """
    headers: Any = message.headers() or ()
    told = {name: value or b"" for name, value in headers if name in (FIRE_ID_HEADER, _ATTEMPT)}
    if FIRE_ID_HEADER not in told:
        return None
    return told[FIRE_ID_HEADER] + b"\0" + told.get(_ATTEMPT, b"")
