"""Sends dead letters again: an act that adds entries, made of the rows of a table or topic of dead letters.

::

    dead letter of order-7, seq 3, for crm_a    --redrive-->    SCHEDULE (3, amend + 1) for crm_a, due now
    --rate 100/s                                                the next one 10 ms later, and so on

The entry has the id and the ``seq`` of the letter: a higher ``seq`` that came meanwhile wins over it, and the same act
again counts as a repetition (``duplicate``) within ``memory``. Its attempts begin anew. Of an occurrence of a series
the id is ``<id>@<nominal time>``, because the id itself is that of the series. The letters stay where they are.
"""

from __future__ import annotations

import operator
from dataclasses import replace
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, Window, functions as F

from wheel_udf.commands.columns import utc_text
from wheel_udf.common.errors import ActError
from wheel_udf.common.rates import require_per_second
from wheel_udf.pending.acts_on_state import keep_by_shard, state_clock_ms
from wheel_udf.pending.acts_on_store import keep_rows
from wheel_udf.pending.audit import record_act
from wheel_udf.pending.changes import as_stored
from wheel_udf.pending.entries import PendingWork
from wheel_udf.pending.picked import Picked
from wheel_udf.sinks.catalog_sink import CatalogTableSink
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import DEAD, Sink, fields
from wheel_udf.sinks.kafka_sink import KafkaSink
from wheel_udf.wheel.acted import ADD

_NEEDED: Final = ("schedule_id", "seq", "origin", "amend", "deliver_at")

MOST: Final = 100_000
"""How many letters one act sends at most."""


def dead_letters(spark: SparkSession, sink: Sink | None, name: str) -> DataFrame:
    """The dead letters at a destination, with the columns of :data:`wheel_udf.sinks.destinations.DEAD`.

    Args:
        spark: A session.
        sink: The sink of the destination.
        name: Its name.

    Raises:
        ActError: It is no table and no topic.
    """
    if (
        isinstance(sink, DeltaSink | CatalogTableSink | KafkaSink)
        and (reason := _why_not(spark, sink, name)) is not None
    ):
        raise ActError(f"dead letters cannot be read, {reason}", field="dead_letters", value=name)
    if isinstance(sink, DeltaSink | CatalogTableSink):
        return sink.rows(spark, sink.table_of(name)).select(*DEAD.names)
    if isinstance(sink, KafkaSink):
        return _of_topic(spark, sink, name)
    raise ActError(
        "dead letters cannot be read from there",
        field="dead_letters",
        value=name,
        rule="a Delta table or a topic of Kafka",
    )


def _why_not(spark: SparkSession, sink: DeltaSink | CatalogTableSink | KafkaSink, name: str) -> str | None:
    """Why there are no letters to read. Sinks that may create what is missing would not say that it is missing."""
    return replace(sink, create=False).missing_reason(spark, name, DEAD)


def redrive(  # an act, by name
    spark: SparkSession,
    work: PendingWork,
    letters: DataFrame,
    picked: Picked,
    *,
    per_s: float | None = None,
    dry_run: bool = False,
) -> int:
    """Sends dead letters again.

    Args:
        spark: A session.
        work: Where the entries are to wait.
        letters: The letters, as :func:`dead_letters` returns them.
        picked: The selection, by id or by SQL over their columns.
        per_s: How many a second; None: all are due at once.
        dry_run: Count the letters and change nothing.

    Returns:
        The number of letters; several of one version count as one.

    Raises:
        ActError: They are too many, the predicate cannot be used, or too many conflicting acts.
        ConfigError: The rate is not from 0.000001 to 1,000,000 a second.
        CheckpointError: There is no checkpoint, or it is damaged.
    """
    require_per_second(per_s)
    chosen = _newest(picked.of(letters))

    def count(rows: DataFrame) -> int:
        found = rows.count()
        if found > MOST:
            hint = "select fewer with where, such as dead_at < timestamp'...'"
            raise ActError(
                "too many for one act", field="where", value=found, rule=f"up to {MOST}", hint=hint
            )
        return int(found)

    if dry_run:
        return count(chosen)
    keep: Any = keep_by_shard if work.store is None else keep_rows
    clock_ms = state_clock_ms(spark, work.query)
    commands = _added(chosen, clock_ms, per_s)
    commands = commands if work.store is None else as_stored(commands, clock_ms)
    change = "" if per_s is None else f"{per_s:g} a second"
    return record_act(
        work.query,
        lambda: keep(work.query, commands, count),
        act="redrive",
        picked=str(picked),
        change=change,
    )


