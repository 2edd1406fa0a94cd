"""Topics of Kafka as streams, and those of delay levels. See :mod:`wheel_udf.job.sources`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from wheel_udf.commands.arrow_stage import through_arrow
from wheel_udf.commands.delay_reader import DelayReader
from wheel_udf.commands.header_names import NO_NAMES, HeaderNames
from wheel_udf.commands.kafka_presets import kafka_commands
from wheel_udf.common.errors import ConfigError, ConfigErrors
from wheel_udf.job import kafka_options
from wheel_udf.job.models.levels import LevelsConfig
from wheel_udf.job.models.source import KafkaSourceConfig
from wheel_udf.kafka import admin as kafka_admin

NO_LEVELS: Final[Mapping[str, int]] = MappingProxyType({})
"""No topic has a delay of its own."""

_LAST_OFFSET = 2**63 - 1


def open_topics(spark: SparkSession, source: KafkaSourceConfig, section: str = "source") -> DataFrame:
    """Opens the records of a Kafka source, with the columns of Spark's connector. Errors name the `section`."""
    _require_topics(source, section, ())
    return _records(spark, source, kafka_options.reader_options(source.options, source.topics))


def read_topics(
    spark: SparkSession,
    source: KafkaSourceConfig,
    preset: str,
    levels: LevelsConfig | None,
    names: HeaderNames = NO_NAMES,
    default_delay_ms: int | None = None,
) -> DataFrame:
    """Opens a Kafka source and the topics of delay levels as one stream of commands.

    See :func:`~wheel_udf.job.sources.commands.read_commands`.
    """
    if levels is None or not levels.topics:
        return with_default_delay(kafka_commands(open_topics(spark, source), preset, names), default_delay_ms)
    _require_topics(source, "source", [*levels.topics])
    given = kafka_options.reader_options(source.options, source.topics)
    own = kafka_options.for_topics(given, source.topic_names)
    # Records, not commands, are put together: so all are read in one turn through Python.
    records = _records(spark, source, own)
    for topic, level_ms in sorted(levels.topics.items()):
        options = kafka_options.for_level_topic(given, topic, paused=level_ms in levels.paused)
        records = records.unionByName(_records(spark, source, options))
    return with_default_delay(kafka_commands(records, preset, names), default_delay_ms, levels.topics)


def _records(spark: SparkSession, source: KafkaSourceConfig, options: dict[str, str]) -> DataFrame:
    records = spark.readStream.format("kafka").options(**options).load()
    ends = kafka_options.ending_offsets(source.options)
    return records.where(_is_before(ends)) if ends else records


def with_default_delay(
    commands: DataFrame, delay_ms: int | None, levels: Mapping[str, int] = NO_LEVELS
) -> DataFrame:
    """Gives a delay to commands without a due time.

    Args:
        commands: Of Kafka.
        delay_ms: The delay of those that are neither a series nor a RETRY; None: none.
        levels: Topics whose commands have a delay (ms) of their own instead.
    """
    if delay_ms is None and not levels:
        return commands
    return through_arrow(commands, DelayReader(tuple(commands.columns), delay_ms, dict(levels)), "commands")


def _require_topics(source: KafkaSourceConfig, section: str, more: Sequence[str]) -> None:
    own = source.topic_names
    if not own and not more:  # a pattern: only whether the cluster answers is checked
        kafka_admin.topic_names(source.options)
        return
    missing = kafka_admin.missing_topics(source.options, (*own, *more))
    faults = [
        ConfigError(
            "there is nothing to read",
            field=field,
            value=", ".join(gone),
            rule="topics that exist and that this user may read",
            hint="create them, or check the names",
        )
        for field, names in ((f"{section}.topics", own), ("levels.topics", more))
        if (gone := [name for name in missing if name in names])
    ]
    if faults:
        raise faults[0] if len(faults) == 1 else ConfigErrors(faults)


def _is_before(ends: kafka_options.Offsets) -> Column:
    """Returns whether a record is before the end of its partition. Spark folds the map into a constant."""
    pairs = [
        (F.lit(f"{topic}/{partition}"), F.lit(offset))
        for topic, places in ends.items()
        for partition, offset in places.items()
    ]
    if not pairs:
        return F.lit(True)
    end = F.try_element_at(F.create_map(*chain(*pairs)), F.concat_ws("/", "topic", "partition"))
    return F.col("offset") < F.coalesce(end.cast("long"), F.lit(_LAST_OFFSET))
