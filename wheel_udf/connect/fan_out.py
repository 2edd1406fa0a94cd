"""``deliver_outbox``: from the outbox to the tables of the destinations, by Spark's own streams.

::

    OUTBOX --router--> OUTBOX_routed: all rows but status, each with its `route`, or as a reject
                          |-- where route = T --> T             one stream for each table
                          '-- where route is null --> rejects   one stream

    folder of checkpoints    router, tables/CATALOG/SCHEMA/TABLE, rejects

Rules
    * Where a row goes is decided once, when the router reads it, and is stored in the row. An undeliverable row is a
      reject for ever, also when its table appears later; a row with a route never is. Spark repeats a batch that was
      not committed, possibly with another decision, and then only that one exists.
    * Undeliverable is what no pattern matches, and what has a table that is missing (without `create`), cannot be
      created, or does not fit, at the start of the run.
    * A table that is lost or changed after the decision gets its rows when it is back: its stream is not started,
      the others run, and the error in the end names it.

Each stream is exactly once; the tables are not atomic together.

Cost: the rows are stored once more. The names of destinations are read from the whole outbox, so remove old rows from
outbox and OUTBOX_routed (the streams skip deletes).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession, functions as F
from pyspark.sql.streaming.query import StreamingQuery

from wheel_udf.common.errors import CheckpointError, ConfigError, ConfigErrors, SinkError, WheelError
from wheel_udf.connect.outbox import STATISTICS
from wheel_udf.connect.routing import Route, decision, route_faults, routes_of, targets_of
from wheel_udf.connect.tables import (
    CHECKPOINT,
    TableName,
    checkpoint_fault,
    create as create_table,
    lacking,
    misfit,
    name_fault,
    open_written,
    properties_of,
    schema_of,
    table_name,
)
from wheel_udf.sinks.destinations import (
    REJECT_SCHEMA,
    REJECT_STATISTICS,
    TABLE_PROPERTIES,
    Shape,
    fields,
    shape_of,
    undeliverable,
)
from wheel_udf.stream.frame_facts import facts_of
from wheel_udf.stream.outputs import REJECT_COLUMNS

ROUTED: Final = "_routed"
"""Suffix of the table of decided rows, beside the outbox."""

_STREAMS_AT_ONCE: Final = 4
"""A small stream mostly waits for the driver's bookkeeping."""


def deliver_outbox(
    spark: SparkSession,
    outbox: str,
    *,
    destinations: Mapping[str, str],
    rejects: str,
    checkpoint: str,
    create: bool = False,
) -> tuple[str, ...]:
    """Brings what is new in an outbox to the tables of its destinations, and returns when it is done.

    Run it after :func:`~wheel_udf.connect.outbox.to_outbox`, one at a time. Each table gets each row once, also after
    a kill. The columns are those of the tables of :class:`~wheel_udf.DeltaSink`.

    Args:
        spark: The session.
        outbox: The outbox.
        destinations: The allow-list: names or patterns of destinations (``*`` any text, ``?`` one character), each
            with the name of a table, in which ``{destination}`` stands for the destination. The first match decides.
        rejects: The table of rejected, missed and undeliverable rows; made if it is missing.
        checkpoint: Folder of the checkpoints of all streams, on the server's side; it belongs to this outbox.
        create: Create missing tables of destinations; else their rows are undeliverable.

    Returns:
        The names of the tables of destinations, each with all of its rows.

    Raises:
        ConfigErrors: Settings are wrong; all are reported.
        CheckpointError: There is no such outbox, or a table or a checkpoint of an earlier run is missing.
        GeometryChangedError: An earlier run had another checkpoint, or other rejects.
        SinkError: The rejects cannot be written; or tables that have rows cannot: their rows wait for the next run.
    """
    faults: list[WheelError | None] = [
        name_fault("outbox", outbox),
        name_fault("rejects", rejects),
        checkpoint_fault(checkpoint),
        *route_faults(destinations),
    ]
    if found := [each for each in faults if each is not None]:
        raise ConfigErrors(found)
    source, folder = table_name(spark, outbox), checkpoint.rstrip("/")
    own = [source, source.with_suffix(ROUTED), table_name(spark, rejects)]
    routes = routes_of(spark, destinations)
    _require_apart(routes, own)
    shape = _shape_of_outbox(spark, source)
    _open_rejects(spark, own[2])
    targets = _Targets(spark, shape, create=create)
    refused, there = targets.known(routes, _names_in(spark, source), own)
    decided = decision(routes, own=own, refused=refused, there=there)
    _route(spark, source, own, folder, shape, decided)
    return _deliver(spark, targets, own, folder)


