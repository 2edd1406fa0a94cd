"""Starts a tiered run: far levels in the slot store, near levels in Spark's state. The cost of a batch does not depend
on the number pending.

Intake, keeper and wheel run in one process (:mod:`wheel_udf.tiered`). The wheel is the query of the direct mode over
the store's near rows. Its clock is published by the keeper and never passes the cursor, so no entry is late because
its slot was not handed over.

Bounded input (``available-now``): the intake ends by itself; then the clock goes on to ``until`` (if given), slot by
slot, and the wheel ends when it has read everything and released what is due.

Restart: both checkpoints lie in the folder of the run (``intake``, ``wheel``); cursor and clock come from the store's
log. Folder and store are bound to each other, see :mod:`wheel_udf.tiered.checks`.

Caveats: the simulated clock exists in the direct mode only. The keeper's thread is in the driver; intake batches wait
for the commit of a hand-over, which takes a while if it moves millions of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from wheel_udf.checkpoint.lease import Lease
from wheel_udf.checkpoint.spark_logs import state_format
from wheel_udf.commands.contract import Contract
from wheel_udf.commands.parse import parse_commands, require_due_column
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.clocks import EventClock, ProcessingClock, StoreClock
from wheel_udf.delivery.query import deliver
from wheel_udf.delivery.report import BatchReport
from wheel_udf.pending.entries import PendingWork
from wheel_udf.policies.limits import Limits
from wheel_udf.policies.punctual import Punctual
from wheel_udf.sinks.destinations import Destinations, Sink, require_apart
from wheel_udf.spark.queries import AVAILABLE_NOW, start_with, state_of_format
from wheel_udf.store.layout import StoreLayout
from wheel_udf.store.lease import leased
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.store.table import DEFAULT_KEEP_MS
from wheel_udf.stream.observation import observed
from wheel_udf.stream.schedule_operator import schedule_stored
from wheel_udf.stream.sharded_query import DEFAULT_MEMORY_MS, clocked
from wheel_udf.tiered.checks import check_tiered, open_identity, require_one_another
from wheel_udf.tiered.pressure import Pressure
from wheel_udf.tiered.run import TieredRun
from wheel_udf.tiered.settings import TieredWheel

_WHEEL_TRIGGER = "200 milliseconds"


@dataclass(frozen=True)
class Outlet:
    """Where rows go.

    Attributes:
        destinations: Where each named destination is.
        rejects: Where commands go that cannot be used, and rows that cannot be delivered.
        observes: Whether the figures of each batch are in Spark's progress reports (:func:`wheel_udf.observed`).
    """

    destinations: Destinations
    rejects: Sink
    observes: bool = False


def start_tiered(
    commands: DataFrame,
    what: TieredWheel,
    *,
    outlet: Outlet,
    checkpoint: str,
    trigger: str = "1 second",
    name: str = "wheel",
    on_batch: Callable[[BatchReport], None] | None = None,
    lease_of: Callable[[str], Lease] | None = None,
) -> TieredRun:
    """Starts intake, keeper and wheel.

    Args:
        commands: Streaming frame of commands, as for :func:`~wheel_udf.schedule`.
        what: Layout, store, clock and limits.
        outlet: Where rows go.
        checkpoint: Folder of the run's progress and state.
        trigger: An interval such as ``"1 second"``, or ``"available-now"``.
        name: Label in metrics and of new transaction ids.
        on_batch: Called after each batch of the wheel.
        lease_of: As for :func:`~wheel_udf.deliver`; of the two parts of the checkpoint, and of the store.

    Returns:
        The running intake, keeper and wheel.

    Raises:
        ContractError: The commands do not fit the contract.
        ConfigError: The rejects are in the folder of a destination.
        StoreError: The store cannot be used, or belongs to another checkpoint.
        GeometryChangedError: Store or checkpoint were made with another layout, shard count or clock, or in another
            mode.
        LeaseError: Store or checkpoint are in use.
        CheckpointError: The checkpoint is damaged.
    """
    spark = commands.sparkSession
    require_due_column(commands.columns)
    require_apart(outlet.destinations, outlet.rejects)
    parsed = parse_commands(commands, clocked(what.contract, what.clock))
    lease_of = lease_of or Lease
    lease_of(leased(what.store)).require_free()
    check_tiered(spark, what, checkpoint)
    store = SlotStore.open(spark, what.store, what.layout, create=True, keep_ms=what.keep_ms)
    leases = [lease_of(leased(store.path)).acquire()]
    try:
        leases.append(lease_of(f"{checkpoint}/intake").acquire())
        identity = open_identity(checkpoint, name, what)
        require_one_another(store, what.store, checkpoint, identity)
        pressure = None
        if what.limits:
            work = PendingWork(checkpoint, store)
            pressure = Pressure(spark, work, what.limits, pauses=what.on_limit == "pause")
        run = TieredRun(
            store,
            what,
            identity,
            leases,
            pressure,
            checkpoint=f"{checkpoint}/wheel",
            bounded=trigger == AVAILABLE_NOW,
        )
    except BaseException:
        for lease in leases:
            lease.close()
        raise
    try:
        near = schedule_stored(
            store.near_stream(),
            wheel=what.wheel,
            clock=StoreClock(
                token=run.token,
                heartbeat_ms=what.clock.heartbeat_ms,
                leads=isinstance(what.clock, EventClock),
            ),
            shards=what.shards,
            memory_ms=what.memory_ms,
            limit=what.limit,
            leveled=what.contract.levels is not None,
            repeats="repeat" in parsed.columns,
            punctual=_punctual(what, bounded=run.bounded),
            retries=what.retries,
            rates=what.rates,
        )
        wheel = deliver(
            observed(near) if outlet.observes else near,
            destinations=outlet.destinations,
            rejects=outlet.rejects,
            checkpoint=f"{checkpoint}/wheel",
            trigger=_WHEEL_TRIGGER if run.bounded else trigger,
            name=name,
            on_batch=lambda report: run.note(report, on_batch),
            lease_of=lease_of,
        )
        run.begin(wheel, lambda: _intake(parsed, run, f"{checkpoint}/intake", trigger, name))
    except BaseException:
        run.stop()
        raise
    return run


def schedule_tiered(  # noqa: PLR0913  # each is a setting of its own
    commands: DataFrame,
    *,
    wheel: Wheel,
    clock: EventClock | ProcessingClock,
    store: str,
    destinations: Destinations,
    rejects: Sink,
    checkpoint: str,
    state_levels: int | None = None,
    state_horizon_ms: int | None = None,
    shards: int = 4,
    contract: Contract | None = None,
    memory_ms: int | None = DEFAULT_MEMORY_MS,
    limit: int | None = None,
    limits: Limits | None = None,
    on_limit: Literal["reject", "pause"] = "reject",
    history_ms: int = 0,
    keep_ms: int = DEFAULT_KEEP_MS,
    punctual: Punctual | None = None,
    lead_windows: int = 0,
    trigger: str = "1 second",
    name: str = "wheel",
    on_batch: Callable[[BatchReport], None] | None = None,
) -> TieredRun:
    """Does what :func:`~wheel_udf.schedule` and :func:`~wheel_udf.deliver` do, with far levels in a slot store.

    Args:
        commands: Streaming frame of commands.
        wheel: The geometry.
        clock: The clock that decides what is due.
        store: Folder of the slot store, a Delta table; created if it is missing.
        destinations: The allow-list: destination names and their sinks.
        rejects: Sink of commands that cannot be used and of rows that cannot be delivered.
        checkpoint: Folder of the run's progress and state.
        state_levels: How many levels, from the lowest, are in Spark's state; by default half of them.
        state_horizon_ms: With ``state_levels=0``: entries due within this time are in the state.
        shards: As for :func:`~wheel_udf.schedule`, like `contract`, `memory_ms`, `limit` and `limits`.
        contract: Bounds and defaults of the commands.
        memory_ms: How long an ended id is remembered; ``None`` for ever.
        limit: Most rows released in a batch; ``None`` for no bound.
        limits: How many entries may wait.
        on_limit: What happens at a limit: ``reject`` new entries, or ``pause`` the intake (not with the event clock).
        history_ms: How long rows stay in the store after their due time.
        keep_ms: How long a new store keeps files and log entries that nothing needs any more.
        punctual: As for :func:`~wheel_udf.schedule`.
        lead_windows: Under the event clock, how many windows the intake may be ahead of the wheel's clock. 0: it waits
            for the wheel after each batch, so that the rows are those of the direct mode.
        trigger: An interval such as ``"1 second"``, or ``"available-now"``.
        name: Label in metrics and of new transaction ids.
        on_batch: Called after each batch of the wheel.

    Returns:
        The running query: like a ``StreamingQuery`` it has ``awaitTermination``, ``stop``, ``isActive`` and
        ``lastProgress``.

    Raises:
        ConfigError: A setting is out of range.
        ContractError, StoreError, GeometryChangedError, LeaseError, CheckpointError: As :func:`start_tiered`.
    """
    in_state = wheel.levels // 2 if state_levels is None else state_levels
    what = TieredWheel(
        layout=StoreLayout(wheel, in_state, state_horizon_ms),
        store=store,
        clock=clock,
        shards=shards,
        contract=contract or Contract(),
        memory_ms=memory_ms,
        limit=limit,
        limits=limits or Limits(),
        on_limit=on_limit,
        history_ms=history_ms,
        keep_ms=keep_ms,
        punctual=punctual,
        lead_windows=lead_windows,
    )
    outlet = Outlet(destinations, rejects)
    return start_tiered(
        commands, what, outlet=outlet, checkpoint=checkpoint, trigger=trigger, name=name, on_batch=on_batch
    )


def _punctual(what: TieredWheel, *, bounded: bool) -> Punctual | None:
    """How entries are handed to the sender; with bounded input, which ends before the sender is done, none are."""
    if what.punctual is not None and not isinstance(what.clock, ProcessingClock):
        raise ConfigError(
            "punctual delivery needs the wall clock", field="clock", value=what.clock.kind, rule="processing"
        )
    return replace(what.punctual, rows=0) if what.punctual is not None and bounded else what.punctual


def _intake(parsed: DataFrame, run: TieredRun, checkpoint: str, trigger: str, name: str) -> StreamingQuery:
    writer = parsed.writeStream.queryName(f"{name}-intake").option("checkpointLocation", checkpoint)
    with state_of_format(parsed.sparkSession, state_format(checkpoint)):
        return start_with(writer.foreachBatch(run.take_in), trigger)
