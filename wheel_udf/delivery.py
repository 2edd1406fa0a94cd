"""Starting the query: what :func:`wheel_udf.operator.schedule` released goes to its destinations, and the clock learns what is next.

Each micro-batch, in this order::

    persist the frame          one run of the operator, whatever is done with its rows
    collect the status rows    a few rows: counts, next due times, lateness, rows by destination
    write the sinks            due rows by destination, rejects last; each table idempotent by (app id, batch id)
    post the hint              so that the next planning knows when time must move on
    report                     one BatchReport to the caller

A batch that fails anywhere is repeated by Spark with the same rows; what was written is skipped by Delta's transaction identifiers. Several
tables are each exactly once, not atomic together: between two of them a reader may see one batch's rows in the first table only.

The checkpoint belongs to one running query (a lease), one geometry, one number of shards and one kind of clock (its identity); a start that
differs is refused before anything runs. See :mod:`wheel_udf.checkpoint`.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from wheel_udf.by_shard import facts_of
from wheel_udf.checkpoint import Identity, Lease, input_moved, open_checkpoint
from wheel_udf.clock import is_clock_offset
from wheel_udf.durations import parse_duration_ms
from wheel_udf.hints import HintBoard, answer_of
from wheel_udf.metrics import BatchReport, LatenessHistogram
from wheel_udf.prepared import Prepared
from wheel_udf.selection import is_of_purgatory, leaving, refused
from wheel_udf.session import quick_local_checkpoints
from wheel_udf.sinks import Destinations, Sink, write_batch
from wheel_udf.state import OUTCOMES
from wheel_udf.watch_state import COUNTED

AVAILABLE_NOW = "available-now"
ONCE = "once"

_STATUS = Prepared(lambda: [F.col("status")])

_leases: dict[str, tuple[Lease, StreamingQuery]] = {}
_leases_lock = threading.Lock()


def deliver(
    scheduled: DataFrame,
    *,
    destinations: Destinations,
    rejects: Sink,
    checkpoint: str,
    trigger: str = "1 second",
    name: str = "wheel",
    on_batch: Callable[[BatchReport], None] | None = None,
) -> StreamingQuery:
    """Starts the query that delivers what `scheduled` releases.

    Args:
        scheduled: The frame of :func:`~wheel_udf.operator.schedule`, or of :func:`~wheel_udf.watch_operator.watch`.
        destinations: Where each named destination is.
        rejects: Where rows go that cannot be used or delivered.
        checkpoint: Folder of the query's progress and state; it is the query's identity.
        trigger: An interval such as ``"1 second"``; ``"available-now"`` reads what is there and ends.
        name: Label in metrics and of new transaction ids.
        on_batch: Called on the driver after each batch has been written.

    Returns:
        The running query.

    Raises:
        ContractError: `scheduled` was not made by ``schedule()``.
        LeaseError: The checkpoint is in use.
        GeometryChangedError: The checkpoint was made with another geometry, shard count or clock.
        CheckpointError: The checkpoint is damaged or not one of this package.
    """
    facts = facts_of(scheduled)
    lease = take_lease(checkpoint)
    try:
        identity = open_checkpoint(
            checkpoint,
            name=name,
            wheel_fingerprint=facts["wheel"],
            shards=facts["shards"],
            clock_kind=facts["clock"],
        )
        delivery = _Delivery(
            destinations=destinations,
            rejects=rejects,
            checkpoint=checkpoint,
            identity=identity,
            board=HintBoard(facts["board"]),
            bounded=trigger == AVAILABLE_NOW,
            shard_count=facts["shards"],
            purgatory=is_of_purgatory(scheduled),
            on_batch=on_batch,
        )
        writer = (
            scheduled.writeStream.queryName(name)
            .option("checkpointLocation", checkpoint)
            .foreachBatch(delivery.write)
        )
        with quick_local_checkpoints(scheduled.sparkSession, checkpoint):
            query = start_with(writer, trigger)
    except BaseException:
        lease.close()
        raise
    with _leases_lock:
        _leases[checkpoint] = (lease, query)
    return query


def take_lease(checkpoint: str) -> Lease:
    """Takes the checkpoint's lease; one that an ended query of this process still holds is given back first."""
    with _leases_lock:
        held = _leases.pop(checkpoint, None)
        if held is not None:
            lease, query = held
            if query.isActive:
                _leases[checkpoint] = held
            else:
                lease.close()
    return Lease(checkpoint).__enter__()


def start_with(writer: DataStreamWriter, trigger: str) -> StreamingQuery:
    """Starts a query with a trigger in words: an interval, ``available-now`` or ``once``."""
    if trigger == AVAILABLE_NOW:
        return writer.trigger(availableNow=True).start()
    if trigger == ONCE:
        return writer.trigger(once=True).start()
    return writer.trigger(processingTime=trigger).start()


