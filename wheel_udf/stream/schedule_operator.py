"""``schedule``: turns a streaming DataFrame of commands into a DataFrame of outcomes.

::

    commands --parse--> command rows --.
                                        union --> groupBy(shard) --> wheel/step --> fired | missed | rejected | status
    clock source ----> clock rows -----'

:func:`schedule` starts nothing, and works with any source and any sink. The column ``kind`` distinguishes the rows;
:mod:`wheel_udf.stream.outputs` selects by it. Each touched shard adds one status row per batch, from which
:func:`wheel_udf.delivery.query.deliver` makes its report.

Design notes

* The key is the shard, never the id: a group has a fixed cost, hundreds of times that of a row inside a group.
* ``NoTimeout``: with any timeout, Spark scans and decodes every key of every partition in every batch. Time
  comes as data instead (:mod:`wheel_udf.control.source`).
* Rejected rows pass through the operator too: they are counted in the same state as everything else, and the
  source is read once.
* A batch of commands needs no clock rows of its own: a shard with something due at the next batch's watermark
  is known from the board when that batch is planned, so the clock source adds a row for it.

Caveats: set ``spark.sql.shuffle.partitions`` to the number of cores or less before the first start. Under the event
clock, event times outside the years 1678 to 2261 move the clock no further than those bounds.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, functions as F

from wheel_udf.commands import delay_levels as levels
from wheel_udf.commands.columns import LONG_JSON, batch_ms
from wheel_udf.commands.contract import Contract
from wheel_udf.commands.parse import parse_commands, require_due_column
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.clocks import Clock, ProcessingClock, StoreClock
from wheel_udf.policies.limits import Limits
from wheel_udf.policies.punctual import Punctual
from wheel_udf.policies.rates import NO_RATES, Rates
from wheel_udf.policies.retries import NO_RETRIES, Retries
from wheel_udf.shard.rows import FIRE_NOW, FIRE_NOW_OP
from wheel_udf.shard.state import STATE_COLUMNS
from wheel_udf.stream.clock_rows import event_column, no_tick
from wheel_udf.stream.frame_facts import FrameFacts
from wheel_udf.stream.outputs import LEVEL_COLUMNS, RETURNING, SERIES_COLUMNS
from wheel_udf.stream.sharded_query import (
    DEFAULT_MEMORY_MS,
    HEADERS_TYPE,
    REASON,
    REASON_TYPE,
    check_settings,
    clocked,
    long_or,
    null_if_absent,
    shard_column,
    stepped,
)
from wheel_udf.stream.wheel_worker import OUTPUT_TYPE, RETRY_TYPE, WheelWorker, command_bits
from wheel_udf.stream.without_jvm import require_possible
from wheel_udf.stream.worker import DETAIL, NO_LONG

_RARE_COLUMNS = (
    "delay_level_ms",
    "level_error_ms",
    "anchor_ms",
    "spread_ms",
    "last_ms",
    "occurrence",
    "attempt",
    "first_amend",
    "failed_at_ms",
)
_RARE_TEXTS = ("repeat", "first_error", "last_error")


def schedule(  # noqa: PLR0913  # settings of one operator, all by name
    commands: DataFrame,
    *,
    wheel: Wheel,
    clock: Clock,
    shards: int = 4,
    contract: Contract | None = None,
    memory_ms: int | None = DEFAULT_MEMORY_MS,
    limit: int | None = None,
    limits: Limits | None = None,
    punctual: Punctual | None = None,
    retries: Retries = NO_RETRIES,
    rates: Rates = NO_RATES,
) -> DataFrame:
    """Holds commands in a timing wheel and releases each at its due time.

    Args:
        commands: A streaming frame with the columns of the command contract (see
            :mod:`wheel_udf.commands.parse`).
        wheel: The geometry.
        clock: The clock: :class:`~wheel_udf.control.clocks.EventClock`, ``ProcessingClock`` or
            ``SimulatedClock``.
        shards: Number of independent wheels that share the ids, 1 to 1024.
        contract: Bounds and defaults of the commands, and their delay levels; by default none.
        memory_ms: How long an ended id is remembered; ``None`` for ever.
        limit: Most rows released in a batch, all shards together (at least one each); ``None`` for no bound.
        limits: How many entries may wait; further ones are rejected. The shards share each limit.
        punctual: Hands entries to a sender ahead of their due time, which gives them to Kafka at the due time. Only
            with the processing clock and with ``deliver``; None: each batch releases what is due.
        retries: Which destinations are tried again when they cannot take a row; with ``deliver``.
        rates: How much destinations get; a burst is at least as large as `shards`.

    Returns:
        A streaming frame; ``kind`` is ``fired``, ``missed``, ``rejected``, ``status``, or with `punctual` also
        ``ahead``. With delay levels it also has the columns :data:`~wheel_udf.stream.outputs.LEVEL_COLUMNS`, and
        ``lateness_ms`` counts from ``scheduled_at``.

    Raises:
        ConfigError: A setting is out of range, or cannot work on a session of Spark Connect.
        ContractError: The frame has no column ``schedule_id``, or none with a due time, or is not a streaming frame.
        SessionError: The Python of Spark's workers is missing, of another version, or lacks a module.
    """
    check_settings(commands, shards, memory_ms, limit, limits)
    require_due_column(commands.columns)
    _require_processing(clock, punctual)
    require_possible(commands.sparkSession, clock, punctual, retries)
    contract = contract or Contract()
    contract = clocked(contract, clock)
    leveled = contract.levels is not None
    parsed, good = parse_commands(commands, contract), F.col("error_code").isNull()
    rows = _rows_of_step(
        parsed,
        shards,
        packed=("op", "seq_given", *(("act", "amend") if "act" in parsed.columns else ())),
        reject=F.when(~good, F.to_json(F.struct(*REASON))),
        event_at=event_column(F.when(good, F.col("event_time_ms"))),
        of_rejects=("source", "record"),
    )
    facts = _facts(
        wheel,
        clock,
        shards,
        leveled=leveled,
        punctual=punctual,
        repeats="repeat" in parsed.columns,
        retries=retries,
    )
    return _through_the_wheel(
        rows,
        facts,
        wheel=wheel,
        clock=clock,
        memory_ms=memory_ms,
        limit=limit,
        limits=limits,
        rates=rates,
    )


def schedule_stored(  # noqa: PLR0913  # as above
    near: DataFrame,
    *,
    wheel: Wheel,
    clock: StoreClock,
    shards: int = 4,
    memory_ms: int | None = DEFAULT_MEMORY_MS,
    limit: int | None = None,
    leveled: bool = False,
    repeats: bool = False,
    punctual: Punctual | None = None,
    retries: Retries = NO_RETRIES,
    rates: Rates = NO_RATES,
) -> DataFrame:
    """Does what :func:`schedule` does, with the rows of a slot store's near partitions.

    Args:
        near: :meth:`wheel_udf.store.slot_store.SlotStore.near_stream`: commands that the intake has parsed,
            and the store's own rows.
        wheel: As in :func:`schedule`, like all that is not named here.
        clock: The clock that the store's keeper publishes; with `punctual` that must be the wall clock.
        shards: Number of shards.
        memory_ms: How long an ended id is remembered.
        limit: Most rows released in a batch.
        leveled: Whether the commands were parsed with delay levels.
        repeats: Whether the commands have a column ``repeat``.
        punctual: Hands entries to a sender.
        retries: As in :func:`schedule`.
        rates: Likewise.

    Raises:
        ConfigError: A setting is out of range.
    """
    check_settings(near, shards, memory_ms, limit)
    rows = _rows_of_step(
        near,
        shards,
        packed=("op", "seq_given", "act", "amend"),
        reject=F.col("reject"),
        event_at=F.lit(None).cast("timestamp"),
        of_rejects=("source", "reject"),
    )
    facts = _facts(
        wheel,
        clock,
        shards,
        leveled=leveled,
        punctual=punctual,
        repeats=repeats,
        retries=retries,
    )
    return _through_the_wheel(
        rows,
        facts,
        wheel=wheel,
        clock=clock,
        memory_ms=memory_ms,
        limit=limit,
        rates=rates,
    )


def _require_processing(clock: Clock, punctual: Punctual | None) -> None:
    if punctual is not None and not isinstance(clock, ProcessingClock):
        raise ConfigError(
            "punctual delivery needs the wall clock",
            field="clock",
            value=clock.kind,
            rule="processing: the sender sends when the wall clock has reached the due time",
        )


def _facts(
    wheel: Wheel,
    clock: Clock | StoreClock,
    shards: int,
    *,
    leveled: bool,
    punctual: Punctual | None,
    repeats: bool,
    retries: Retries,
) -> FrameFacts:
    return FrameFacts(
        wheel=levels.fingerprint(wheel.fingerprint(), leveled=leveled),
        shards=shards,
        clock=clock.kind,
        leveled=leveled,
        repeats=repeats,
        retries=retries,
        stored=isinstance(clock, StoreClock),
        punctual=punctual,
    )


def _through_the_wheel(  # settings of one operator, all by name
    rows: DataFrame,
    facts: FrameFacts,
    *,
    wheel: Wheel,
    clock: Clock | StoreClock,
    memory_ms: int | None,
    limit: int | None,
    limits: Limits | None = None,
    rates: Rates,
) -> DataFrame:
    """Passes command rows and clock rows, by shard, through the wheel; returns the operator's frame."""
    released = stepped(
        rows,
        WheelWorker,
        facts,
        wheel=wheel,
        clock=clock,
        memory_ms=memory_ms,
        output_type=f"{OUTPUT_TYPE}, {RETRY_TYPE}" if facts.retries else OUTPUT_TYPE,
        state_columns=STATE_COLUMNS,
        limit=limit,
        stored=facts.stored,
        limits=limits or Limits(),
        punctual=facts.punctual,
        waits_for_clock=isinstance(clock, StoreClock) and clock.leads,
        retries=facts.retries,
        rates=rates,
    )
    return _to_output_columns(released, facts)


