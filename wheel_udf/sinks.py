"""Where rows go that have left the wheel: tables and files by destination, and the rejects.

One micro-batch has rows for several destinations. :func:`write_batch` brings them there in three steps::

    1 check     which destinations can be written at all?          no: their rows become rejects, ``undeliverable``
    2 write     each of the others, a few at a time                a failure: all are tried, then one error names them
    3 rejects   one commit for the rejects and the undeliverable    last, so it says that the batch is complete

Exactly once
    Spark repeats a batch that was not committed, with the same id and the same rows. Each Delta commit carries
    (``app_id``, ``batch_id``) as its transaction, in the same atomic commit as the data and, where the table is new, as its
    creation; Delta skips a transaction that a table already holds. Tables are idempotent one by one, not atomic together:
    between two of them a reader may see a batch in one and not yet in the other.

    What is undeliverable is decided by looking at the tables, and may look otherwise at a repetition (someone has made the
    missing table meanwhile). Step 3 being last settles it: if the rejects hold the batch, all of it was written, and a
    repetition writes nothing. A batch without rejects had every row in its table.

One bad destination is no failed batch: a name no pattern knows, a missing table (nothing is created unless
``create=True``), a table with other columns. What depends on the data of a row and not on the table (a CHECK constraint, a
NOT NULL column that we may leave null) would fail the same batch again and again: such tables are refused as a whole.

Cost: a commit is mostly the driver's and Delta's own bookkeeping (0.2 to 0.3 s warm on 2 busy cores for 1,000 rows, see
:mod:`wheel_udf.tables`), so several tables are written beside each other. A table that was found sound is not looked at again, but for its existence.

Caveats: a batch makes one file in each table it writes (more above half a million rows), so a table written every second
wants an OPTIMIZE now and then; that, VACUUM and other writers' appends are no conflict for appends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, Protocol

from pyspark import inheritable_thread_target
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from wheel_udf import tables
from wheel_udf.errors import ConfigError, SinkError
from wheel_udf.tables import NAME_RULE, is_destination_name, place_of

_HEADERS: Final = "headers array<struct<key: string, value: binary>>"
FIRED_SCHEMA: Final = (
    "schedule_id string, seq bigint, fire_id string, destination string, key binary, value binary, "
    f"{_HEADERS}, deliver_at timestamp, fired_at timestamp, lateness_ms bigint"
)
"""Columns of a destination's table, as DDL."""
REJECT_SCHEMA: Final = (
    "error_code string, error_message string, record string, source string, schedule_id string, seq bigint, "
    f"destination string, key binary, value binary, {_HEADERS}, deliver_at timestamp, rejected_at timestamp"
)
"""Columns of the rejects, as DDL."""

TABLE_PROPERTIES: Final[Mapping[str, str]] = {
    # Each checkpoint of the log is a latency spike; at the default of 10 every tenth batch has one. A new reader
    # replays up to this many small commits instead.
    "delta.checkpointInterval": "100",
    # A commit a second is 86,400 log files a day. A consumer may be away for a week, and files of tables stay readable.
    "delta.logRetentionDuration": "interval 7 days",
}
"""Properties of the tables that are made here; those of existing tables are left alone."""

# What is looked up by. Statistics on payloads help nobody and cost in every commit.
_STATISTICS: Final = "delta.dataSkippingStatsColumns"
_FIRED_STATISTICS: Final = {_STATISTICS: "schedule_id,seq,deliver_at,fired_at"}
_REJECT_STATISTICS: Final = {_STATISTICS: "error_code,schedule_id,destination,rejected_at"}

ROWS_PER_FILE: Final = 500_000
"""A destination's rows of one batch go to one file up to this many; 100 MB at 200 bytes a row."""

TABLES_AT_ONCE: Final = 4
"""How many tables of a batch are written beside each other: a commit is mostly waiting for the driver's own bookkeeping."""

_PATTERN: Final = re.compile(r"[A-Za-z0-9._*?-]{1,249}")
_FORMATS: Final = ("parquet", "json", "csv")
_MAY_BE_NULL: Final = frozenset({"key", "value", "headers"})  # of a fired row; of a reject everything may


