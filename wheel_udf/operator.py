"""The operator: a streaming frame of commands in, one frame of everything that happened out.

::

    commands --parse--> command frame --.
                                         union --> groupBy(shard) --> step --> fired | missed | rejected | status
    clock source ----> clock rows ------'

:func:`schedule` is a function of a DataFrame to a DataFrame: it starts nothing, and any source and any sink will do. ``kind`` says what a row
is; :func:`fired`, :func:`rejects` and :func:`status` select. One row of status per touched shard and batch carries counts, next due time and
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

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from wheel_udf import levels, shard_step
from wheel_udf.clock import CLOCK_FORMAT, Clock, ClockSource, EventClock, StoreClock, clock_options
from wheel_udf.columns import batch_ms
from wheel_udf.commands import Contract, parse
from wheel_udf.errors import ConfigError, ContractError
from wheel_udf.geometry import Wheel
from wheel_udf.hints import HintBoard
from wheel_udf.limits import BOUNDS, Limits
from wheel_udf.prepared import Prepared
from wheel_udf.shard_step import NO_LONG, ShardStep, form_of
from wheel_udf.shards import key_of_shard, shard_keys, shard_of_id
from wheel_udf.state import OUTCOMES, STATE_COLUMNS

METADATA_KEY = "wheel_udf"
HEADERS_TYPE = "array<struct<key: string, value: binary>>"
DEFAULT_MEMORY_MS = 300_000
LARGEST_SHARDS = 1024

FIRED_COLUMNS = (
    "schedule_id", "seq", "fire_id", "destination", "key", "value", "headers", "deliver_at", "fired_at", "lateness_ms",
)  # fmt: skip
LEVEL_COLUMNS = ("scheduled_at", "level_error_ms")
"""With delay levels: when it was to be released, a timestamp, and how much later that is than ``deliver_at``, in ms."""
REJECT_COLUMNS = (
    "error_code", "error_message", "record", "source", "schedule_id", "seq", "destination", "key", "value", "headers",
    "deliver_at", "rejected_at",
)  # fmt: skip

_STATUS_TYPE = ", ".join(
    [
        "shard int, batch_id long, query_id string, run string, clock_ms long, watermark_ms long, next_due_ms long, pending long, far long, levels map<string, long>",
        "received long, fired_now long, missed_now long, rejected_now long, refused_now long, full map<string, double>, spread_now long, lateness string, destinations map<string, long>, largest map<string, long>",
        *(f"{name} long" for name in OUTCOMES),
    ]
)
_STEP_COLUMNS_OF_LEVELS = ("delay_level_ms", "level_error_ms")
_REASON = ("error_code", "error_message", "record")
_REASON_TYPE = ", ".join(f"{name} string" for name in _REASON)
_EARLIEST, _LATEST = "1678-01-01 00:00:00Z", "2261-12-31 00:00:00Z"


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
        A streaming frame; ``kind`` is ``fired``, ``missed``, ``rejected`` or ``status``. With delay levels it has :data:`LEVEL_COLUMNS` too, and
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
    board, spark, leveled = HintBoard(), rows.sparkSession, "level_error_ms" in rows.columns
    rows = with_clock_rows(rows, clock, shards, board)
    step = ShardStep(
        wheel=wheel,
        shards=shards,
        keys=shard_keys(shards),
        clock_kind=clock.kind,
        first_ms=getattr(clock, "first_ms", 0),
        delay_ms=getattr(clock, "delay_ms", 0),
        memory_ms=memory_ms,
        limit=limit,
        board_folder=str(board.folder) if is_local(spark) else None,
        stored=stored,
        limits=limits or Limits(),
        leveled=leveled,
    )
    released = rows.groupBy("shard").applyInPandasWithState(
        step,
        outputStructType=shard_step.LEVELED_OUTPUT_TYPE if leveled else shard_step.OUTPUT_TYPE,
        stateStructType=", ".join(f"{name} {kind}" for name, kind in STATE_COLUMNS.items()),
        outputMode="append",
        timeoutConf=GroupStateTimeout.NoTimeout,
    )
    identity = levels.fingerprint(wheel.fingerprint(), leveled=leveled)
    facts = {"wheel": identity, "shards": shards, "clock": clock.kind, "board": str(board.folder)}
    return _public(released, facts, leveled=leveled)


def fired(scheduled: DataFrame) -> DataFrame:
    """The released rows, with the columns of a delivery (:data:`FIRED_COLUMNS`, with delay levels :data:`LEVEL_COLUMNS` too)."""
    more = LEVEL_COLUMNS if _is_leveled(scheduled) else ()
    return scheduled.where("kind = 'fired'").select(*FIRED_COLUMNS, *more)


def rejects(scheduled: DataFrame) -> DataFrame:
    """The rows that could not be used, and those that were missed, each with its reason (:data:`REJECT_COLUMNS`)."""
    return _REJECT_ROWS.select(scheduled.where("kind IN ('rejected', 'missed')"))


def delivered(scheduled: DataFrame) -> DataFrame:
    """The released rows as a batch is written: :func:`fired` and their ``source``."""
    rows = _LEVELED_ROWS if _is_leveled(scheduled) else _DELIVERED_ROWS
    return rows.select(scheduled.where("kind = 'fired'"))


def _is_leveled(scheduled: DataFrame) -> bool:
    return LEVEL_COLUMNS[0] in scheduled.columns


def status(scheduled: DataFrame) -> DataFrame:
    """One row per touched shard and batch: clock, next due, pending, and all counts by outcome since the beginning."""
    parsed = F.from_json("status", _STATUS_TYPE)
    return scheduled.where(F.col("kind") == "status").select(parsed.alias("status")).select("status.*")


_REJECT_ROWS = Prepared(lambda: [F.col(name) for name in REJECT_COLUMNS])
_DELIVERED_ROWS = Prepared(lambda: [F.col(name) for name in (*FIRED_COLUMNS, "source")])
_LEVELED_ROWS = Prepared(lambda: [F.col(name) for name in (*FIRED_COLUMNS, *LEVEL_COLUMNS, "source")])


def facts_of(scheduled: DataFrame) -> dict[str, Any]:
    """What :func:`schedule` noted about a frame: geometry, shards, clock and hint board.

    Raises:
        ContractError: The frame was not made by :func:`schedule`.
    """
    fields = {field.name: field for field in scheduled.schema.fields}
    if "kind" not in fields or METADATA_KEY not in fields["kind"].metadata:
        raise ContractError(
            "this frame was not made by schedule()",
            field="columns",
            value=scheduled.columns,
            rule="the frame of schedule(), with its column `kind`",
            hint="deliver the frame itself; rows of a kind are selected by the sinks",
        )
    facts: dict[str, Any] = json.loads(fields["kind"].metadata[METADATA_KEY])
    return facts


def check_settings(
    commands: DataFrame, shards: int, memory_ms: int | None, limit: int | None, limits: Limits | None = None
) -> None:
    """Sees to it that a frame is a stream and settings are within their bounds.

    Raises:
        ContractError: It is none.
        ConfigError: One is not.
    """
    if not commands.isStreaming:
        raise ContractError(
            "schedule() needs a streaming frame",
            field="commands.isStreaming",
            value=False,
            hint="read it with spark.readStream",
        )
    bounds = (
        ("shards", shards, 1, LARGEST_SHARDS),
        ("memory_ms", memory_ms, 0, None),
        ("limit", limit, 1, None),
        # Each shard has to have a part of it.
        *((f"limits.{bound}", getattr(limits, bound), shards, None) for bound in BOUNDS if limits),
    )
    for name, value, least, most in bounds:
        if value is not None and (value < least or (most is not None and value > most)):
            rule = f"{least} to {most}" if most is not None else f"at least {least}"
            raise ConfigError("a setting is out of its bounds", field=name, value=value, rule=rule)


def is_local(spark: SparkSession) -> bool:
    """Whether executors run on the driver's machine."""
    return spark.conf.get("spark.master", "").startswith("local")  # type: ignore[union-attr]


