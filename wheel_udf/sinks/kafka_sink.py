"""Kafka sink: deliveries and rejects in Kafka topics, at least once.

All topics of a batch are one write. One record that Kafka refuses would fail the whole write, without naming the
record, and every repetition. So records that Kafka would refuse are found before the write and left out::

    a topic    missing (created with create=True), internal, or not allowed for this user      all its rows
    a row      larger than topic or producer allow; no key for a compacted topic               that row
               |
               '-- size by Kafka's own upper bound (wheel_udf.sinks.kafka_record), before compression, against the
                   smallest of max.request.size and buffer.memory of the producer and the limit of the topic

If a write fails nevertheless, the topics are described again. If they have changed meanwhile (deleted, a smaller
limit), the rest is sent without the rows that have become undeliverable; otherwise the batch fails. So does it if a
broker is down or slow for ``kafka.delivery.timeout.ms`` (2 minutes). A batch that is repeated, and a write that is
tried again here, send records again, with the same ``wheel-fire-id``.

The producer's settings are Kafka's, except one: ``batch.size`` never exceeds the smallest limit of the topics written.
The client splits a batch of records that is larger than its topic allows and sends it again; in kafka-clients before
4.2 (KAFKA-19479) ``flush`` does not wait for that second sending, so Spark would commit a batch whose records are not
written. (KAFKA-8350: with a limit far below ``batch.size`` the splitting does not end either.)

Caveats: a user who may not describe a topic's configuration gets no check against its limit, and a user who may not
describe the topic sees it as missing. With ``kafka.compression.type`` a producer may still split a batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from wheel_udf.common.errors import ConfigError, SinkError
from wheel_udf.common.extras import missing_package
from wheel_udf.common.names import KAFKA_SERVERS, NAME_RULE, is_destination_name
from wheel_udf.common.secrets import remember_options
from wheel_udf.kafka import admin as kafka_admin
from wheel_udf.kafka.admin import TopicInfo
from wheel_udf.sinks.destinations import FIRED, LeftOut, Shape, WithoutRecord
from wheel_udf.sinks.kafka_record import (
    OWN_BYTES_OF_DELIVERY,
    SMALLEST_REJECTS_TOPIC,
    delivery_headers,
    delivery_records,
    reject_records,
    size_bound,
)
from wheel_udf.sinks.kafka_topics import TopicCheck, check_topics, topic_reason

_PRODUCER_DEFAULTS: Final = {
    "kafka.max.request.size": 1_048_576,
    "kafka.buffer.memory": 33_554_432,
    "kafka.batch.size": 16_384,
}
_REFUSED_OPTIONS: Final = {
    "topic": "each row names its topic: leave it out",
    "kafka.transactional.id": "Spark's Kafka sink has no transactions: leave it out",
}
_LOOKS: Final = 3


@dataclass(frozen=True)
class KafkaSink(WithoutRecord):
    """A topic of one cluster for each destination, named as the destination. At least once.

    Attributes:
        options: As for Spark's Kafka sink: ``kafka.bootstrap.servers`` and other settings of the producer, prefixed
            with ``kafka.``. Never shown, because they may hold secrets.
        create: Create missing topics, with the cluster's default number of partitions; otherwise their rows are
            undeliverable. The topic of the rejects is always created.
        topic: The sink's own topic, which rejects use.

    Raises:
        ConfigError: No servers, an option that this sink does not take, or not a topic name; or confluent-kafka is not
            installed.
    """

    options: Mapping[str, str] = field(repr=False, hash=False)
    create: bool = False
    topic: str | None = None

    def __post_init__(self) -> None:
        remember_options(self.options)
        if (missing := missing_package("confluent_kafka", "kafka", "KafkaSink")) is not None:
            raise missing
        if not self._option(KAFKA_SERVERS):
            raise ConfigError(
                "a Kafka sink without servers", field=f"options.{KAFKA_SERVERS}", rule="host:port"
            )
        for name in self.options:
            if name.lower() in _REFUSED_OPTIONS:
                hint = _REFUSED_OPTIONS[name.lower()]
                raise ConfigError(
                    "an option that this sink does not take", field=f"options.{name}", hint=hint
                )
        for name in _PRODUCER_DEFAULTS:
            if not (self._option(name) or "0").isdecimal():
                raise ConfigError("not a number of bytes", field=f"options.{name}", rule="digits")
        if self.topic is not None and not is_destination_name(self.topic):
            raise ConfigError("not a topic's name", field="topic", value=self.topic, rule=NAME_RULE)

    def missing_reason(
        self,
        spark: SparkSession,  # noqa: ARG002
        destination: str | None,
        shape: Shape = FIRED,  # noqa: ARG002  # records have any headers
    ) -> str | None:
        """See :meth:`~wheel_udf.sinks.destinations.Sink.missing_reason`; asks the cluster and changes nothing.

        Raises:
            SinkError: The cluster does not answer.
        """
        name = destination if destination is not None else self.topic
        if name is None:
            return "the Kafka sink of the rejects names no topic"
        info = kafka_admin.describe(self.options, [name]).get(name)
        if info is None and (self.create or destination is None) and name not in kafka_admin.INTERNAL_TOPICS:
            return None
        reason = topic_reason(name, info)
        if reason is None and info is not None and destination is None:
            return self._rejects_reason(name, info)
        return reason

    def write(
        self,
        frame: DataFrame,
        destination: str | None,  # noqa: ARG002  # write_all() writes the others
        *,
        app_id: str,  # noqa: ARG002
        batch_id: int,  # noqa: ARG002
        shape: Shape = FIRED,  # noqa: ARG002
    ) -> None:
        """See :meth:`~wheel_udf.sinks.destinations.Sink.write`, of rejects; a repetition sends the records again."""
        assert self.topic is not None, "missing_reason() was asked"
        check = check_topics(self.options, [self.topic], create=True)
        if check.reasons:
            raise SinkError(check.reasons[self.topic], field="topic", value=self.topic)
        self._produce(
            reject_records(frame, self.topic, self._limit(check.infos[self.topic])), check.infos.values()
        )

    def write_all(
        self,
        frame: DataFrame,
        rows_to: Mapping[str, int],
        *,
        largest_to: Mapping[str, int] | None = None,
        shape: Shape = FIRED,
    ) -> LeftOut:
        """See :meth:`~wheel_udf.sinks.destinations.JointSink.write_all`.

        Cost: one Spark job, and before it one that counts the rows that are too large, unless `largest_to` shows that
        there are none.
        """
        check = self.check_topics(rows_to)
        for _ in range(_LOOKS - 1):
            try:
                return self._send(frame, check, largest_to or {}, shape)
            except Exception:
                before, check = check, self.check_topics(rows_to)
                if check == before:
                    raise
        return self._send(frame, check, largest_to or {}, shape)

    def sendable(
        self,
        frame: DataFrame,
        rows_to: Mapping[str, int],
        *,
        largest_to: Mapping[str, int],
        shape: Shape = FIRED,
    ) -> tuple[DataFrame, dict[str, int], LeftOut]:
        """Finds the rows that Kafka takes, for a client that sends them later. Creates missing topics, if the sink may.
        Arguments as :meth:`write_all`.

        Returns:
            The rows that it takes; their topics, each with the bytes of the largest record that it takes; the others.

        Raises:
            SinkError: The cluster does not answer.
        """
        check = self.check_topics(rows_to)
        rows, left_out = self._checked(frame, check, largest_to, shape)
        return rows, {name: self._limit(info) for name, info in check.infos.items()}, left_out

    def _send(
        self, frame: DataFrame, check: TopicCheck, largest_to: Mapping[str, int], shape: Shape
    ) -> LeftOut:
        rows, left_out = self._checked(frame, check, largest_to, shape)
        if check.infos:
            # Sorted by due time: a partition of the frame holds several shards, one after the other.
            ordered = rows.sortWithinPartitions(*shape.order)
            self._produce(delivery_records(ordered, shape), check.infos.values())
        return left_out

    def _checked(
        self, frame: DataFrame, check: TopicCheck, largest_to: Mapping[str, int], shape: Shape
    ) -> tuple[DataFrame, LeftOut]:
        """The rows that the topics take, and the others."""
        rows = frame.where(F.col("destination").isin(list(check.infos)))
        refused, count = None, 0
        if check.infos and self._may_refuse(check.infos, largest_to):
            explained = rows.withColumn("error_message", self._row_reason(check.infos, shape))
            refused = explained.where(F.col("error_message").isNotNull())
            count = refused.count()
            rows = explained.where(F.col("error_message").isNull()) if count else rows
        return rows, LeftOut(check.reasons, refused if count else None, count)

    def _produce(self, records: DataFrame, infos: Iterable[TopicInfo]) -> None:
        options = {name: value for name, value in self.options.items() if name.lower() != "kafka.batch.size"}
        batch_bytes = min(self._bytes("kafka.batch.size"), *(self._limit(info) for info in infos))
        options["kafka.batch.size"] = str(batch_bytes)
        records.write.format("kafka").options(**options).save()

    # --- topics ---------------------------------------------------------------------------------------

    def check_topics(self, names: Collection[str]) -> TopicCheck:
        """Describes topics before a write, and creates missing ones if the sink may."""
        return check_topics(self.options, names, create=self.create)

    def _rejects_reason(self, name: str, info: TopicInfo) -> str | None:
        if info.compacted:
            return f"the topic {name} is compacted, and rejects may have no key"
        if self._limit(info) < SMALLEST_REJECTS_TOPIC:
            limit = self._limit(info)
            return f"the topic {name} takes records of {limit} bytes; rule: {SMALLEST_REJECTS_TOPIC} at least"
        return None

    # --- rows -----------------------------------------------------------------------------------------

    def _may_refuse(self, infos: Mapping[str, TopicInfo], largest_to: Mapping[str, int]) -> bool:
        """Whether the rows have to be checked one by one."""
        return any(
            info.compacted
            or name not in largest_to
            or largest_to[name] + OWN_BYTES_OF_DELIVERY > self._limit(info)
            for name, info in infos.items()
        )

    def _row_reason(self, infos: Mapping[str, TopicInfo], shape: Shape) -> Column:
        """Returns why a row of these topics cannot be sent; null if it can."""
        limit = self._limit_of_row(infos)
        size = size_bound(F.col("key"), F.col("value"), delivery_headers(shape))
        too_large = F.concat(
            F.lit("the record is too large: "), size, F.lit(" bytes with its headers; rule: at most "), limit
        )
        # Spark joins this with the filter that selects the rows, and computes what occurs twice for all rows first, on
        # both sides of an AND; rows of other kinds have no id. What is inside a CASE is computed only for its rows
        # (EquivalentExpressions, Spark 4.2).
        reason = F.when(size > limit, too_large)
        compacted = [name for name, info in infos.items() if info.compacted]
        if compacted:
            why = "the topic is compacted and takes no record without a key"
            reason = reason.when(F.col("destination").isin(compacted) & F.col("key").isNull(), why)
        return F.when(F.col("fire_id").isNotNull(), reason)

    def _limit_of_row(self, infos: Mapping[str, TopicInfo]) -> Column:
        # Most topics have the cluster's limit; Spark's planner is slow with a branch for each topic.
        names_by_limit: dict[int, list[str]] = {}
        for name, info in infos.items():
            names_by_limit.setdefault(self._limit(info), []).append(name)
        *others, usual = sorted(names_by_limit, key=lambda limit: len(names_by_limit[limit]))
        column = F.lit(usual)
        for limit in others:
            column = F.when(F.col("destination").isin(names_by_limit[limit]), limit).otherwise(column)
        return column

    def _limit(self, info: TopicInfo) -> int:
        """Returns the bytes of the largest record that producer and topic accept."""
        limit = min(self._bytes("kafka.max.request.size"), self._bytes("kafka.buffer.memory"))
        return limit if info.max_message_bytes is None else min(limit, info.max_message_bytes)

    def _bytes(self, name: str) -> int:
        return int(self._option(name) or _PRODUCER_DEFAULTS[name])

    def _option(self, name: str) -> str | None:
        # Like Spark, ignores the case of option names.
        return next((value for key, value in self.options.items() if key.lower() == name), None)