def _fields(ddl: str) -> T.StructType:
    parsed = T.DataType.fromDDL(ddl)
    assert isinstance(parsed, T.StructType), ddl
    return parsed


def _columns(destination: str | None) -> tuple[T.StructType, frozenset[str]]:
    """The columns of a destination's rows (of the rejects' for None), and which of them always have a value."""
    if destination is None:
        return _fields(REJECT_SCHEMA), frozenset()
    columns = _fields(FIRED_SCHEMA)
    return columns, frozenset(columns.fieldNames()) - _MAY_BE_NULL


class Sink(Protocol):
    """Where rows are written. A destination of None is the sink's own path as the one table; that is what rejects use."""

    def missing_reason(self, spark: SparkSession, destination: str | None) -> str | None:
        """Why rows for this destination cannot be written, as a clause; None if they can."""

    def write(self, frame: DataFrame, destination: str | None, *, app_id: str, batch_id: int) -> None:
        """Writes rows; a second time with the same `app_id` and `batch_id` changes nothing.

        Args:
            frame: Rows of :data:`FIRED_SCHEMA`, or of :data:`REJECT_SCHEMA` if `destination` is None.
            destination: The destination's name.
            app_id: Id of the series of batches; a checkpoint's own.
            batch_id: Number of the batch, rising in a series.

        Raises:
            SinkError: The destination cannot be written.
        """

    def holds(self, spark: SparkSession, destination: str | None, *, app_id: str, batch_id: int) -> bool:
        """Whether the batch has been written there completely."""


@dataclass(frozen=True)
class DeltaSink:
    """A Delta table for each destination, at ``<path>/<destination>``. Exactly once.

    Attributes:
        path: The folder of the tables: a local path or any URI that Spark knows. (For rejects: the table itself.)
        create: Make tables that are missing, with :data:`TABLE_PROPERTIES`; else their rows are undeliverable. The table
            of the rejects is always made.
    """

    path: str
    create: bool = False
    _sound: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def missing_reason(self, spark: SparkSession, destination: str | None) -> str | None:
        """See :meth:`Sink.missing_reason`: a bad name, no table, not a Delta table, other columns."""
        try:
            place = place_of(self.path, destination)
        except SinkError as fault:
            return str(fault)
        if destination is not None and tables.has_log(spark, self.path):
            return f"the folder of the tables, {self.path}, is a table itself"
        if not self._stands(spark, place):
            return self._absence(spark, destination, place)
        if place in self._sound:
            return None
        misfit = tables.contradiction(tables.snapshot(spark, place), *_columns(destination))
        if misfit is None:
            self._sound.add(place)
        return f"the table {place} does not fit: {misfit}" if misfit else None

    def write(self, frame: DataFrame, destination: str | None, *, app_id: str, batch_id: int) -> None:
        """See :meth:`Sink.write`."""
        place = place_of(self.path, destination)
        stands = self._stands(frame.sparkSession, place)
        if not stands and not self._creates(destination):
            raise SinkError("the table is missing", field=place, hint="make it, or say create: true")
        try:
            if stands:
                tables.append(frame, place, *_columns(destination), app_id=app_id, batch_id=batch_id)
            else:
                transaction = {"txnAppId": app_id, "txnVersion": str(batch_id), "mergeSchema": "false"}
                statistics = _REJECT_STATISTICS if destination is None else _FIRED_STATISTICS
                options = {**transaction, **TABLE_PROPERTIES, **statistics}
                frame.write.format("delta").mode("append").options(**options).save(place)
        except Exception:
            self._sound.discard(place)
            raise

    def holds(self, spark: SparkSession, destination: str | None, *, app_id: str, batch_id: int) -> bool:
        """See :meth:`Sink.holds`; the table's log knows."""
        try:
            place = place_of(self.path, destination)
        except SinkError:
            return False
        if not tables.has_log(spark, place):
            return False
        last = tables.last_transaction(tables.snapshot(spark, place), app_id)
        return last is not None and last >= batch_id

    def _stands(self, spark: SparkSession, place: str) -> bool:
        """Whether a table is there; a log without a commit is none (a first write that was killed leaves one)."""
        if not tables.has_log(spark, place):
            self._sound.discard(place)
            return False
        return place in self._sound or tables.snapshot(spark, place).version() >= 0

    def _creates(self, destination: str | None) -> bool:
        return self.create or destination is None

    def _absence(self, spark: SparkSession, destination: str | None, place: str) -> str | None:
        """Why it is a fault that no table is there; None if one will be made."""
        creates = self._creates(destination)
        if tables.is_foreign(spark, place, or_leftovers=not creates):
            return f"{place} is not a Delta table"
        return None if creates else f"the table {place} is missing"