def _statuses(frame: DataFrame) -> list[dict[str, Any]]:
    # As text: to Spark the thirty columns of operator.status() are a plan to be made in every batch.
    rows = _STATUS.select(frame.where("kind = 'status'")).collect()
    return [json.loads(row.status) for row in rows]


def _fullest(shards: list[Mapping[str, float]]) -> dict[str, float]:
    """Of each limit the fullest shard's use."""
    return {bound: max(full.get(bound, 0.0) for full in shards) for bound in {*chain(*shards)}}


def _by_level(shards: list[Mapping[str, int]]) -> dict[str, int]:
    """Pending entries by the name of their delay level, over all shards, shortest level first."""
    total: Counter[str] = Counter()
    for levels in shards:
        total.update(levels)
    return dict(sorted(total.items(), key=lambda level: parse_duration_ms(level[0])))


@dataclass
class _Delivery:
    """Writes the batches of one query."""

    destinations: Destinations
    rejects: Sink
    checkpoint: str
    identity: Identity
    board: HintBoard
    bounded: bool
    shard_count: int
    purgatory: bool
    on_batch: Callable[[BatchReport], None] | None
    shards: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def write(self, frame: DataFrame, batch_id: int) -> None:
        """Writes one micro-batch (called by Spark, again with the same rows if it failed)."""
        frame = frame.persist()
        try:
            statuses = _statuses(frame)
            undeliverable = self._write_rows(frame, statuses, batch_id)
        finally:
            frame.unpersist()
        self.shards |= {row["shard"]: row for row in statuses}
        held_input = self._held_input(statuses, batch_id)
        self._post(statuses, held_input=held_input)
        if self.on_batch is not None:
            self.on_batch(self._report(statuses, batch_id, undeliverable, held_input=held_input))

    def _write_rows(self, frame: DataFrame, statuses: list[dict[str, Any]], batch_id: int) -> int:
        rows_to: Counter[str] = Counter()
        largest_to: dict[str, int] = {}
        for row in statuses:
            rows_to.update(row["destinations"])
            for destination, size in row["largest"].items():
                largest_to[destination] = max(size, largest_to.get(destination, 0))
        return write_batch(
            leaving(frame),
            refused(frame),
            rows_to=rows_to,
            largest_to=largest_to,
            rejected=sum(row["rejected_now"] + row.get("missed_now", 0) for row in statuses),
            destinations=self.destinations,
            rejects=self.rejects,
            app_id=self.identity.app_id,
            batch_id=batch_id,
        )

    def _held_input(self, statuses: list[dict[str, Any]], batch_id: int) -> bool:
        # A file without rows is input too: were it taken for the end, the clock would run on before the files behind it.
        return any(row["received"] for row in statuses) or (
            self.bounded and input_moved(self.checkpoint, batch_id, is_clock_offset)
        )

    def _post(self, statuses: list[dict[str, Any]], *, held_input: bool) -> None:
        answers = {row["shard"]: replace(answer_of(row), held_input=held_input) for row in statuses}
        query_ids = {row["query_id"] for row in statuses}
        run = next((row["run"] for row in statuses if row["run"]), None)
        for query_id in query_ids:
            self.board.post(query_id, run, answers)

    def _report(
        self, statuses: list[dict[str, Any]], batch_id: int, undeliverable: int, *, held_input: bool
    ) -> BatchReport:
        shards = self.shards.values()
        next_due_ms = min(
            (row["next_due_ms"] for row in shards if row["next_due_ms"] is not None), default=None
        )
        clock_ms = max((row["clock_ms"] for row in shards), default=None)
        lateness = LatenessHistogram()
        for row in statuses:
            lateness = lateness.merge(LatenessHistogram.from_json(row["lateness"]))
        return BatchReport(
            batch_id=batch_id,
            received=sum(row["received"] for row in statuses),
            fired=sum(row["fired_now"] for row in statuses),
            missed=sum(row.get("missed_now", 0) for row in statuses),
            rejected=sum(row["rejected_now"] for row in statuses),
            refused=sum(row.get("refused_now", 0) for row in statuses),
            full=_fullest([row.get("full", {}) for row in shards]),
            spread=sum(row.get("spread_now", 0) for row in statuses),
            undeliverable=undeliverable,
            pending=sum(row["pending"] + row.get("far", 0) for row in shards),
            levels=_by_level([row.get("levels", {}) for row in shards]),
            next_due_ms=next_due_ms,
            clock_ms=clock_ms,
            watermark_ms=max(
                (row["watermark_ms"] for row in statuses if row["watermark_ms"] is not None), default=None
            ),
            lateness=lateness,
            counts={
                name: sum(row[name] for row in shards) for name in (COUNTED if self.purgatory else OUTCOMES)
            },
            purgatory=self.purgatory,
            decided=sum(row.get("decided_now", 0) for row in statuses),
            held_input=held_input,
            complete=len(shards) == self.shard_count,
            backlog=next_due_ms is not None and clock_ms is not None and next_due_ms <= clock_ms,
        )
