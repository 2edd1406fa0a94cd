"""Looking at what is pending, and acting on it, from the command line: the verbs beside ``run`` and ``dry-run``.

::

    delay_scheduler.py pending  --config FILE [--id ID]... [--where SQL] [--limit N | --count] [--as-of INSTANT]
    delay_scheduler.py forecast --config FILE [--where SQL] [--every '1 minute'] [--png FILE] [--as-of INSTANT]
    delay_scheduler.py cancel   --config FILE (--id ID | --where SQL)... [--dry-run]
    delay_scheduler.py move     --config FILE (--id ID | --where SQL)... --to SQL [--dry-run]
    delay_scheduler.py reroute  --config FILE (--id ID | --where SQL)... --to NAME [--dry-run]
    delay_scheduler.py acts     --config FILE
    delay_scheduler.py history  --config FILE --id ID

They read the config of the job and run beside it, or while it rests. Rows are printed as JSON, a line each, without key and value unless ``--payload`` asks
for them. ``--dry-run`` counts and changes nothing. Of a purgatory there is ``pending``: its operations. The arguments: :mod:`wheel_udf.desk_arguments`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from wheel_udf import acts
from wheel_udf.errors import ActError, ConfigError
from wheel_udf.failures import quiet_sql
from wheel_udf.history import history
from wheel_udf.job import destinations_of, session, sink_of
from wheel_udf.metrics import instant_text
from wheel_udf.pending import Wheel, forecast, pending, stored
from wheel_udf.settings import JobConfig
from wheel_udf.slot_store import SlotStore
from wheel_udf.watch_pending import operations_pending
from wheel_udf.watch_settings import WatchJobConfig

Say = Callable[[str], None]


def run(config: JobConfig, asked: argparse.Namespace, say: Say) -> int:
    """Does what was asked.

    Args:
        config: The checked config of the job.
        asked: Of :func:`wheel_udf.desk_arguments.parse`.
        say: Takes the lines.

    Returns:
        0.

    Raises:
        WheelError: It cannot be done.
    """
    with quiet_sql(), session(config.name) as spark:
        wheel = _wheel(spark, config)
        if asked.verb == "pending":
            _list(spark, wheel, asked, say)
        elif asked.verb == "forecast":
            _forecast(spark, wheel, asked, say)
        elif asked.verb == "history":
            _history(spark, wheel, config, asked.id, say)
        elif asked.verb == "acts":
            _acts(spark, wheel, say)
        else:
            _act(spark, wheel, asked, say)
    return 0


def run_watch(config: WatchJobConfig, asked: argparse.Namespace, say: Say) -> int:
    """As :func:`run`, of a purgatory; of the verbs it has ``pending``.

    Raises:
        ConfigError: Another verb.
        WheelError: It cannot be done.
    """
    if asked.verb != "pending":
        raise ConfigError(
            "a purgatory has no such verb",
            field="verb",
            value=asked.verb,
            rule="pending",
            hint="an operation is cancelled by an event: op CANCEL_OPERATION, key its op_id",
        )
    with quiet_sql(), session(config.name) as spark:
        rows = operations_pending(spark, config.checkpoint, as_of_ms=asked.as_of)
        if asked.id is not None or asked.where is not None:
            rows = _picked(asked).of(rows, "op_id")
        if asked.count:
            say(f"pending {rows.count()}")
            return 0
        shown = rows.orderBy("deadline", "group", "op_id").limit(asked.limit)
        payload = {"key", "value", "headers"}
        named = [F.col(name) for name in shown.columns if name not in payload]
        _say_rows(shown.select(*named, *_payload(asked)), say)
    return 0


def _payload(asked: argparse.Namespace) -> list[Column]:
    return [F.col(name).cast("string").alias(name) for name in ("key", "value")] if asked.payload else []


def _wheel(spark: SparkSession, config: JobConfig) -> Wheel:
    if config.store is None:
        return Wheel(config.checkpoint)
    store = SlotStore.open(spark, config.store.path, config.wheel.layout(), create=False)
    return Wheel(config.checkpoint, store)


def _picked(asked: argparse.Namespace) -> acts.Picked:
    return acts.Picked(asked.id, asked.where)


def _rows(spark: SparkSession, wheel: Wheel, asked: argparse.Namespace) -> DataFrame:
    rows = pending(spark, wheel, ids=asked.id, as_of_ms=asked.as_of)
    return rows if asked.id is None and asked.where is None else _picked(asked).of(rows)


def _list(spark: SparkSession, wheel: Wheel, asked: argparse.Namespace, say: Say) -> None:
    rows = _rows(spark, wheel, asked)
    if asked.count:
        say(f"pending {rows.count()}")
        if wheel.store is not None:
            say(f"stored {stored(wheel.store)}")
        return
    shown = rows.orderBy("deliver_at", "schedule_id").limit(asked.limit)
    # What is null is left out of a line: of an entry without a delay level nothing is said of levels.
    scheduled = F.when(F.col("delay_level_ms").isNotNull(), F.col("scheduled_at")).alias("scheduled_at")
    kept = ("delay_level_ms", "destination", "max_lateness_ms", "source", "place")
    _say_rows(shown.select("schedule_id", "seq", "deliver_at", scheduled, *kept, *_payload(asked)), say)


def _forecast(spark: SparkSession, wheel: Wheel, asked: argparse.Namespace, say: Say) -> None:
    steps = forecast(_rows(spark, wheel, asked), asked.every).persist()
    try:
        _say_rows(steps, say)
        if asked.png is not None and steps.isEmpty():
            say("nothing is pending: nothing was drawn")
        elif asked.png is not None:
            draw(steps, asked.png)
            say(f"drawn: {asked.png}")
    finally:
        steps.unpersist()


def draw(steps: DataFrame, file: Path) -> None:
    """The forecast as a picture: rows that fall due in each step, stacked by destination (the eight largest by name)."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise ActError(
            "drawing needs matplotlib", field="png", hint="pip install 'wheel-udf[demo]'"
        ) from None
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    table = (
        steps.toPandas()
        .pivot_table(index="due_from", columns="destination", values="rows", aggfunc="sum")
        .fillna(0)
    )
    largest = table.sum().sort_values(ascending=False).index
    named = table[list(largest[:8])].assign(
        **({"others": table[list(largest[8:])].sum(axis=1)} if len(largest) > 8 else {})
    )
    figure, axes = plt.subplots(figsize=(10, 4), layout="constrained")
    # Bars, since steps without rows are left out: a line would run on over them. The steps are as wide as the nearest two are apart.
    apart = named.index.to_series().diff().min()
    width = apart if len(named) > 1 else 0.01  # days
    base = 0 * named.iloc[:, 0]
    for destination in named.columns:
        axes.bar(named.index, named[destination], width=width, bottom=base, align="edge", label=destination)
        base = base + named[destination]
    axes.set(title="what falls due, by destination", xlabel="due (UTC)", ylabel="rows a step")
    axes.legend(loc="upper right", fontsize="small")
    figure.autofmt_xdate()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)
    plt.close(figure)


