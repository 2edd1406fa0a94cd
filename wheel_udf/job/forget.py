"""The verb ``forget``: removes stored data about ids, and reports what is left where.

::

    wheel-udf forget --config FILE --id ID [--id ID]... [--dry-run]

    place                                rows  left
    checkpoint data/checkpoints/orders      2  nothing: written anew
    store data/store                        3  nothing: written anew
    record of acts                          1  nothing: the texts that had an id
    table data/tables/orders                1  older versions, until VACUUM and the log's retention
    table data/rejects                      0  nothing in its newest version
    topic orders-late at localhost:9092     -  all, until the topic's retention is over
    source orders-in                        -  all: sources are not changed; what is not read yet is taken as new
    elsewhere                               -  copies of the checkpoint, exports, backups, logs
    then: VACUUM delta.`data/tables/orders` RETAIN 168 HOURS

Contract

1. The checkpoint and the store of a stopped job: :mod:`wheel_udf.transfer.forgetting`. If the job runs, they are left,
   the other places are done, and the exit code is 1.
2. Delta tables of the destinations and the rejects that the config names: their rows are removed by one commit each,
   also while the job runs. Appends of the job do not conflict with it. The files of older versions hold the rows until
   VACUUM; a table with deletion vectors keeps them even in the files of the newest version, until REORG TABLE ... APPLY
   (PURGE).
3. All other places are named and left: files of sinks, topics, databases, webhooks, own sinks, sources, copies.
4. ``--dry-run`` counts and changes nothing. Repeating it is safe, also after a kill.

An id is a ``schedule_id``; of a purgatory an ``op_id``, and the key or group of events. A row of the rejects whose
command could not be read has no id: it is counted if its text contains one, and left. What other rows say about an id
in their values is not searched.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from delta.tables import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, functions as F

from wheel_udf.common.errors import LeaseError
from wheel_udf.common.paths import as_pattern
from wheel_udf.common.progress import PrintLine
from wheel_udf.job.compose import SUCCESS, check_config_checkpoint, pending_work_of
from wheel_udf.job.models.purgatory import AnyConfig, PurgatoryConfig
from wheel_udf.job.models.scheduler import TieredConfig
from wheel_udf.job.models.sink import AnySink, DeltaSinkConfig
from wheel_udf.job.moves import imported
from wheel_udf.job.named import located
from wheel_udf.job.repair import tables_of
from wheel_udf.job.sessions import session
from wheel_udf.sinks.catalog_sink import CatalogTableSink
from wheel_udf.spark.failures import quiet_sql
from wheel_udf.spark.files import local_folder, open_folder
from wheel_udf.tables import delta_log
from wheel_udf.transfer.content import ACTS
from wheel_udf.transfer.forgetting import STORED, finish_forgetting, forget_ids, held_of
from wheel_udf.transfer.id_rows import ID, frame_of_ids, rows_of_ids

LEFT: Final = 1
"""The exit code if the checkpoint was left because the job runs."""

_FOLDERS: Final = ("delta", "parquet", "json", "csv")
_REMOTE: Final[Mapping[str, str]] = {
    "kafka": "all, until the topic's retention is over; a compacted topic: until its key gets a null value",
    "iceberg": "all: DELETE FROM the table WHERE schedule_id = ...; older snapshots, until they expire",
    "jdbc": "all: delete the rows with this schedule_id in the database",
    "http": "all that its receiver has kept",
}
_OWN_SINK: Final = "all: this sink is one of your own"
_VERSIONS: Final = "older versions, until VACUUM and the log's retention (delta.logRetentionDuration)"
_VECTORS: Final = "delta.enableDeletionVectors"
_ELSEWHERE: Final = "exports, backups, logs, temporary folders of processes that were killed"


@dataclass(frozen=True)
class Line:
    """A line of the report.

    Attributes:
        place: The place.
        rows: Number of rows that were found, and removed unless they are left; None if it is not known.
        left: What is left, and until when.
        then: A command that removes the rest.
    """

    place: str
    rows: int | None
    left: str
    then: tuple[str, ...] = ()


def execute(config: AnyConfig, asked: argparse.Namespace, print_line: PrintLine) -> int:
    """Executes the verb.

    Returns:
        0; 1 if the job runs, so that its checkpoint is left.

    Raises:
        ActError: An id is empty or not UTF-8.
        TransferError: A batch is not finished: run the job once more.
        WheelError: The checkpoint, the store or a table cannot be used.
    """
    # With the session that a run has: the first batch of a checkpoint fixes some of its settings.
    with quiet_sql(), session(config.name, config.checkpoint) as spark:
        config = located(spark, config)
        ids = frame_of_ids(spark, asked.id)
        lines, runs = _of_job(spark, config, asked)
        lines += _of_sinks(spark, config, ids, dry_run=asked.dry_run)
        lines += [*lines_of_sources(config), *lines_of_copies(config)]
    for text in report(lines):
        print_line(text)
    if asked.dry_run:
        print_line("dry run: nothing was changed")
    elif runs:
        print_line("not all is removed: stop the job, and run this again")
    return LEFT if runs and not asked.dry_run else SUCCESS


def report(lines: Iterable[Line]) -> Iterator[str]:
    """Yields the lines as texts, in columns, and then the commands."""
    lines = list(lines)
    wide = max(len(line.place) for line in lines)
    yield f"{'place':<{wide}}  {'rows':>6}  left"
    for line in lines:
        rows = "-" if line.rows is None else f"{line.rows:,}"
        yield f"{line.place:<{wide}}  {rows:>6}  {line.left}"
    for command in dict.fromkeys(each for line in lines for each in line.then):
        yield f"then: {command}"


# --- the checkpoint and the store -----------------------------------------------------------------


def _of_job(spark: SparkSession, config: AnyConfig, asked: argparse.Namespace) -> tuple[list[Line], bool]:
    """The lines of the checkpoint and the store, and whether the job runs."""
    if not open_folder(config.checkpoint).names():
        return [Line(f"checkpoint {config.checkpoint}", 0, "nothing: there is none")], False
    store = config.store.folder if isinstance(config, TieredConfig) else None
    begin = partial(imported, spark, config)
    try:
        if not asked.dry_run:
            finish_forgetting(config.checkpoint, begin, store=store)
        check_config_checkpoint(spark, config)
        if not asked.dry_run:
            rows = forget_ids(spark, config.checkpoint, asked.id, begin, store=store)
            return _job_lines(config, rows, "nothing: written anew"), False
        left, runs = "nothing: it is to be written anew, while the job is stopped", False
    except LeaseError:
        left, runs = "all: the job runs", True
    return _job_lines(config, held_of(spark, pending_work_of(spark, config), asked.id), left), runs


def _job_lines(config: AnyConfig, rows: Mapping[str, int], left: str) -> list[Line]:
    in_state = sum(count for name, count in rows.items() if name not in (ACTS, STORED))
    kept = "; operations of other ids keep keys of this name" if isinstance(config, PurgatoryConfig) else ""
    lines = [Line(f"checkpoint {config.checkpoint}", in_state, f"{left}{kept}")]
    if isinstance(config, TieredConfig):
        lines.append(Line(f"store {config.store.place}", rows.get(STORED, 0), left))
    return [*lines, Line("record of acts", rows.get(ACTS, 0), left)]


# --- what was written -----------------------------------------------------------------------------


def _of_sinks(spark: SparkSession, config: AnyConfig, ids: DataFrame, *, dry_run: bool) -> list[Line]:
    column = "op_id" if isinstance(config, PurgatoryConfig) else "schedule_id"
    sinks: list[tuple[str | None, AnySink, str]] = [
        *((pattern, sink, column) for pattern, sink in config.destinations.items()),
        (None, config.rejects, "schedule_id"),
    ]
    lines: dict[str, Line] = {}
    for pattern, sink, id_column in sinks:
        for line in _of_sink(spark, sink, pattern, ids, id_column, dry_run=dry_run):
            lines.setdefault(line.place, line)
    return list(lines.values())


def _of_sink(
    spark: SparkSession, sink: AnySink, pattern: str | None, ids: DataFrame, column: str, *, dry_run: bool
) -> Iterator[Line]:
    if isinstance(sink, DeltaSinkConfig) and sink.table is not None:
        yield from _of_named(spark, CatalogTableSink(sink.table), pattern, ids, column, dry_run=dry_run)
        return
    if sink.sink not in _FOLDERS:
        of = f"destination {pattern}: " if pattern is not None else "rejects: "
        yield Line(f"{of}{sink.sink} {sink.shown}", None, _REMOTE.get(sink.sink, _OWN_SINK))
        return
    assert sink.place is not None, "it has a path"
    is_delta = sink.sink == "delta"
    for place in tables_of(pattern, sink.place):
        rows = _table(spark, place) if is_delta else _files(spark, sink.sink, place)
        if rows is None:
            continue
        count = rows_of_ids(rows, ids, column).count() if column in rows.columns else None
        unread = _without_id(rows, ids, column)
        if not is_delta:
            left = "all: files are not changed" if count or count is None else "nothing"
            line = Line(f"{sink.sink} {place}", count, left)
        else:
            if count and not dry_run:
                same = F.col(f"kept.{column}") == F.col(f"forgotten.{ID}")
                table = DeltaTable.forPath(spark, place).alias("kept")
                table.merge(ids.alias("forgotten"), same).whenMatchedDelete().execute()
            properties = delta_log.snapshot(place).properties()
            line = table_line(place, count, vectors=properties.get(_VECTORS, "").lower() == "true")
        yield line
        if unread:
            yield Line(f"{line.place}, rows without an id", unread, "all: their texts contain one of the ids")


def _of_named(
    spark: SparkSession,
    sink: CatalogTableSink,
    pattern: str | None,
    ids: DataFrame,
    column: str,
    *,
    dry_run: bool,
) -> Iterator[Line]:
    """The lines of the tables of a catalog."""
    for name, table in sink.found(spark, pattern):
        rows = spark.table(name.sql)
        count = rows_of_ids(rows, ids, column).count() if column in rows.columns else None
        unread = _without_id(rows, ids, column)
        if count and not dry_run:
            same = F.col(f"kept.{column}") == F.col(f"forgotten.{ID}")
            kept = DeltaTable.forName(spark, name.sql).alias("kept")
            kept.merge(ids.alias("forgotten"), same).whenMatchedDelete().execute()
        vectors = table.state.properties().get(_VECTORS, "").lower() == "true"
        line = table_line(str(name), count, vectors=vectors, quoted=name.sql)
        yield line
        if unread:
            yield Line(f"{line.place}, rows without an id", unread, "all: their texts contain one of the ids")


def _table(spark: SparkSession, place: str) -> DataFrame | None:
    if delta_log.snapshot(place).version < 0:
        return None
    return spark.read.format("delta").load(place)


def _files(spark: SparkSession, kind: str, place: str) -> DataFrame | None:
    options = {"header": "true", "recursiveFileLookup": "true"}
    try:
        return spark.read.options(**options).format(kind).load(as_pattern(place))
    except AnalysisException:  # a folder without files has no columns
        return None


def table_line(place: str, count: int | None, *, vectors: bool, quoted: str | None = None) -> Line:
    """What is to be said about a table; `quoted` is its name for Spark, if it is in a catalog."""
    name = f"table {place}"
    if count is None:
        return Line(name, None, "all: it has no column with the id")
    if not count:
        return Line(name, 0, "nothing in its newest version")
    quoted = quoted or f"delta.`{place.replace('`', '``')}`"
    vacuum = f"VACUUM {quoted} RETAIN 168 HOURS"
    if not vectors:
        return Line(name, count, _VERSIONS, (vacuum,))
    left = f"its files, until REORG ... APPLY (PURGE); {_VERSIONS}"
    return Line(name, count, left, (f"REORG TABLE {quoted} APPLY (PURGE)", vacuum))


def _without_id(rows: DataFrame, ids: DataFrame, column: str) -> int:
    """Number of rejects that have no id, but a text that contains one, as it is or as JSON writes it."""
    columns = [name for name in ("record", "key", "value", "headers") if name in rows.columns]
    if column not in rows.columns or "record" not in columns:
        return 0
    text = F.concat_ws("\n", *(rows[name].cast("string") for name in columns))
    as_json = F.to_json(F.struct(ids[ID].alias("i")))  # {"i":"..."}
    escaped = F.substring(as_json, F.lit(7), F.length(as_json) - 8)
    same = F.contains(text, ids[ID]) | F.contains(text, escaped)
    return rows.where(F.col(column).isNull()).join(F.broadcast(ids), same, "left_semi").count()


# --- what is left ---------------------------------------------------------------------------------


def lines_of_sources(config: AnyConfig) -> Iterator[Line]:
    """What is to be said about the sources."""
    for topic in sorted(config.level_topics):
        yield Line(f"source {topic}", None, "all: sources are not changed")
    for source in config.sources.values():
        name = (
            getattr(source, "place", None) or ", ".join(getattr(source, "topic_names", ())) or source.format
        )
        left = "all: sources are not changed; what is not read yet is taken as new"
        yield Line(f"source {name}", None, left)


def lines_of_copies(config: AnyConfig) -> Iterator[Line]:
    """What is to be said about copies of tables and folders."""
    folder = local_folder(config.checkpoint)
    if folder is not None:
        # Of the tiered mode, the parts of the checkpoint are repaired.
        copies = [each for each in folder.glob("*-repaired-*") if isinstance(config, TieredConfig)]
        copies += [each for each in folder.parent.glob("*-repaired-*") if each.name.startswith(folder.name)]
        for copy in sorted(copies):
            yield Line(f"copy {copy}", None, "all: what a repair has taken out; delete the folder")
    yield Line("elsewhere", None, _ELSEWHERE)