def long_or(column: str, instead: int) -> Column:
    """A long without nulls."""
    # A long with nulls becomes a float64 in pandas and loses its low bits beyond 2^53.
    return F.coalesce(F.col(column), F.lit(instead).cast("long")).alias(column)


def _command_rows(parsed: DataFrame, shards: int, *, leveled: bool) -> DataFrame:
    good = F.col("error_code").isNull()
    event_at = F.when(good, F.timestamp_millis("event_time_ms"))
    bounded = F.greatest(
        F.least(event_at, F.lit(_LATEST).cast("timestamp")), F.lit(_EARLIEST).cast("timestamp")
    )
    return _rows_of_step(
        parsed,
        shards,
        form=form_of(_int_or_0("op"), _int_or_0("seq_given")),
        reject=F.when(~good, F.to_json(F.struct(*_REASON))),
        event_at=F.when(good & event_at.isNotNull(), bounded),
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
        key_of_shard(shard_of_id(F.col("schedule_id"), shards), shards).alias("shard"),
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
        F.lit(None).cast("string").alias("tick"),
        *(long_or(name, NO_LONG) for name in _STEP_COLUMNS_OF_LEVELS if leveled),
    )


_with_clock: WeakSet[SparkSession] = WeakSet()


def _register_clock(spark: SparkSession) -> None:
    # Spark warns when a source is registered again in a session.
    if spark not in _with_clock:
        with _package_on_path(spark):
            spark.dataSource.register(ClockSource)
        _with_clock.add(spark)


