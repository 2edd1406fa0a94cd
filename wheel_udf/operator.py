"""The operator: a streaming frame of commands in, one frame of everything that happened out.

::

    commands --parse--> command frame --.
                                         union --> groupBy(shard) --> step --> fired | missed | rejected | status
    clock source ----> clock rows ------'

:func:`schedule` is a function of a DataFrame to a DataFrame: it starts nothing, and any source and any sink will do. ``kind`` says what a row
is; :mod:`wheel_udf.selection` selects. One row of status per touched shard and batch carries counts, next due time and
lateness, which is what :func:`wheel_udf.delivery.deliver` makes its progress report from.

Design notes

* The key is the shard, never the id: a group costs 0.3 to 1 ms whatever is in it, a row inside one about a microsecond.
* ``NoTimeout``: with any timeout Spark scans and decodes every key of every partition in every batch. Time comes as data instead
  (:mod:`wheel_udf.clock`).
* Rejected rows travel through the operator too. So they are counted in the same state as everything else, the account is exact at each
  batch boundary, and the source is read once.
* The geometry and the shard count travel as metadata of the ``kind`` column; ``deliver`` compares them with the checkpoint before it starts.
* A design sketch had every batch of commands carry a clock row for each shard, made from the batch. It is not needed: a shard that has
  something due at the next batch's watermark is known from the hint when that batch is planned, so the clock source gives it a row.

Caveats: set ``spark.sql.shuffle.partitions`` to the number of cores or less before the first start; the default of 200 means 200
tasks and state stores a batch. Under the event clock, event times outside 1678 to 2261 do not move the clock further than those bounds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from wheel_udf import levels, shard_step
from wheel_udf.by_shard import (
    DEFAULT_MEMORY_MS,
    HEADERS_TYPE,
    REASON,
    REASON_TYPE,
    check_settings,
    event_column,
    kind_with,
    long_or,
    no_tick,
    null_if_absent,
    shard_column,
    stepped,
)
from wheel_udf.clock import Clock, EventClock, StoreClock
from wheel_udf.columns import batch_ms
from wheel_udf.commands import Contract, parse
from wheel_udf.geometry import Wheel
from wheel_udf.group_step import NO_LONG
from wheel_udf.limits import Limits
from wheel_udf.selection import LEVEL_COLUMNS
from wheel_udf.shard_step import ShardStep, form_of
from wheel_udf.state import STATE_COLUMNS

_STEP_COLUMNS_OF_LEVELS = ("delay_level_ms", "level_error_ms")


def schedule(
    commands: DataFrame,
    *,
    wheel: Wheel,
    clock: Clock,
    shards: int = 4,
    contract: Contract | None = None,
    memory_ms: int | None = DEFAULT_MEMORY_MS,
    limit: int | None = None,
    limits: Limits | None = None,
) -> DataFrame:
    """Holds commands in a timing wheel and releases each at its due time.

    Args:
        commands: A streaming frame with the columns of the command contract (see :mod:`wheel_udf.commands`).
        wheel: The geometry.
        clock: What time it is: :class:`~wheel_udf.clock.EventClock`, ``ProcessingClock`` or ``SimulatedClock``.
        shards: How many independent wheels share the ids, 1 to 1024.
        contract: Bounds and defaults of the commands, and their delay levels; by default none.
        memory_ms: How long an ended id is remembered; ``None`` for ever.
        limit: Most rows released in a batch, all shards together (at least one each); ``None`` for no bound.
        limits: How many entries may wait; new ones beyond that are rejected. The shards share each bound.

    Returns:
        A streaming frame; ``kind`` is ``fired``, ``missed``, ``rejected`` or ``status``. With delay levels it has :data:`~wheel_udf.selection.LEVEL_COLUMNS` too, and
        ``lateness_ms`` is counted from ``scheduled_at``.

    Raises:
        ConfigError: A setting is out of its bounds.
        ContractError: The frame has no ``schedule_id``, or is not a streaming one.
    """
    check_settings(commands, shards, memory_ms, limit, limits)
    contract = contract or Contract()
    if isinstance(clock, EventClock):
        contract = replace(contract, max_ahead_ms=clock.max_ahead_ms)
    rows = _command_rows(parse(commands, contract), shards, leveled=contract.levels is not None)
    return _through_the_wheel(
        rows,
        wheel=wheel,
        clock=clock,
        shards=shards,
        memory_ms=memory_ms,
        limit=limit,
        limits=limits,
    )


def schedule_stored(
    near: DataFrame,
    *,
    wheel: Wheel,
    clock: StoreClock,
    shards: int = 4,
    memory_ms: int | None = DEFAULT_MEMORY_MS,
    limit: int | None = None,
    leveled: bool = False,
) -> DataFrame:
    """The near side of a slot store: as :func:`schedule`, of the rows that a store's near partitions bring.

    Args:
        near: :meth:`wheel_udf.slot_store.SlotStore.near_stream`: commands that were parsed when they came, and what the store tells.
        wheel: The geometry.
        clock: The clock that the store's keeper publishes.
        shards: As in :func:`schedule`.
        memory_ms: As in :func:`schedule`.
        limit: As in :func:`schedule`.
        leveled: Whether the commands had delay levels when they were parsed.

    Returns:
        As :func:`schedule`.

    Raises:
        ConfigError: A setting is out of its bounds.
    """
    check_settings(near, shards, memory_ms, limit)
    rows = _stored_rows(near, shards, leveled=leveled)
    return _through_the_wheel(
        rows,
        wheel=wheel,
        clock=clock,
        shards=shards,
        memory_ms=memory_ms,
        limit=limit,
        stored=True,
    )


def _through_the_wheel(
    rows: DataFrame,
    *,
    wheel: Wheel,
    clock: Clock | StoreClock,
    shards: int,
    memory_ms: int | None,
    limit: int | None,
    limits: Limits | None = None,
    stored: bool = False,
) -> DataFrame:
    """Command rows and clock rows, by shard, through the step."""
    leveled = "level_error_ms" in rows.columns
    released, facts = stepped(
        rows,
        ShardStep,
        wheel=wheel,
        clock=clock,
        shards=shards,
        memory_ms=memory_ms,
        output_type=shard_step.LEVELED_OUTPUT_TYPE if leveled else shard_step.OUTPUT_TYPE,
        state_columns=STATE_COLUMNS,
        limit=limit,
        stored=stored,
        limits=limits or Limits(),
        leveled=leveled,
    )
    identity = levels.fingerprint(wheel.fingerprint(), leveled=leveled)
    return _public(released, facts | {"wheel": identity}, leveled=leveled)


def _command_rows(parsed: DataFrame, shards: int, *, leveled: bool) -> DataFrame:
    good = F.col("error_code").isNull()
    return _rows_of_step(
        parsed,
        shards,
        form=form_of(_int_or_0("op"), _int_or_0("seq_given")),
        reject=F.when(~good, F.to_json(F.struct(*REASON))),
        event_at=event_column(F.when(good, F.col("event_time_ms"))),
        leveled=leveled,
    )


def _stored_rows(near: DataFrame, shards: int, *, leveled: bool) -> DataFrame:
    """The rows of a store's near partitions as the step takes them."""
    form = form_of(*(_int_or_0(name) for name in ("op", "seq_given", "act", "amend")))
    no_event = F.lit(None).cast("timestamp")
    return _rows_of_step(near, shards, form=form, reject=F.col("reject"), event_at=no_event, leveled=leveled)