class _Targets:
    """The tables of destinations in the catalog.

    Args:
        spark: The session.
        shape: The shape of their rows.
        create: Whether missing ones are created.
    """

    def __init__(self, spark: SparkSession, shape: Shape, *, create: bool) -> None:
        self.spark, self.shape, self.create = spark, shape, create

    def known(
        self, routes: Sequence[Route], names: Iterable[str], own: Sequence[TableName]
    ) -> tuple[dict[TableName, str], set[str] | None]:
        """What :func:`decision` needs to know: the tables that refuse rows, and those that are there."""
        taken = {each.plain.lower() for each in own}  # a catalog may take both cases for one name
        faults = {
            table: self.fault(table)
            for table in targets_of(routes, names)
            if table.plain.lower() not in taken
        }
        refused = {table: why for table, why in faults.items() if why is not None}
        if self.create:
            return refused, None
        places = {(route.table.catalog, route.table.schema) for route in routes}
        return refused, {name for place in places for name in self._tables_in(*place)}

    def fault(self, table: TableName) -> str | None:
        """Why a table cannot take rows, after creating it if it is missing and may be created; None if it can."""
        if schema_of(self.spark, table) is not None:
            return misfit(self.spark, table, self.shape.columns, self.shape)
        if not self.create:
            return f"the table {table.plain} is missing"
        properties = {**TABLE_PROPERTIES, STATISTICS: self.shape.looked_up_by}
        try:
            create_table(self.spark, table, fields(self.shape.columns), properties)
        except AnalysisException as fault:
            return f"the table {table.plain} cannot be created ({_in_short(fault)})"
        return None

    def _tables_in(self, catalog: str, schema: str) -> set[str]:
        """The plain names of the tables of a schema, in lower case."""
        try:
            rows = self.spark.sql(f"SHOW TABLES IN `{catalog}`.`{schema}`").collect()
        except AnalysisException:  # no such schema: its tables are missing
            return set()
        return {f"{catalog}.{schema}.{row.tableName}".lower() for row in rows if not row.isTemporary}


def _require_apart(routes: Sequence[Route], own: Sequence[TableName]) -> None:
    taken = {each.plain.lower() for each in own}
    faults = [
        ConfigError(
            "a destination has a table of the scheduler itself",
            field=f"destinations[{route.pattern!r}]",
            value=route.table.plain,
            rule=f"none of {', '.join(sorted(taken))}",
        )
        for route in routes
        if route.table.plain.lower() in taken
    ]
    if len(taken) < len(own):
        what = "the rejects have the place of the outbox"
        faults.append(ConfigError(what, field="rejects", value=own[2].plain, rule="a table of its own"))
    if faults:
        raise ConfigErrors(faults)


def _shape_of_outbox(spark: SparkSession, source: TableName) -> Shape:
    if schema_of(spark, source) is None or CHECKPOINT not in properties_of(spark, source):
        raise CheckpointError(
            "there is no such outbox",
            field="outbox",
            value=source.plain,
            rule="a table that to_outbox() has made",
        )
    return shape_of(facts_of(spark.table(source.quoted)))


def _open_rejects(spark: SparkSession, table: TableName) -> None:
    if schema_of(spark, table) is None:
        create_table(spark, table, fields(REJECT_SCHEMA), {**TABLE_PROPERTIES, STATISTICS: REJECT_STATISTICS})
    elif (why := misfit(spark, table, REJECT_SCHEMA)) is not None:
        raise SinkError(
            f"the rejects cannot be written: {why}", field="rejects", hint="use a table of its own"
        )


def _names_in(spark: SparkSession, source: TableName) -> list[str]:
    """The names of the destinations of fired rows."""
    rows = spark.table(source.quoted).where("kind = 'fired'").select("destination").distinct()
    return [row.destination for row in rows.collect()]