@dataclass(frozen=True)
class FileSink:
    """Files, for a first look: the rows of a batch in the folder ``<path>/<destination>/run=<app_id>/batch=<batch_id>``.

    The guarantee: once a batch is committed its folder holds exactly its rows, since a repetition of the batch overwrites
    it. It is less than Delta's: who reads while a batch is being written may see part of it or, while one is repeated,
    nothing of it; and a batch that failed for good leaves what it had written.

    Parquet keeps the types. JSON has binary as base64 and instants as ISO 8601 text. CSV is text with a header line: key
    and value are base64, headers a JSON array with base64 values; null and an empty string look the same there.

    Attributes:
        path: The folder of the folders. (For rejects: their own folder.)
        format: parquet, json or csv.
    """

    path: str
    format: str = "parquet"

    def __post_init__(self) -> None:
        if self.format not in _FORMATS:
            raise ConfigError(
                "an unknown file format", field="format", value=self.format, rule="parquet, json or csv"
            )

    def missing_reason(self, spark: SparkSession, destination: str | None) -> str | None:
        """See :meth:`Sink.missing_reason`: only a bad name; folders are made as they are needed."""
        try:
            place = place_of(self.path, destination)
        except SinkError as fault:
            return str(fault)
        return f"{place} is a Delta table" if tables.has_log(spark, place) else None

    def write(self, frame: DataFrame, destination: str | None, *, app_id: str, batch_id: int) -> None:
        """See :meth:`Sink.write`."""
        rows = _as_text(frame) if self.format == "csv" else frame
        writer = rows.write.format(self.format).mode("overwrite")
        if self.format == "csv":
            writer = writer.option("header", "true")
        writer.save(self._folder(destination, app_id, batch_id))

    def holds(self, spark: SparkSession, destination: str | None, *, app_id: str, batch_id: int) -> bool:
        """See :meth:`Sink.holds`; Spark marks a folder that is complete."""
        if self.missing_reason(spark, destination) is not None:
            return False
        return tables.exists(spark, f"{self._folder(destination, app_id, batch_id)}/_SUCCESS")

    def _folder(self, destination: str | None, app_id: str, batch_id: int) -> str:
        return f"{place_of(self.path, destination)}/run={app_id}/batch={batch_id}"


class Destinations:
    """The allow-list: which names may be written, and where. The first pattern that matches decides.

    Args:
        table: Names or patterns (``*`` any text, ``?`` one character, case counts) to sinks, in order.

    Attributes:
        patterns: The names and patterns, in order.

    Raises:
        ConfigError: Not a pattern that can match a name.
    """

    def __init__(self, table: Mapping[str, Sink]) -> None:
        for pattern in table:
            if not _PATTERN.fullmatch(pattern) or pattern in {".", ".."}:
                rule = f"{NAME_RULE}; * and ? for any"
                raise ConfigError("not a destination pattern", field="destinations", value=pattern, rule=rule)
        self._table = dict(table)
        self.patterns: tuple[str, ...] = tuple(self._table)

    def resolve(self, name: str) -> Sink | None:
        """The sink for a name; None if the name breaks the name rule or no pattern matches it."""
        if not is_destination_name(name):
            return None
        return next((sink for pattern, sink in self._table.items() if fnmatchcase(name, pattern)), None)

    def __iter__(self) -> Iterator[tuple[str, Sink]]:
        """Pattern and sink, in order."""
        return iter(self._table.items())

    def __len__(self) -> int:
        return len(self._table)