def _int_or_0(column: str) -> Column:
    return F.coalesce(F.col(column).cast("int"), F.lit(0))


def _rows_of_step(
    rows: DataFrame,
    shards: int,
    *,
    packed: Sequence[str],
    reject: Column,
    event_at: Column,
    of_rejects: tuple[str, str],
) -> DataFrame:
    """Commands from any source as input of the worker."""
    # A FIRE_NOW has an act of its own, and no op.
    is_fire = F.col("op") == FIRE_NOW_OP
    bits = {name: _int_or_0(name) for name in packed}
    bits["op"] = F.when(is_fire, 0).otherwise(bits["op"])
    bits["act"] = F.when(is_fire, FIRE_NOW).otherwise(bits.get("act", F.lit(0)))
    return rows.select(
        shard_column("schedule_id", shards, *of_rejects),
        "schedule_id",
        command_bits(**bits).cast("int").alias("command_bits"),
        long_or("seq", 0),
        long_or("deliver_at_ms", NO_LONG),
        long_or("max_lateness_ms", NO_LONG),
        "destination",
        "key",
        "value",
        "headers",
        "source",
        reject.alias("reject"),
        event_at.alias("event_at"),
        no_tick(),
        *(long_or(name, NO_LONG) for name in _RARE_COLUMNS if name in rows.columns),
        *(name for name in _RARE_TEXTS if name in rows.columns),
    )