def _act(spark: SparkSession, wheel: Wheel, asked: argparse.Namespace, say: Say) -> None:
    picked = _picked(asked)
    if asked.verb == "cancel":
        count = acts.cancel(spark, wheel, picked, dry_run=asked.dry_run)
    else:
        act = acts.move if asked.verb == "move" else acts.reroute
        count = act(spark, wheel, picked, to=asked.to, dry_run=asked.dry_run)
    say(
        f"{asked.verb}: {count} pending {'would be' if asked.dry_run else 'are'} meant{', nothing was changed' if asked.dry_run else ''}"
    )


def _acts(spark: SparkSession, wheel: Wheel, say: Say) -> None:
    if wheel.store is not None:
        _say_rows(acts.audit(spark, wheel.store).orderBy("at"), say)


def _history(spark: SparkSession, wheel: Wheel, config: JobConfig, schedule_id: str, say: Say) -> None:
    events = history(
        spark,
        wheel,
        schedule_id,
        geometry=config.wheel.wheel(),
        destinations=destinations_of(config),
        rejects=sink_of(config.rejects),
    )
    for event in events:
        named = {name: value for name, value in asdict(event).items() if value is not None}
        named |= {name: _instant(named[name]) for name in ("at_ms", "deliver_at_ms") if name in named}
        say(json.dumps({name.removesuffix("_ms"): value for name, value in named.items()}))
    if not events:
        say(
            "nothing is known of this id: it never came, or ended long ago (see `memory`), or went to Kafka or files"
        )


def _instant(instant_ms: int) -> str:
    whole = instant_text(instant_ms)
    return f"{whole[:-1]}.{instant_ms % 1_000:03}Z" if whole.endswith("Z") else whole


def _say_rows(rows: DataFrame, say: Say) -> None:
    for row in rows.select(F.to_json(F.struct("*")).alias("line")).collect():
        say(row.line)
