"""One micro-batch goes to its destinations: :func:`write_batch`, in three steps.

::

    1 check     which destinations can be written at all?          no: their rows become rejects, ``undeliverable``
    2 write     each table, a few at a time, and beside them       a failure: all are tried, then one error names them
                all topics of a cluster at once
    3 rejects   one write for the rejects and the undeliverable    last, so it says that the batch is complete

Exactly once, and at least once
    Spark repeats a batch that was not committed, with the same id and the same rows. A table skips a batch that it holds
    (:meth:`~wheel_udf.destinations.Sink.holds`): Delta is exactly once, table by table. A topic cannot know: Kafka is at least once, and
    a repetition sends its records again, with the same ``fire_id`` in the header ``wheel-fire-id``. One batch may have both.

    What is undeliverable is decided by looking at the destinations, and may look otherwise at a repetition (someone has made the
    missing table meanwhile). Step 3 being last settles it for rejects in a table: if it holds the batch, all of it was written,
    and a repetition writes nothing, to topics neither. A batch without rejects had every row in its place.

    Rejects in a topic settle nothing: a repetition sends them again, and what was undeliverable and has become deliverable
    meanwhile (or the other way round) is sent both ways, as a reject by one try and as a delivery by the other. Tables stay exactly once beside it.

One bad destination is no failed batch: a name no pattern knows, a missing table or topic (nothing is created unless ``create=True``), a
table with other columns. Nor is one bad row, where a topic takes some rows and not others: see :mod:`wheel_udf.kafka_sink`.

Cost: a write is mostly waiting for the driver's own bookkeeping, so several tables are written beside each other, and beside Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyspark import inheritable_thread_target
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from wheel_udf.destinations import (
    OUTCOME,
    REJECT_SCHEMA,
    SOURCE,
    Destinations,
    JointSink,
    LeftOut,
    Sink,
    fields,
    shape_of,
)
from wheel_udf.errors import SinkError
from wheel_udf.secrets import hide

ROWS_PER_FILE: Final = 500_000
"""A destination's rows of one batch go to one file up to this many; 100 MB at 200 bytes a row."""

WRITES_AT_ONCE: Final = 4
"""How many tables of a batch are written beside each other: a commit is mostly waiting for the driver's own bookkeeping."""

_NAMES_TOLD: Final = 5


@dataclass(frozen=True)
class _Task:
    """One write: of a table, or of all topics of a cluster."""

    names: Sequence[str]
    run: Callable[[], LeftOut]


