"""Writes one micro-batch to its destinations: :func:`write_batch`, in three steps.

::

    1 check     can each destination be written at all?        no: its rows become rejects, ``undeliverable``
    2 write     several tables at the same time, and all       on failure: all are tried, then one error names the
                topics of a cluster in one write beside them   failed ones
    3 rejects   one write for rejects and undeliverable rows   last, so it marks the batch as complete

Spark repeats a batch that was not committed, with the same id and the same rows. A table skips a batch that it has:
Delta is exactly once, table by table. Kafka is at least once, with the same ``fire_id``.

Which rows are undeliverable depends on the destinations at the time of the check, and may differ in a repetition.
Rejects in a table make this consistent: if it has the batch, all of the batch was written, and a repetition writes
nothing. Rejects in a topic do not: a row whose destination has become writable meanwhile (or the other way round) is
sent both ways. A batch without rejects has no such mark, and needs none.

Of destinations that are tried again (`returns`), rows that could not be delivered come back to the wheel, and a write
that fails as a whole does not fail the batch, unless it is to tables, which are exactly once.

A bad destination does not fail the batch: a name that no pattern matches, a missing table or topic, a table with other
columns. Nor does a bad row, where the sink can name it (:mod:`wheel_udf.sinks.kafka_sink`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession, functions as F

from wheel_udf.common.errors import LeaseError, SinkError
from wheel_udf.common.secrets import hide
from wheel_udf.sinks.destinations import (
    FIRED,
    Destinations,
    JointSink,
    LeftOut,
    Refusal,
    Shape,
    Sink,
    undeliverable,
    with_source,
)
from wheel_udf.stream.outputs import REJECT_COLUMNS

ROWS_PER_FILE: Final = 500_000
"""Up to this many rows of a destination go to one file in a batch (100 MB at 200 bytes a row)."""

WRITES_AT_ONCE: Final = 4
"""How many tables of a batch are written at the same time; a commit mostly waits for the driver's bookkeeping."""

_log = logging.getLogger(__name__)

_NAMES_SHOWN: Final = 5


@dataclass(frozen=True)
class _Batch:
    """The shape of a batch's fired rows, and the identity under which they are written."""

    shape: Shape
    app_id: str
    batch_id: int
    require_lease: Callable[[], None]


class Returns(Protocol):
    """What takes the rows that come back to the wheel (:mod:`wheel_udf.delivery.returns`)."""

    def takes(self, destination: str) -> bool:
        """Whether rows of this destination come back."""

    def keep(
        self, left_out: Sequence[LeftOut], rows_to: Mapping[str, int], batch_id: int
    ) -> tuple[list[LeftOut], int]:
        """Keeps the rows of a batch that come back.

        Args:
            left_out: What was not written; each has rows.
            rows_to: The rows of the batch, by destination.
            batch_id: The batch.

        Returns:
            What does not come back, and the number of its rows.
        """

    def keep_again(self, batch_id: int) -> None:
        """The batch is complete, and what it has kept stays."""


@dataclass(frozen=True)
class _Task:
    """One write: of a table, or of all topics of a cluster."""

    names: Sequence[str]
    run: Callable[[], LeftOut]
    is_joint: bool = False


def rejects_app_id(app_id: str) -> str:
    """The app id of a query's rejects: a separate series, because their table may also be a destination."""
    return f"{app_id}-rejects"


def dead_app_id(app_id: str) -> str:
    """The app id of a query's dead letters, which are written last, into a destination of the others."""
    return f"{app_id}-dead"