def write_batch(
    fired_rows: DataFrame,
    reject_rows: DataFrame,
    *,
    rows_to: Mapping[str, int],
    rejected: int,
    destinations: Destinations,
    rejects: Sink,
    app_id: str,
    batch_id: int,
) -> int:
    """Writes one micro-batch, as the module's docstring says. A repetition of the batch changes nothing.

    Args:
        fired_rows: Rows of :data:`FIRED_SCHEMA`, other columns are left out. Persisted: read once for each destination.
        reject_rows: Rows of :data:`REJECT_SCHEMA`, likewise.
        rows_to: Destination name to number of fired rows in this batch.
        rejected: Number of reject rows in this batch.
        destinations: The allow-list.
        rejects: Where rejects go; its own path is the table, made when it is missing.
        app_id: The checkpoint's.
        batch_id: Of the micro-batch.

    Returns:
        How many fired rows were undeliverable (in a repetition: as the tables stand now).

    Raises:
        SinkError: Destinations that failed, or the rejects cannot be written. The batch may be repeated.
    """
    waiting = {name: rows for name, rows in rows_to.items() if rows}
    if not waiting and not rejected:
        return 0
    spark = fired_rows.sparkSession
    sinks = {name: destinations.resolve(name) for name in waiting}
    checked = {name: _refusal(spark, sink, name, app_id, batch_id) for name, sink in sinks.items()}
    reasons = {name: reason for name, reason in checked.items() if reason is not None}
    # A series of its own: the table of the rejects may be a destination of somebody's, too.
    series = f"{app_id}-rejects"
    if not rejects.holds(spark, None, app_id=series, batch_id=batch_id):
        fired = fired_rows.select(*_fields(FIRED_SCHEMA).fieldNames())

        def deliver(name: str) -> str | None:
            sink = sinks[name]
            assert sink is not None, "a name without a sink has a reason"
            rows = _in_order(fired.where(F.col("destination") == name), waiting[name])
            return _write_or_reason(sink, rows, name, app_id, batch_id)

        reasons |= _write_all(spark, [name for name in waiting if name not in reasons], deliver, batch_id)
        if reasons or rejected:
            _write_rejects(_with_undeliverable(reject_rows, fired, reasons), rejects, series, batch_id)
    return sum(waiting[name] for name in reasons)


def _refusal(spark: SparkSession, sink: Sink | None, name: str, app_id: str, batch_id: int) -> str | None:
    """Why a destination cannot get its rows of the batch; None if it can, or has them from an earlier try."""
    if sink is None:
        return "no destination of the allow-list matches"
    reason = sink.missing_reason(spark, name)
    if reason is None or sink.holds(spark, name, app_id=app_id, batch_id=batch_id):
        return None
    return reason