def write_batch(  # noqa: PLR0913  # rows, what is known of them, places, identity: all of them of one batch
    fired_rows: DataFrame,
    reject_rows: DataFrame,
    *,
    rows_to: Mapping[str, int],
    rejected: int,
    destinations: Destinations,
    rejects: Sink,
    app_id: str,
    batch_id: int,
    largest_to: Mapping[str, int] | None = None,
) -> int:
    """Writes one micro-batch, as the module's docstring says. A repetition of the batch changes no table.

    Args:
        fired_rows: Rows of :data:`~wheel_udf.destinations.FIRED_SCHEMA`, ``LEVELED_SCHEMA`` or ``OUTCOME_SCHEMA`` and, if it is there, ``source``; other columns are left
            out. Persisted: read once for each table and once or twice for all topics.
        reject_rows: Rows of :data:`~wheel_udf.destinations.REJECT_SCHEMA`, likewise.
        rows_to: Destination name to number of fired rows in this batch.
        rejected: Number of reject rows in this batch.
        destinations: The allow-list.
        rejects: Where rejects go; its own path or topic, made when it is missing.
        app_id: The checkpoint's.
        batch_id: Of the micro-batch.
        largest_to: Destination name to the bytes of its largest row, or more, as
            :meth:`~wheel_udf.destinations.JointSink.write_all` has it; those that are not in it are looked at.

    Returns:
        How many fired rows were undeliverable (in a repetition of a batch that is complete: rows of unusable tables only).

    Raises:
        SinkError: Destinations that failed, or the rejects cannot be written. The batch may be repeated.
    """
    waiting = {name: rows for name, rows in rows_to.items() if rows}
    if not waiting and not rejected:
        return 0
    spark = fired_rows.sparkSession
    sinks = {name: destinations.resolve(name) for name in waiting}
    checked = {name: _refusal(fired_rows, sink, name, app_id, batch_id) for name, sink in sinks.items()}
    reasons = {name: reason for name, reason in checked.items() if reason is not None}
    refused = 0
    # A series of its own: the table of the rejects may be a destination of somebody's, too.
    series = f"{app_id}-rejects"
    if not rejects.holds(spark, None, app_id=series, batch_id=batch_id):
        fired = _with_source(fired_rows)
        usable = {name: sink for name, sink in sinks.items() if sink is not None and name not in reasons}
        tasks = _table_tasks(fired, usable, waiting, app_id, batch_id)
        tasks += _joint_tasks(fired, usable, waiting, largest_to)
        left_out = _run_all(spark, tasks, batch_id)
        reasons |= {name: reason for left in left_out for name, reason in left.reasons.items()}
        refused = sum(left.row_count for left in left_out)
        if reasons or refused or rejected:
            rows = _with_undeliverable(reject_rows, fired, reasons, left_out)
            _write_rejects(rows, rejects, series, batch_id)
    return refused + sum(waiting[name] for name in reasons)


def _with_source(fired_rows: DataFrame) -> DataFrame:
    return (
        fired_rows
        if SOURCE in fired_rows.columns
        else fired_rows.withColumn(SOURCE, F.lit(None).cast("string"))
    )


def _refusal(rows: DataFrame, sink: Sink | None, name: str, app_id: str, batch_id: int) -> str | None:
    """Why a destination cannot get its rows of the batch; None if it can, or has them from an earlier try."""
    if sink is None:
        return "no destination of the allow-list matches"
    if isinstance(sink, JointSink):  # looks at all of its destinations at once, when it writes
        return None
    spark = rows.sparkSession
    reason = sink.missing_reason(spark, name, shape_of(rows))
    if reason is None or sink.holds(spark, name, app_id=app_id, batch_id=batch_id):
        return None
    return reason


def _table_tasks(
    fired: DataFrame, sinks: Mapping[str, Sink], waiting: Mapping[str, int], app_id: str, batch_id: int
) -> list[_Task]:
    def task(name: str, sink: Sink) -> _Task:
        rows = shape_of(fired).projection.select(fired.where(F.col("destination") == name))
        rows = _in_order(rows, waiting[name])
        return _Task([name], partial(_write_table, sink, rows, name, app_id, batch_id))

    return [task(name, sink) for name, sink in sinks.items() if not isinstance(sink, JointSink)]


def _joint_tasks(
    fired: DataFrame,
    sinks: Mapping[str, Sink],
    waiting: Mapping[str, int],
    largest_to: Mapping[str, int] | None,
) -> list[_Task]:
    rows_by_sink: dict[JointSink, dict[str, int]] = {}
    for name, sink in sinks.items():
        if isinstance(sink, JointSink):
            rows_by_sink.setdefault(sink, {})[name] = waiting[name]
    return [
        _Task(list(rows_to), partial(sink.write_all, fired, rows_to, largest_to=largest_to))
        for sink, rows_to in rows_by_sink.items()
    ]