def write_batch(  # noqa: PLR0913  # rows, their counts, places and identity of one batch
    fired_rows: DataFrame,
    reject_rows: Callable[[], DataFrame],
    *,
    rows_to: Mapping[str, int],
    rejected: int,
    destinations: Destinations,
    rejects: Sink,
    app_id: str,
    batch_id: int,
    largest_to: Mapping[str, int] | None = None,
    shape: Shape = FIRED,
    not_sent: Sequence[LeftOut] = (),
    returns: Returns | None = None,
    require_lease: Callable[[], None] = lambda: None,
) -> int:
    """Writes one micro-batch in the three steps above. A repetition of the batch changes no table.

    Args:
        fired_rows: Rows with the columns of `shape` and optionally ``source``, cached.
        reject_rows: Returns rows of :data:`~wheel_udf.sinks.destinations.REJECT_SCHEMA`, likewise; called if there are
            any, because most batches have none.
        rows_to: Destination name to number of fired rows in this batch.
        rejected: Number of reject rows in this batch.
        destinations: The allow-list.
        rejects: Sink of the rejects; its own path or topic, created when missing.
        app_id: Transaction id of the checkpoint.
        batch_id: Number of the micro-batch.
        largest_to: As in :meth:`~wheel_udf.sinks.destinations.JointSink.write_all`.
        shape: The shape of the fired rows.
        not_sent: Rows that were to be handed to the sender of the query and cannot be sent, without `reasons`.
        returns: Takes the rows that come back to the wheel; None if none do.
        require_lease: Called before each write.

    Returns:
        The number of undeliverable rows, without those that come back (in a repetition of a complete batch: only those
        of unusable destinations).

    Raises:
        SinkError: Destinations failed, or the rejects cannot be written. The batch can be repeated.
    """
    waiting = {name: rows for name, rows in rows_to.items() if rows}
    unsent = sum(left.row_count for left in not_sent)
    if not waiting and not rejected and not unsent:
        return 0
    batch = _Batch(shape, app_id, batch_id, require_lease)
    spark = fired_rows.sparkSession
    sinks = {name: destinations.resolve(name) for name in waiting}
    reasons, broken = _checked(spark, sinks, batch)
    series = rejects_app_id(app_id)
    if rejects.holds(spark, None, app_id=series, batch_id=batch_id):
        if returns is not None:
            returns.keep_again(batch_id)
        return sum(waiting[name] for name in reasons)
    fired = with_source(fired_rows)
    out = reasons.keys() | broken.keys()
    usable = {name: sink for name, sink in sinks.items() if sink is not None and name not in out}
    may_fail = returns.takes if returns is not None else _takes_none
    tasks = _tasks(fired, usable, waiting, largest_to, batch, may_fail)
    tasks += [_Task([name], partial(_raise, fault)) for name, fault in broken.items()]
    left_out = [*_run_all(spark, tasks, batch), *not_sent]
    reasons |= {name: reason for left in left_out for name, reason in left.reasons.items()}
    left_out = [left for left in (LeftOut.whole(fired, reasons, waiting), *left_out) if left.rows is not None]
    refused = sum(left.row_count for left in left_out)
    if returns is not None:
        require_lease()
        left_out, refused = returns.keep(left_out, waiting, batch_id)
    if refused or rejected:
        rows = reject_rows().select(*REJECT_COLUMNS)
        for left in left_out:
            assert left.rows is not None
            rows = rows.unionByName(_undeliverable(left.rows, shape))
        _write_rejects(rows, rejects, series, batch)
    return refused


def _checked(
    spark: SparkSession, sinks: Mapping[str, Sink | None], batch: _Batch
) -> tuple[dict[str, str | Refusal], dict[str, Exception]]:
    """Why destinations cannot get their rows; and the errors of those that could not be looked at, which fail the batch
    once the others have theirs.
    """
    reasons: dict[str, str | Refusal] = {}
    broken: dict[str, Exception] = {}
    for name, sink in sinks.items():
        try:
            why = _refusal(spark, sink, name, batch)
        except LeaseError:
            raise
        except Exception as fault:  # noqa: BLE001  # of the sink, of any class
            broken[name] = fault
        else:
            if why is not None:
                reasons[name] = why
    return reasons, broken


def _raise(fault: Exception) -> LeftOut:
    raise fault


def _takes_none(_name: str) -> bool:
    return False


def _refusal(spark: SparkSession, sink: Sink | None, name: str, batch: _Batch) -> str | None:
    """Returns why a destination cannot get its rows of the batch; None if it can, or has them from an earlier try."""
    if sink is None:
        return "no destination of the allow-list matches"
    if isinstance(sink, JointSink):  # checks all of its destinations at once when it writes
        return None
    reason = sink.missing_reason(spark, name, batch.shape)
    if reason is None or sink.holds(spark, name, app_id=batch.app_id, batch_id=batch.batch_id):
        return None
    return reason


def _tasks(
    fired: DataFrame,
    sinks: Mapping[str, Sink],
    waiting: Mapping[str, int],
    largest_to: Mapping[str, int] | None,
    batch: _Batch,
    may_fail: Callable[[str], bool],
) -> list[_Task]:
    """A task for each table, then one for each joint sink."""
    tasks: list[_Task] = []
    joint: dict[JointSink, dict[str, int]] = {}
    for name, sink in sinks.items():
        if isinstance(sink, JointSink):
            joint.setdefault(sink, {})[name] = waiting[name]
            continue
        rows = fired.where(F.col("destination") == name).select(*batch.shape.names)
        rows = _in_order(rows, waiting[name], batch.shape)
        tasks.append(_Task([name], partial(_write_table, sink, rows, name, batch)))
    for joint_sink, rows_to in joint.items():
        run = partial(joint_sink.write_all, fired, rows_to, largest_to=largest_to, shape=batch.shape)
        if all(map(may_fail, rows_to)):
            run = partial(_or_left_out, run, rows_to)
        tasks.append(_Task(list(rows_to), run, is_joint=True))
    return tasks