def _to_output_columns(released: DataFrame, facts: FrameFacts) -> DataFrame:
    """Converts the worker's rows to output columns: instants as timestamps, headers as an array, fire ids, reasons."""
    kind = F.col("kind")
    is_fired, is_missed, is_rejected = (kind == each for each in ("fired", "missed", "rejected"))
    # What DETAIL holds depends on the kind.
    amend, max_lateness_ms, reason_json, status_json = [F.col(DETAIL)] * 4
    due_ms, fired_at_ms = (null_if_absent(name) for name in ("deliver_at_ms", "fired_at_ms"))
    late_ms = F.when(is_fired | is_missed, fired_at_ms - due_ms)
    leaves = is_fired if facts.punctual is None else is_fired | (kind == "ahead")
    error_ms = F.coalesce(null_if_absent("level_error_ms"), F.lit(0))
    asked_ms = due_ms - error_ms
    # The requested instant counts, not the rounded one: another list of levels gives no entry another id.
    identity = F.concat_ws("\x1f", "schedule_id", "seq", F.coalesce(amend, F.lit("0")), asked_ms)
    about = F.struct("schedule_id", "seq", "destination", F.timestamp_millis(asked_ms).alias("deliver_at"))
    too_late = F.concat(
        F.lit("released too late: lateness_ms = "),
        late_ms,
        F.lit("; rule: at most max_lateness = "),
        max_lateness_ms,
        F.lit(" ms"),
    )
    reason = F.when(is_rejected, F.from_json(reason_json, REASON_TYPE, LONG_JSON))
    missed_before = null_if_absent("missed_before")
    passed_over = F.concat(
        F.lit("occurrences that were over: "),
        missed_before + 1,
        F.lit("; rule: on_missed, and max_lateness"),
        F.coalesce(F.concat(F.lit(" = "), max_lateness_ms, F.lit(" ms")), F.lit("")),
    )
    rejected_at = F.when(is_rejected, F.timestamp_millis(batch_ms())).when(
        is_missed, F.timestamp_millis(fired_at_ms)
    )
    levels_of_row = zip(LEVEL_COLUMNS, (F.timestamp_millis(due_ms), error_ms), strict=True)
    return released.select(
        facts.kind_column(),
        "schedule_id",
        F.when(kind != "status", F.col("seq")).alias("seq"),
        F.when(leaves | (kind == "dead"), F.md5(identity.cast("binary"))).alias("fire_id"),
        "destination",
        "key",
        "value",
        F.from_json("headers", HEADERS_TYPE, LONG_JSON).alias("headers"),
        F.timestamp_millis(asked_ms).alias("deliver_at"),
        F.timestamp_millis(fired_at_ms).alias("fired_at"),
        late_ms.alias("lateness_ms"),
        F.when(is_missed, "missed").otherwise(reason.error_code).alias("error_code"),
        F.when(is_missed, F.coalesce(passed_over, too_late))
        .otherwise(reason.error_message)
        .alias("error_message"),
        # A row rejected by the wheel itself has no original record any more; its columns stand for it.
        F.when(is_missed | is_rejected, F.coalesce(reason.record, F.to_json(about))).alias("record"),
        "source",
        rejected_at.alias("rejected_at"),
        F.when(kind == "status", status_json).alias("status"),
        *(F.when(leaves | is_missed, value).alias(name) for name, value in levels_of_row if facts.leveled),
        *(null_if_absent(name).alias(name) for name in SERIES_COLUMNS if facts.repeats),
        *(_retry_columns(leaves) if facts.retries else ()),
    )


def _retry_columns(leaves: Column) -> list[Column]:
    """What rows have more if entries may come back."""
    is_row = F.col("kind") != "status"
    has_amend = leaves | (F.col("kind") == "dead")  # of other rows DETAIL is something else
    first_amend = F.when(has_amend, F.coalesce(F.col(DETAIL).cast("int"), F.lit(0)))
    returning = {
        "amend": F.col("amend"),
        "first_amend": first_amend,
        **{
            name: null_if_absent(name)
            for name in ("deliver_at_ms", "level_error_ms", "max_lateness_ms", "failed_at_ms")
        },
        **{name: F.col(name) for name in ("first_error", "last_error", "headers")},
        "occurrence": null_if_absent("occurrence"),
    }
    return [
        null_if_absent("attempt").alias("attempt"),
        F.when(is_row, F.col("amend")).alias("amend"),
        first_amend.alias("first_amend"),
        F.timestamp_millis(null_if_absent("failed_at_ms")).alias("failed_at"),
        *(F.col(name) for name in ("first_error", "last_error", "origin")),
        F.col("dead_reason").alias("reason"),
        F.when(leaves, F.struct(*(value.alias(name) for name, value in returning.items()))).alias(RETURNING),
    ]