def _in_order(frame: DataFrame, rows: int) -> DataFrame:
    """One file, sorted; a large batch several, each a range of the order."""
    files = -(-rows // ROWS_PER_FILE)
    shape = shape_of(frame)
    spread = frame.coalesce(1) if files <= 1 else frame.repartitionByRange(files, *shape.order)
    return shape.oldest_first.sort_within_partitions(spread)


def _write_table(sink: Sink, rows: DataFrame, name: str, app_id: str, batch_id: int) -> LeftOut:
    """Writes the rows; leaves them out if the destination has become unwritable since it was checked."""
    try:
        sink.write(rows, name, app_id=app_id, batch_id=batch_id)
    except Exception:
        reason = _refusal(rows, sink, name, app_id, batch_id)
        if reason is None:
            raise
        return LeftOut({name: reason})
    return LeftOut({})


def _run_all(spark: SparkSession, tasks: Sequence[_Task], batch_id: int) -> list[LeftOut]:
    """Runs all writes, a few beside each other; what each has left out.

    Raises:
        SinkError: Some failed; all were tried.
    """
    if not tasks:
        return []
    faults: list[tuple[_Task, Exception]] = []
    done: list[LeftOut] = []
    with ThreadPoolExecutor(WRITES_AT_ONCE, thread_name_prefix="wheel-sink") as pool:
        # Wrapped one by one: each gets its own copy of the stream's local properties (job group, scheduler pool), which
        # Spark writes to while it runs; a shared copy would mix up the ids of queries that run beside each other.
        running = [(task, pool.submit(inheritable_thread_target(spark)(task.run))) for task in tasks]
        for task, future in running:
            try:
                done.append(future.result())
            except Exception as fault:  # noqa: BLE001  # raised below, together with those of the other writes
                faults.append((task, fault))
    if faults:
        failed, names = (sum(len(task.names) for task in some) for some in ([t for t, _ in faults], tasks))
        said = "; ".join(f"{_named(task.names)}: {_in_short(fault)}" for task, fault in faults)
        what = f"{failed} of {names} destinations of batch {batch_id} could not be written ({said})"
        hint = "once that is repaired, a restart writes what is missing of the batch"
        raise SinkError(what, hint=hint) from faults[0][1]
    return done


def _named(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_TOLD
    return ", ".join(names[:_NAMES_TOLD]) + (f" and {more} more" if more > 0 else "")


def _with_undeliverable(
    reject_rows: DataFrame, fired: DataFrame, reasons: Mapping[str, str], left_out: Sequence[LeftOut]
) -> DataFrame:
    rows = reject_rows.select(*fields(REJECT_SCHEMA).fieldNames())
    if reasons:
        # A join and no expression: users name destinations, and thousands of branches would be too much for Spark's planner.
        told_why = fired.sparkSession.createDataFrame(
            [(name, hide(reason)) for name, reason in reasons.items()],
            "destination string, error_message string",
        )
        rows = rows.unionByName(_undeliverable(fired.join(F.broadcast(told_why), "destination")))
    for left in left_out:
        if left.rows is not None:
            rows = rows.unionByName(_undeliverable(left.rows))
    return rows


def _undeliverable(explained: DataFrame) -> DataFrame:
    """Fired rows with their ``error_message`` as reject rows. The payload stands in its own columns and not once more in the record."""
    shape = shape_of(explained)
    style = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "timeZone": "UTC"}
    named: dict[str, Column] = {
        "error_code": F.lit("undeliverable"),
        "record": F.to_json(F.struct(*shape.record), style),
        # The row's own instant and no other clock: a repetition writes the same.
        "rejected_at": F.col("decided_at" if shape == OUTCOME else "fired_at"),
    }
    if shape == OUTCOME:
        named |= {"schedule_id": F.col("op_id"), "seq": F.lit(None).cast("long"), "deliver_at": F.col("at")}
    names = fields(REJECT_SCHEMA).fieldNames()
    return explained.select(*(named.get(name, F.col(name)).alias(name) for name in names))


def _write_rejects(rows: DataFrame, rejects: Sink, app_id: str, batch_id: int) -> None:
    reason = rejects.missing_reason(rows.sparkSession, None)
    if reason is not None:
        raise SinkError(
            f"the rejects cannot be written, {reason}", field="rejects", hint="use a path or topic of its own"
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
    return hide((telling or lines or [type(fault).__name__])[0])[:300]
