"""Starts the query that delivers what ``schedule`` or ``watch`` released: :func:`deliver`.

Each micro-batch, in this order::

    check the lease            whoever has lost it writes nothing
    cache the frame            the operator runs once, however many sinks read its rows
    collect the status rows    a few rows: counts, next due times, lateness, rows by destination
    hand over                  with punctual delivery: the rows for the sender (wheel_udf.punctual.delivery)
    write the sinks            fired rows by destination, rejects last; each table idempotent by (app id, batch id);
                               what comes back to the wheel is kept before the rejects; dead letters last of all
    post the hint              the next due time, for the clock's source
    report                     one BatchReport to the caller; an error of the caller's function is logged

Several tables are each exactly once, not atomic together: for a moment a reader may see the rows of a batch in the
first table only. A start with another geometry, number of shards or kind of clock is refused before anything runs
(:mod:`wheel_udf.checkpoint.identity`). The lease is given back however the query ends
(:mod:`wheel_udf.checkpoint.lease`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from wheel_udf.checkpoint.chunk_place import chunks_of_tasks, property_of_tasks
from wheel_udf.checkpoint.identity import Identity, check_checkpoint, open_checkpoint
from wheel_udf.checkpoint.lease import Lease
from wheel_udf.checkpoint.spark_logs import input_moved, state_format
from wheel_udf.control.board import BOUNDED, Mark, ShardBoard
from wheel_udf.control.reports import post_reports
from wheel_udf.control.source import is_clock_offset
from wheel_udf.delivery.act_courier import ActCourier
from wheel_udf.delivery.report import BatchReport, report_of, total_of
from wheel_udf.delivery.returns import ReturnedRows
from wheel_udf.policies.punctual import NOTED_PROPERTY
from wheel_udf.punctual.delivery import PunctualDelivery, noted
from wheel_udf.sinks.batch_writer import dead_app_id, write_batch
from wheel_udf.sinks.destinations import DEAD, Destinations, LeftOut, Sink, require_apart, shape_of
from wheel_udf.spark.connect_session import require_jvm
from wheel_udf.spark.queries import AVAILABLE_NOW, start_with, state_of_format
from wheel_udf.stream.frame_facts import FrameFacts, facts_of
from wheel_udf.stream.outputs import columns_leaving, dead_letters, leaving, refused, status_class
from wheel_udf.stream.status_row import ShardStatus, leaving_to

_log = logging.getLogger(__name__)


def deliver(
    scheduled: DataFrame,
    *,
    destinations: Destinations,
    rejects: Sink,
    checkpoint: str,
    trigger: str = "1 second",
    name: str = "wheel",
    on_batch: Callable[[BatchReport], None] | None = None,
    lease_of: Callable[[str], Lease] | None = None,
) -> StreamingQuery:
    """Starts the query that delivers what `scheduled` releases.

    Args:
        scheduled: The frame of :func:`~wheel_udf.schedule` or :func:`~wheel_udf.watch`.
        destinations: The allow-list: destination names and their sinks.
        rejects: Sink of commands that cannot be used and of rows that cannot be delivered.
        checkpoint: Folder of the query's progress and state; it identifies the query.
        trigger: An interval such as ``"1 second"``; ``"available-now"`` reads the available input and ends.
        name: Name in metrics and in new transaction ids.
        on_batch: Called on the driver after each batch has been written; an error that it raises is logged and does
            not fail the batch.
        lease_of: Returns the lease of the checkpoint, for a caller that holds it already (``Leases.of``); default: one
            is taken.

    Returns:
        The running query. One whose lease is lost is stopped, and the loss is logged as an error: awaiting it then
        returns as after ``stop()``, or raises the LeaseError of the batch that was in progress.

    Raises:
        SessionError: `scheduled` is of a session of Spark Connect.
        ContractError: `scheduled` was not made by ``schedule()``.
        ConfigError: The rejects are in the folder of a destination, or a destination cannot be served punctually.
        LeaseError: The checkpoint is in use.
        GeometryChangedError: The checkpoint was made with another geometry, shard count or clock, or in another mode.
        CheckpointError: The checkpoint is damaged or not one of this package.
    """
    require_jvm(scheduled.sparkSession, "deliver()")
    facts = facts_of(scheduled)
    require_apart(destinations, rejects)
    asked: dict[str, Any] = {
        "wheel_fingerprint": facts.wheel,
        "shards": facts.shards,
        "clock_kind": facts.clock,
    }
    check_checkpoint(checkpoint, **asked)  # before the lease creates a folder
    lease = (lease_of or Lease)(checkpoint).acquire()
    punctual: PunctualDelivery | None = None
    with ExitStack() as opened:
        opened.callback(lease.close)
        identity = open_checkpoint(checkpoint, name=name, **asked)
        board, bounded = ShardBoard(facts.board), trigger == AVAILABLE_NOW
        if bounded and facts.frame:
            board.put(BOUNDED, facts.frame, Mark())
        else:
            board.remove(BOUNDED, facts.frame)
        courier = None if facts.stored else ActCourier(checkpoint, board, facts.frame)
        if courier is not None:
            courier.prepare()
        returns = None
        if facts.retries:
            returns = ReturnedRows(checkpoint, board, facts.frame, facts.shards, facts.retries)
            returns.prepare()
        if facts.punctual is not None:
            punctual = PunctualDelivery(facts, destinations, checkpoint, board, trigger, lease.check)
            opened.callback(punctual.close)
            punctual.start()
        delivery = _Delivery(
            destinations=destinations,
            rejects=rejects,
            checkpoint=checkpoint,
            identity=identity,
            board=board,
            bounded=bounded,
            facts=facts,
            on_batch=on_batch,
            punctual=punctual,
            returns=returns,
            require_lease=lease.check,
        )
        writer = (
            scheduled.writeStream.queryName(name)
            .option("checkpointLocation", checkpoint)
            .foreachBatch(delivery.write)
        )
        spark = scheduled.sparkSession
        with (
            chunks_of_tasks(spark, checkpoint),
            property_of_tasks(spark, NOTED_PROPERTY, noted(facts, checkpoint)),
            state_of_format(spark, state_format(checkpoint)),
        ):
            query = start_with(writer, trigger, python_source=True)
        opened.pop_all()  # from here on they are closed with the query
    lease.close_after(query, None if punctual is None else punctual.close)
    if courier is not None:
        courier.follow(query)
    return query


def _statuses(frame: DataFrame, facts: FrameFacts) -> list[ShardStatus]:
    # Read as JSON text: with thirty columns Spark would plan a larger projection in every batch.
    rows = frame.where("kind = 'status'").select("status").collect()
    return [status_class(facts).from_json(row.status) for row in rows]


@dataclass
class _Delivery:
    """Writes the batches of one query."""

    destinations: Destinations
    rejects: Sink
    checkpoint: str
    identity: Identity
    board: ShardBoard
    bounded: bool
    facts: FrameFacts
    on_batch: Callable[[BatchReport], None] | None
    require_lease: Callable[[], None]
    punctual: PunctualDelivery | None = None
    returns: ReturnedRows | None = None
    shards: dict[int, ShardStatus] = field(default_factory=dict)

    @cached_property
    def _leaving(self) -> list[Column]:
        # Made once: in Python a column costs several questions to the JVM, more than its use.
        return columns_leaving(self.facts)

    def write(self, frame: DataFrame, batch_id: int) -> None:
        """Writes one micro-batch (called by Spark, again with the same rows if it failed)."""
        self.require_lease()
        frame = frame.persist()
        try:
            statuses = _statuses(frame, self.facts)
            self.require_lease()  # the rows were made meanwhile, which is most of the time of a batch
            not_sent = [] if self.punctual is None else self.punctual.hand_over(frame, statuses, batch_id)
            if self.returns is not None and statuses:
                self.returns.begin(statuses[0].query_id, max(row.clock_ms for row in statuses))
            undeliverable = self._write_rows(frame, statuses, batch_id, not_sent)
            undeliverable += self._write_dead_letters(frame, statuses, batch_id)
        finally:
            frame.unpersist()
        self.shards |= {row.shard: self._with_sample(row) for row in statuses}
        held_input = self._held_input(statuses, batch_id)
        self._post(statuses, held_input=held_input)
        if self.on_batch is not None:
            report = report_of(
                statuses,
                self.shards.values(),
                batch_id=batch_id,
                undeliverable=undeliverable,
                held_input=held_input,
                facts=self.facts,
                sent=None if self.punctual is None else self.punctual.sender.drain_lateness(),
                returned=0 if self.returns is None else self.returns.returned,
                breakers={} if self.returns is None else self.returns.breakers.states(self.returns.clock_ms),
            )
            try:
                self.on_batch(report)
            except Exception:  # noqa: BLE001  # whatever the user's code raises
                _log.exception("on_batch failed for batch %d, which is written", batch_id)

    def _with_sample(self, row: ShardStatus) -> ShardStatus:
        """The status with the shard's last sample, if it has taken none in this batch."""
        before = self.shards.get(row.shard)
        if row.by_destination is not None or before is None:
            return row
        return replace(row, **{name: getattr(before, name) for name in row.SAMPLED})

    def _write_rows(
        self, frame: DataFrame, statuses: list[ShardStatus], batch_id: int, not_sent: list[LeftOut]
    ) -> int:
        rows_to, largest_to = leaving_to(statuses, "destinations", "largest")
        return write_batch(
            leaving(frame, self._leaving, "outcome" if self.facts.is_purgatory else "fired"),
            lambda: refused(frame, self.facts),
            rows_to=rows_to,
            largest_to=largest_to,
            rejected=total_of(statuses, "rejected_now")
            + total_of(statuses, "missed_now")
            + leaving_to(statuses, "dead_to", "")[0][""],
            destinations=self.destinations,
            rejects=self.rejects,
            app_id=self.identity.app_id,
            batch_id=batch_id,
            shape=shape_of(self.facts),
            not_sent=not_sent,
            returns=self.returns,
            require_lease=self.require_lease,
        )

    def _write_dead_letters(self, frame: DataFrame, statuses: list[ShardStatus], batch_id: int) -> int:
        rows_to, _ = leaving_to(statuses, "dead_to", "")
        rows_to.pop("", None)
        if not rows_to:
            return 0
        return write_batch(
            dead_letters(frame),
            lambda: refused(frame, self.facts).limit(0),
            rows_to=rows_to,
            rejected=0,
            destinations=self.destinations,
            rejects=self.rejects,
            app_id=dead_app_id(self.identity.app_id),
            batch_id=batch_id,
            shape=DEAD,
            require_lease=self.require_lease,
        )

    def _held_input(self, statuses: list[ShardStatus], batch_id: int) -> bool:
        # A file without rows is input, too: otherwise the clock would run on before the files behind it are read.
        return any(row.received for row in statuses) or (
            self.bounded and input_moved(self.checkpoint, batch_id, is_clock_offset)
        )

    def _post(self, statuses: list[ShardStatus], *, held_input: bool) -> None:
        reports = {row.shard: row.report(held_input=held_input) for row in statuses}
        query_ids = {row.query_id for row in statuses}
        run = next((row.run for row in statuses if row.run), None)
        for query_id in query_ids:
            post_reports(self.board, query_id, run, reports)