def _route(
    spark: SparkSession,
    source: TableName,
    own: Sequence[TableName],
    folder: str,
    shape: Shape,
    decided: Column,
) -> None:
    """Reads what is new in the outbox, and stores each row with its decision."""
    _, routed, rejects = own
    rows = _routed_rows(_stream_of(spark, source), shape, decided)
    identity = {"outbox": source.plain, "rejects": rejects.plain}
    statistics = {STATISTICS: "route,schedule_id,fired_at"}
    open_written(spark, routed, rows.schema, f"{folder}/router", identity, statistics)
    _start(rows, routed, f"{folder}/router").awaitTermination()


def _routed_rows(rows: DataFrame, shape: Shape, decided: Column) -> DataFrame:
    """The rows of an outbox as those of ``OUTBOX_routed``: columns of firings and rejects, and ``route``."""
    is_fired, decision_of = F.col("kind") == "fired", F.col("_decision")
    is_refused = is_fired & decision_of["route"].isNull()
    instead = undeliverable(shape) | {"error_message": decision_of["reason"]}
    names = dict.fromkeys((*shape.names, *REJECT_COLUMNS))
    columns = [
        F.when(is_refused, instead[name]).otherwise(F.col(name)).alias(name)
        if name in instead
        else F.col(name)
        for name in names
    ]
    return (
        rows.where("kind != 'status'")
        .withColumn("_decision", F.when(is_fired, decided))
        .select(decision_of["route"].alias("route"), *columns)
    )


def _deliver(
    spark: SparkSession, targets: _Targets, own: Sequence[TableName], folder: str
) -> tuple[str, ...]:
    """Runs the streams of all tables, and that of the rejects; returns the names of the tables.

    Raises:
        SinkError: Some failed; all were tried.
    """
    _, routed, rejects = own
    rows = _stream_of(spark, routed)
    found = spark.table(routed.quoted).select("route").where("route IS NOT NULL").distinct().collect()
    tables = [TableName(*row.route.split(".")) for row in sorted(found)]
    faults = {each.plain: why for each in tables if (why := targets.fault(each)) is not None}
    work = [
        (
            each,
            rows.where(F.col("route") == each.plain).select(*_names_for(targets, each)),
            f"{folder}/tables/{each.catalog}/{each.schema}/{each.table}",
        )
        for each in tables
        if each.plain not in faults
    ]
    work.append((rejects, rows.where("route IS NULL").select(*REJECT_COLUMNS), f"{folder}/rejects"))
    for first in range(0, len(work), _STREAMS_AT_ONCE):
        started: list[tuple[TableName, StreamingQuery]] = []
        for table, part, place in work[first : first + _STREAMS_AT_ONCE]:
            try:
                started.append((table, _start(part, table, place)))
            except AnalysisException as fault:
                faults[table.plain] = _in_short(fault)
        for table, query in started:
            try:
                query.awaitTermination()
            except StreamingQueryException as fault:
                faults[table.plain] = _in_short(fault)
    if faults:
        causes = "; ".join(f"{name}: {why}" for name, why in sorted(faults.items()))
        raise SinkError(
            f"{len(faults)} of {len(tables) + 1} tables could not be written ({causes})",
            hint="repair them and run again: their rows are kept, and are then written",
        )
    return tuple(each.plain for each in tables)


def _names_for(targets: _Targets, table: TableName) -> list[str]:
    without = lacking(targets.spark, table, targets.shape)
    return [name for name in targets.shape.names if name not in without]


def _stream_of(spark: SparkSession, table: TableName) -> DataFrame:
    """The appends to a table; that old rows are removed from it is no change."""
    return spark.readStream.option("skipChangeCommits", "true").table(table.quoted)


def _start(rows: DataFrame, table: TableName, checkpoint: str) -> StreamingQuery:
    return (
        rows.writeStream.format("delta")
        .outputMode("append")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .toTable(table.quoted)
    )


def _in_short(fault: PySparkException) -> str:
    """The first line of an error; those of the server are pages long."""
    return str(fault).strip().partition("\n")[0][:300]
