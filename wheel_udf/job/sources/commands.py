"""Opens the source of commands of a config."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from wheel_udf.commands.contract import DEFAULT_PRESET
from wheel_udf.commands.header_names import NO_NAMES, HeaderNames
from wheel_udf.job.models.levels import LevelsConfig
from wheel_udf.job.models.source import DeltaSourceConfig, KafkaSourceConfig, SourceConfig
from wheel_udf.job.sources.files import read_files
from wheel_udf.job.sources.tables import read_table
from wheel_udf.job.sources.topics import read_topics


def read_commands(
    spark: SparkSession,
    source: SourceConfig,
    *,
    preset: str = DEFAULT_PRESET,
    levels: LevelsConfig | None = None,
    names: HeaderNames = NO_NAMES,
    default_delay_ms: int | None = None,
) -> DataFrame:
    """Opens the source as a stream of commands.

    Args:
        spark: The session.
        source: The section ``source`` of the config.
        preset: How a Kafka record becomes a command (see :mod:`wheel_udf.commands.kafka_presets`); other sources have
            columns.
        levels: The section ``levels``: its topics are read beside the source's own.
        names: The headers of other systems that the preset ``native`` reads, too.
        default_delay_ms: The delay of Kafka records without a due time, but for those of topics of delay levels; None:
            they are rejected.

    Returns:
        A streaming frame: the source's columns and ``source_coordinates`` (string); of Kafka and of a change feed also
        ``source_seq`` (long).

    Raises:
        ConfigError: If there is nothing at the path, a topic is missing, a table keeps no changes, or ``schema`` or an
            option cannot be used.
        ContractError: The source has no ``schedule_id``, or a table of changes has ``op`` or ``seq``.
        SinkError: If the Kafka cluster does not answer.
    """
    if isinstance(source, KafkaSourceConfig):
        return read_topics(spark, source, preset, levels, names, default_delay_ms)
    if isinstance(source, DeltaSourceConfig):
        return read_table(spark, source)
    return read_files(spark, source)