def _in_order(frame: DataFrame, rows: int) -> DataFrame:
    """One file, sorted; a large batch several, each a range of the order."""
    order = ("deliver_at", "schedule_id", "seq")
    files = -(-rows // ROWS_PER_FILE)
    spread = frame.coalesce(1) if files <= 1 else frame.repartitionByRange(files, *order)
    return spread.sortWithinPartitions(*order)


def _write_or_reason(sink: Sink, rows: DataFrame, name: str, app_id: str, batch_id: int) -> str | None:
    """None if the rows are written; a reason if the destination has become unwritable since it was checked."""
    try:
        sink.write(rows, name, app_id=app_id, batch_id=batch_id)
    except Exception:
        reason = _refusal(rows.sparkSession, sink, name, app_id, batch_id)
        if reason is None:
            raise
        return reason
    return None


def _write_all(
    spark: SparkSession, names: list[str], deliver: Callable[[str], str | None], batch_id: int
) -> dict[str, str]:
    """Delivers to all names, a few beside each other; the reasons of those that turned out to be unwritable."""
    if not names:
        return {}
    faults: dict[str, Exception] = {}
    reasons: dict[str, str] = {}
    with ThreadPoolExecutor(TABLES_AT_ONCE, thread_name_prefix="wheel-sink") as pool:
        # Wrapped one by one: each gets its own copy of the stream's local properties (job group, scheduler pool), which
        # Spark writes to while it runs; a shared copy would mix up the ids of queries that run beside each other.
        tasks = {name: pool.submit(inheritable_thread_target(spark)(deliver), name) for name in names}
        for name, task in tasks.items():
            try:
                reason = task.result()
            except Exception as fault:  # noqa: BLE001  # raised below, together with those of the other tables
                faults[name] = fault
            else:
                reasons |= {} if reason is None else {name: reason}
    if faults:
        said = "; ".join(f"{name}: {_in_short(fault)}" for name, fault in faults.items())
        what = f"{len(faults)} of {len(names)} destinations of batch {batch_id} could not be written ({said})"
        hint = "once that is repaired, a restart writes what is missing of the batch"
        raise SinkError(what, hint=hint) from next(iter(faults.values()))
    return reasons


def _with_undeliverable(reject_rows: DataFrame, fired: DataFrame, reasons: Mapping[str, str]) -> DataFrame:
    names = _fields(REJECT_SCHEMA).fieldNames()
    rows = reject_rows.select(*names)
    return rows.unionByName(_undeliverable(fired, reasons)) if reasons else rows


def _undeliverable(fired: DataFrame, reasons: Mapping[str, str]) -> DataFrame:
    """Fired rows as reject rows. The payload stands in its own columns and not once more in the record."""
    # A join and no expression: users name destinations, and thousands of branches would be too much for Spark's planner.
    told_why = fired.sparkSession.createDataFrame(
        list(reasons.items()), "destination string, error_message string"
    )
    told = ("schedule_id", "seq", "fire_id", "destination", "deliver_at", "fired_at", "lateness_ms")
    style = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "timeZone": "UTC"}
    named: dict[str, Column] = {
        "error_code": F.lit("undeliverable"),
        "record": F.to_json(F.struct(*told), style),
        "source": F.lit(None).cast("string"),
        # The firing's own instant and no other clock: a repetition writes the same.
        "rejected_at": F.col("fired_at"),
    }
    names = _fields(REJECT_SCHEMA).fieldNames()
    chosen = fired.join(F.broadcast(told_why), "destination")
    return chosen.select(*(named.get(name, F.col(name)).alias(name) for name in names))


def _write_rejects(rows: DataFrame, rejects: Sink, app_id: str, batch_id: int) -> None:
    reason = rejects.missing_reason(rows.sparkSession, None)
    if reason is not None:
        raise SinkError(
            f"the rejects cannot be written, {reason}", field="rejects", hint="use a path of its own"
        )
    ordered = rows.coalesce(1).sortWithinPartitions("rejected_at", "schedule_id", "seq")
    try:
        rejects.write(ordered, None, app_id=app_id, batch_id=batch_id)
    except Exception as fault:
        what = f"the rejects of batch {batch_id} could not be written ({_in_short(fault)})"
        raise SinkError(what, field="rejects") from fault


def _in_short(fault: Exception) -> str:
    """The first telling line: a JVM's message goes on for pages."""
    lines = [line.strip(" :") for line in str(fault).splitlines() if line.strip(" :")]
    telling = [line for line in lines if not line.startswith("An error occurred while calling")]
    return (telling or lines or [type(fault).__name__])[0][:300]


def _as_text(frame: DataFrame) -> DataFrame:
    """What CSV can hold: bytes as base64, arrays as JSON (in which Spark writes bytes as base64 too)."""

    def text(column: T.StructField) -> Column:
        if isinstance(column.dataType, T.BinaryType):
            return F.base64(column.name).alias(column.name)
        if isinstance(column.dataType, T.ArrayType):
            return F.to_json(column.name).alias(column.name)
        return F.col(column.name)

    return frame.select(*(text(column) for column in frame.schema))