def _int_or_0(column: str) -> Column:
    return F.coalesce(F.col(column).cast("int"), F.lit(0))


def _rows_of_step(
    rows: DataFrame, shards: int, *, form: Column, reject: Column, event_at: Column, leveled: bool
) -> DataFrame:
    """Commands, wherever they come from, as the step takes them."""
    return rows.select(
        shard_column("schedule_id", shards),
        "schedule_id",
        form.cast("int").alias("form"),
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
        *(long_or(name, NO_LONG) for name in _STEP_COLUMNS_OF_LEVELS if leveled),
    )


def _public(released: DataFrame, facts: dict[str, Any], *, leveled: bool) -> DataFrame:
    """Turns the operator's rows into public ones: instants as timestamps, headers as an array, the ids of deliveries."""
    kind, note = F.col("kind"), F.col("note")
    is_fired, is_missed, is_rejected = (kind == each for each in ("fired", "missed", "rejected"))
    due_ms, fired_at_ms = (null_if_absent(name) for name in ("deliver_at_ms", "fired_at_ms"))
    late_ms = F.when(is_fired | is_missed, fired_at_ms - due_ms)
    error_ms = F.coalesce(null_if_absent("level_error_ms"), F.lit(0)) if leveled else F.lit(0)
    asked_ms = due_ms - error_ms if leveled else due_ms
    amend = F.coalesce(note, F.lit("0"))
    # Of the time that was asked for: a list of levels that changes gives nothing another id.
    identity = F.concat_ws("\x1f", "schedule_id", "seq", amend, asked_ms)
    about = F.struct("schedule_id", "seq", "destination", F.timestamp_millis(asked_ms).alias("deliver_at"))
    too_late = F.concat(
        F.lit("released too late: lateness_ms = "),
        late_ms,
        F.lit("; rule: at most max_lateness = "),
        note,
        F.lit(" ms"),
    )
    reason = F.when(is_rejected, F.from_json(note, REASON_TYPE))
    rejected_at = F.when(is_rejected, F.timestamp_millis(batch_ms())).when(
        is_missed, F.timestamp_millis(fired_at_ms)
    )
    return released.select(
        kind_with(facts),
        "schedule_id",
        F.when(kind != "status", F.col("seq")).alias("seq"),
        F.when(is_fired, F.md5(identity.cast("binary"))).alias("fire_id"),
        "destination",
        "key",
        "value",
        F.from_json("headers", HEADERS_TYPE).alias("headers"),
        F.timestamp_millis(asked_ms).alias("deliver_at"),
        F.timestamp_millis(fired_at_ms).alias("fired_at"),
        late_ms.alias("lateness_ms"),
        F.when(is_missed, "missed").otherwise(reason.error_code).alias("error_code"),
        F.when(is_missed, too_late).otherwise(reason.error_message).alias("error_message"),
        # A row that is refused here has no record of its own: its columns are all there is of it.
        F.when(is_missed | is_rejected, F.coalesce(reason.record, F.to_json(about))).alias("record"),
        "source",
        rejected_at.alias("rejected_at"),
        F.when(kind == "status", note).alias("status"),
        *_level_columns(is_fired | is_missed, due_ms, error_ms if leveled else None),
    )


def _level_columns(released: Column, due_ms: Column, error_ms: Column | None) -> list[Column]:
    """:data:`LEVEL_COLUMNS`; none without delay levels."""
    if error_ms is None:
        return []
    values = (F.timestamp_millis(due_ms), error_ms)
    return [F.when(released, value).alias(name) for name, value in zip(LEVEL_COLUMNS, values, strict=True)]