def _or_left_out(run: Callable[[], LeftOut], names: Iterable[str]) -> LeftOut:
    """Runs a write whose destinations are tried again: if it fails as a whole, all its rows are left out."""
    try:
        return run()
    except LeaseError:
        raise
    except Exception as fault:  # noqa: BLE001  # of the sink, of any class
        reason = _in_short(fault)
        _log.warning("not written, and tried again: %s: %s", _named(sorted(names)), reason)
        return LeftOut(dict.fromkeys(names, Refusal(reason, is_final=False)))


def _in_order(frame: DataFrame, rows: int, shape: Shape) -> DataFrame:
    """Sorts rows for one file; a large batch goes to several files, each a range of the order."""
    files = -(-rows // ROWS_PER_FILE)
    spread = frame.coalesce(1) if files <= 1 else frame.repartitionByRange(files, *shape.order)
    return spread.sortWithinPartitions(*shape.order)


def _write_table(sink: Sink, rows: DataFrame, name: str, batch: _Batch) -> LeftOut:
    """Writes the rows; reports them as left out if the destination has become unwritable since the check."""
    try:
        sink.write(rows, name, app_id=batch.app_id, batch_id=batch.batch_id, shape=batch.shape)
    except Exception:
        reason = _refusal(rows.sparkSession, sink, name, batch)
        if reason is None:
            raise
        return LeftOut({name: reason})
    return LeftOut({})


def _run_all(spark: SparkSession, tasks: Sequence[_Task], batch: _Batch) -> list[LeftOut]:
    """Runs all writes, several at the same time; returns what each has left out.

    Raises:
        SinkError: Some failed; all were tried.
        LeaseError: The lease was lost before one.
    """
    if not tasks:
        return []

    def run(task: _Task) -> LeftOut:
        batch.require_lease()
        return task.run()

    faults: list[tuple[_Task, Exception]] = []
    done: list[LeftOut] = []
    threads = WRITES_AT_ONCE + sum(task.is_joint for task in tasks)
    with ThreadPoolExecutor(threads, thread_name_prefix="wheel-sink") as pool:
        # Each task gets its own copy of the stream's local properties (job group, scheduler pool). Spark changes them
        # while it runs, so a shared copy would mix up the ids of queries that run at the same time.
        running = [(task, pool.submit(inheritable_thread_target(spark)(run), task)) for task in tasks]
        for task, future in running:
            try:
                done.append(future.result())
            except Exception as fault:  # noqa: BLE001  # raised below together with the errors of the other writes
                faults.append((task, fault))
    if lost := next((fault for _, fault in faults if isinstance(fault, LeaseError)), None):
        raise lost
    if faults:
        failed, names = (sum(len(task.names) for task in some) for some in ([t for t, _ in faults], tasks))
        causes = "; ".join(f"{_named(task.names)}: {_in_short(fault)}" for task, fault in faults)
        what = f"{failed} of {names} destinations of batch {batch.batch_id} could not be written ({causes})"
        hint = "repair it and restart: the missing part of the batch is then written"
        raise SinkError(what, hint=hint) from faults[0][1]
    return done


def _named(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _undeliverable(left_out: DataFrame, shape: Shape) -> DataFrame:
    """Turns fired rows with an ``error_message`` into reject rows."""
    named = undeliverable(shape)
    return left_out.select(*(named.get(name, F.col(name)).alias(name) for name in REJECT_COLUMNS))


def _write_rejects(rows: DataFrame, rejects: Sink, app_id: str, batch: _Batch) -> None:
    reason = rejects.missing_reason(rows.sparkSession, None)
    if reason is not None:
        raise SinkError(
            f"the rejects cannot be written: {reason}", field="rejects", hint="use a path or topic of its own"
        )
    batch.require_lease()
    ordered = rows.coalesce(1).sortWithinPartitions("rejected_at", "schedule_id", "seq")
    try:
        rejects.write(ordered, None, app_id=app_id, batch_id=batch.batch_id)
    except Exception as fault:
        what = f"the rejects of batch {batch.batch_id} could not be written ({_in_short(fault)})"
        raise SinkError(what, field="rejects") from fault


def _in_short(fault: Exception) -> str:
    """Returns the first informative line of an error; JVM messages are pages long."""
    lines = [line.strip(" :") for line in str(fault).splitlines() if line.strip(" :")]
    informative = [line for line in lines if not line.startswith("An error occurred while calling")]
    return hide((informative or lines or [type(fault).__name__])[0])[:300]