@contextmanager
def _package_on_path(spark: SparkSession) -> Iterator[None]:
    """Functions that Spark is given inside look for this package where the driver has found it, besides their own places.

    The Python process beside the driver that runs a streaming source gets no ``--py-files`` (Spark 4.2), unlike those on executors.
    """
    environment: dict[str, str] = spark.sparkContext.environment
    before = environment.get("PYTHONPATH")
    home = str(Path(__file__).parents[1])  # a folder, or the zip itself
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [before, home]))
    try:
        yield
    finally:
        del environment["PYTHONPATH"]
        if before is not None:
            environment["PYTHONPATH"] = before


def with_clock_rows(rows: DataFrame, clock: Clock | StoreClock, shards: int, board: HintBoard) -> DataFrame:
    """Rows of a step and a row for each shard in each tick of the clock, which has ``shard`` and ``tick`` and blanks in all other columns.

    Args:
        rows: With the columns ``shard``, ``tick`` and ``event_at``. The last is what makes the watermark of the event clock, and is dropped for others.
        clock: What time it is.
        shards: How many.
        board: Where the answers of the shards are posted.
    """
    spark = rows.sparkSession
    _register_clock(spark)
    ticks = spark.readStream.format(CLOCK_FORMAT).options(**clock_options(clock, shards, board.folder)).load()
    instant = F.coalesce(F.col("instant_ms").cast("string"), F.lit(""))
    own = {
        "shard": key_of_shard(F.col("shard"), shards),
        "tick": F.concat_ws("|", F.coalesce("run", F.lit("")), instant),
    }
    blank = {"bigint": F.lit(NO_LONG), "int": F.lit(0)}
    columns = [
        own.get(field.name, blank.get(kind := field.dataType.simpleString(), F.lit(None).cast(kind))).alias(
            field.name
        )
        for field in rows.schema
    ]
    # The clock first: Spark asks the sources in this order, so what a published instant covers is in the log when that is read.
    rows = ticks.select(columns).unionByName(rows)
    if isinstance(clock, EventClock):
        return rows.withWatermark("event_at", f"{clock.delay_ms} milliseconds")
    return rows.drop("event_at")


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
    reason = F.when(is_rejected, F.from_json(note, _REASON_TYPE))
    rejected_at = F.when(is_rejected, F.timestamp_millis(batch_ms())).when(
        is_missed, F.timestamp_millis(fired_at_ms)
    )
    return released.select(
        kind.alias("kind", metadata={METADATA_KEY: json.dumps(facts)}),
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


def null_if_absent(column: str) -> Column:
    """A long with nulls again."""
    return F.when(F.col(column) != NO_LONG, F.col(column))
