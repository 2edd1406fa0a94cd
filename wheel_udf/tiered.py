"""The tiered mode: far levels in the slot store, near levels in Spark's state; what a batch costs does not follow what is pending.

::

    commands --intake query--> slot store --near rows--> wheel query --> destinations, rejects
                                 ^     |                     ^
                                 |     `--- cursor, clock ---' (published after each commit)
                               keeper: hands far slots over when the clock comes near, drops what is done

Three activities of one process. The *intake* is a streaming query of its own and can rest while the others go on. The *keeper*
(:mod:`wheel_udf.store_keeper`) runs on a thread. The *wheel* is the query of the direct mode over the store's near rows; its clock is what the keeper
publishes, never past the cursor, so that no slot is late by its own hand-over::

    clock        what is published                                          when nothing comes
    processing   nothing: the wall clock                                    it goes on
    event        largest event time of what is committed, less the delay    it stands

Bounded input (``available-now``): the intake ends by itself; then the clock goes on to ``until`` (if given), slot by slot, and the wheel ends when it
has read everything and released what is due.

Restart: both checkpoints lie in the folder of the run (``intake``, ``wheel``); cursor and clock come from the store's log. The folder, the
store and each other are bound together by the id of the intake's transactions: a store that another checkpoint has written is refused, since
the wheel would not know what has fired of it.

Caveats: the simulated clock belongs to the direct mode. The keeper's thread is in the driver; while the driver is busy with a hand-over of millions of
rows, intake batches go on until its commit, which they wait for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from wheel_udf.checkpoint import Identity, Lease, last_planned, open_checkpoint
from wheel_udf.clock import EventClock, StoreClock
from wheel_udf.commands import parse
from wheel_udf.delivery import AVAILABLE_NOW, deliver, start_with, take_lease
from wheel_udf.errors import IntakePausedError, StoreError
from wheel_udf.levels import fingerprint
from wheel_udf.metrics import BatchReport
from wheel_udf.operator import schedule_stored
from wheel_udf.pending import Wheel as Entries
from wheel_udf.pressure import Pressure
from wheel_udf.session import quick_local_checkpoints
from wheel_udf.sinks import Destinations, Sink
from wheel_udf.slot_store import SlotStore
from wheel_udf.tiered_run import TieredRun, TieredWheel

_WHEEL_TRIGGER = "200 milliseconds"


@dataclass(frozen=True)
class Outlet:
    """Where rows go.

    Attributes:
        destinations: Where each named destination is.
        rejects: Where rows go that cannot be used or delivered.
    """

    destinations: Destinations
    rejects: Sink


def start_tiered(
    commands: DataFrame,
    what: TieredWheel,
    *,
    outlet: Outlet,
    checkpoint: str,
    trigger: str = "1 second",
    name: str = "wheel",
    on_batch: Callable[[BatchReport], None] | None = None,
) -> TieredRun:
    """Starts intake, keeper and wheel.

    Args:
        commands: As for :func:`~wheel_udf.operator.schedule`.
        what: Layout, store, clock and limits.
        outlet: Where rows go.
        checkpoint: Folder of the run's progress and state.
        trigger: An interval such as ``"1 second"``, or ``"available-now"``.
        name: Label in metrics and of new transaction ids.
        on_batch: Called after each batch of the wheel.

    Returns:
        The running whole.

    Raises:
        ContractError: The commands do not fit the contract.
        StoreError: The store cannot be used, or belongs to another checkpoint.
        GeometryChangedError: Store or checkpoint were made with another layout, shard count or clock.
        LeaseError: Store or checkpoint are in use.
        CheckpointError: The checkpoint is damaged.
    """
    spark = commands.sparkSession
    contract = what.contract
    if isinstance(what.clock, EventClock):
        contract = replace(contract, max_ahead_ms=what.clock.max_ahead_ms)
    parsed = parse(commands, contract)
    store = SlotStore.open(spark, what.store, what.layout, create=True, keep_ms=what.keep_ms)
    leases = [Lease(f"{store.path}/_wheel").__enter__()]
    try:
        leases.append(take_lease(f"{checkpoint}/intake"))
        identity = _identity(checkpoint, name, what)
        _require_one_another(store, checkpoint, identity)
        pressure = None
        if what.limits:
            entries = Entries(checkpoint, store)
            pressure = Pressure(spark, entries, what.limits, pauses=what.on_limit == "pause")
            _logger_of_callbacks.addFilter(_says_no_pause)
        run = TieredRun(store, what, identity, leases, pressure, bounded=trigger == AVAILABLE_NOW)
    except BaseException:
        for lease in leases:
            lease.close()
        raise
    try:
        near = schedule_stored(
            store.near_stream(),
            wheel=what.wheel,
            clock=StoreClock(token=run.token, heartbeat_ms=what.clock.heartbeat_ms),
            shards=what.shards,
            memory_ms=what.memory_ms,
            limit=what.limit,
            leveled=what.contract.levels is not None,
        )
        wheel = deliver(
            near,
            destinations=outlet.destinations,
            rejects=outlet.rejects,
            checkpoint=f"{checkpoint}/wheel",
            trigger=_WHEEL_TRIGGER if run.bounded else trigger,
            name=name,
            on_batch=lambda report: run.note(report, on_batch),
        )
        run.begin(wheel, lambda: _intake(parsed, run, f"{checkpoint}/intake", trigger, name))
    except BaseException:
        run.stop()
        raise
    return run


def _identity(checkpoint: str, name: str, what: TieredWheel) -> Identity:
    return open_checkpoint(
        f"{checkpoint}/intake",
        name=name,
        wheel_fingerprint=fingerprint(what.layout.fingerprint(), leveled=what.contract.levels is not None),
        shards=what.shards,
        clock_kind=what.clock.kind,
    )


def _require_one_another(store: SlotStore, checkpoint: str, identity: Identity) -> None:
    """Refuses a store of another checkpoint, and a checkpoint of another store."""
    owners = store.head().owners
    if owners - {identity.app_id}:
        raise StoreError(
            "the slot store belongs to another checkpoint",
            field=store.path,
            value=", ".join(sorted(owners)),
            rule=f"written by {identity.app_id}",
            hint="what has fired of it is known to that checkpoint alone: go on with that, or begin an empty store",
        )
    if not owners and last_planned(f"{checkpoint}/intake") not in (None, 0):
        raise StoreError(
            "the checkpoint has filled another slot store",
            field=store.path,
            value="an empty store",
            rule=f"written by {identity.app_id}",
            hint="say where that store is; what is pending is in it",
        )


def _intake(parsed: DataFrame, run: TieredRun, checkpoint: str, trigger: str, name: str) -> StreamingQuery:
    def take_in(frame: DataFrame, batch_id: int) -> None:
        run.keeper.take_in(frame, batch_id, run.clock_of)

    writer = parsed.writeStream.queryName(f"{name}-intake").option("checkpointLocation", checkpoint)
    with quick_local_checkpoints(parsed.sparkSession, checkpoint):
        return start_with(writer.foreachBatch(take_in), trigger)


_logger_of_callbacks = logging.getLogger("py4j.clientserver")


def _says_no_pause(record: logging.LogRecord) -> bool:
    """A pause is raised through py4j, which logs whatever comes that way with a traceback."""
    return record.exc_info is None or not isinstance(record.exc_info[1], IntakePausedError)