def _sent_as() -> Column:
    """The id under which a letter is sent again."""
    nominal = F.replace(utc_text(F.unix_millis("deliver_at")), F.lit(" "), F.lit("T"))
    return F.when(F.col("occurrence").isNull(), F.col("schedule_id")).otherwise(
        F.concat("schedule_id", F.lit("@"), nominal)
    )


def _newest(letters: DataFrame) -> DataFrame:
    """Of several letters of a version the last one."""
    newest = Window.partitionBy(_sent_as(), "seq").orderBy(F.col("amend").desc(), F.col("dead_at").desc())
    return letters.withColumn("_place", F.row_number().over(newest)).where("_place = 1").drop("_place")


def _added(letters: DataFrame, clock_ms: int, per_s: float | None) -> DataFrame:
    """The letters as rows of an act."""
    due: Column = F.lit(clock_ms).cast("long")
    if per_s is not None:
        # Spark warns of a window without a partition; these are MOST rows at most, and none has no id.
        in_order = Window.partitionBy(F.col("schedule_id").isNull()).orderBy("dead_at", "schedule_id", "seq")
        due = due + F.floor((F.row_number().over(in_order) - 1) * (1000 / per_s)).cast("long")
    source = F.concat_ws("/", "source_topic", "source_partition", "source_offset")
    columns: dict[str, Column] = {
        "schedule_id": _sent_as(),
        "op": F.lit(ADD).cast("byte"),
        "seq": F.col("seq"),
        "amend": F.col("amend") + 1,
        "deliver_at_ms": due,
        **{each: F.lit(None).cast("long") for each in ("delay_level_ms", "level_error_ms", "occurrence")},
        "destination": F.col("origin"),
        "source": F.when(F.col("source_topic").isNotNull(), source),
        "key": F.col("key"),
        "value": F.col("value"),
        "headers": F.to_json("headers"),
        "max_lateness_ms": F.lit(None).cast("long"),
    }
    return letters.select(*(column.alias(each) for each, column in columns.items()))


def _of_topic(spark: SparkSession, sink: KafkaSink, name: str) -> DataFrame:
    """The dead letters of a topic, from its beginning; other records are left out."""
    # The settings of a producer are none of a consumer, but where the brokers are and how to get in.
    options = {
        key: value
        for key, value in sink.options.items()
        if key.lower().startswith(("kafka.bootstrap", "kafka.security", "kafka.sasl", "kafka.ssl"))
    }
    records = (
        spark.read.format("kafka")
        .options(**options, includeHeaders="true", subscribe=name, startingOffsets="earliest")
        .load()
    )
    ours = {header: column for header, column, _ in DEAD.headers}

    def told(header: str) -> Column:
        # The last one, as with Kafka's lastHeader: a delivery may have had headers of Kafka Connect before.
        values = F.filter("headers", lambda each: each["key"] == header)
        return F.try_element_at(values, F.lit(-1))["value"].cast("string")

    own = F.filter("headers", lambda each: ~each["key"].isin([*ours, "wheel-source"]))
    kinds = {each.name: each.dataType for each in fields(DEAD.columns)}
    named = {column: told(header).try_cast(kinds[column]) for header, column in ours.items()}
    named |= {"destination": F.col("topic"), "key": F.col("key"), "value": F.col("value"), "headers": own}
    letters = records.select(*(named[each].alias(each) for each in DEAD.names))
    # Anyone may write to a topic.
    return letters.where(reduce(operator.and_, (F.col(name).isNotNull() for name in _NEEDED)))
