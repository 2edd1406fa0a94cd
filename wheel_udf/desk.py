"""Looking at what is pending, and acting on it, from the command line: the verbs beside ``run`` and ``dry-run``.

::

    delay_scheduler.py pending  --config FILE [--id ID]... [--where SQL] [--limit N | --count]
    delay_scheduler.py forecast --config FILE [--where SQL] [--every '1 minute'] [--png FILE]
    delay_scheduler.py cancel   --config FILE (--id ID | --where SQL)... [--dry-run]
    delay_scheduler.py move     --config FILE (--id ID | --where SQL)... --to SQL [--dry-run]
    delay_scheduler.py reroute  --config FILE (--id ID | --where SQL)... --to NAME [--dry-run]
    delay_scheduler.py acts     --config FILE

They read the config of the job and run beside it, or while it rests. Rows are printed as JSON, a line each, without key and value unless ``--payload`` asks
for them. ``--dry-run`` counts and changes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from wheel_udf import acts
from wheel_udf.errors import ActError
from wheel_udf.job import session
from wheel_udf.pending import Wheel, forecast, pending, stored
from wheel_udf.settings import JobConfig
from wheel_udf.slot_store import SlotStore

VERBS: Final = {
    "pending": "what is pending: list, get by id, count",
    "forecast": "the load to come, by step of time and destination, as lines and as a picture",
    "cancel": "ends pending entries without firing them (tiered mode)",
    "move": "gives pending entries another due time (tiered mode)",
    "reroute": "gives pending entries another destination (tiered mode)",
    "acts": "what has been cancelled, moved and rerouted, by whom and when",
}
_COLUMNS = "schedule_id, seq, deliver_at, destination, key, value, headers, max_lateness_ms, source, place"

Say = Callable[[str], None]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments of these verbs; ends the process on a fault, as argparse does."""
    common = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    common.add_argument("--config", required=True, metavar="FILE", help="the YAML file of the job")
    common.add_argument(
        "--set", action="append", default=[], metavar="a.b=c", help="sets a value of the config; repeatable"
    )
    common.add_argument("--debug", action="store_true", help="shows the stack trace of an error")
    which = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    which.add_argument("--id", action="append", metavar="ID", help="a schedule_id; repeatable")
    which.add_argument("--where", metavar="SQL", help=f"true for the rows that are meant, over: {_COLUMNS}")
    dry = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    dry.add_argument("--dry-run", action="store_true", help="counts what is meant and changes nothing")
    top = argparse.ArgumentParser(prog="delay_scheduler.py", allow_abbrev=False)
    verbs = top.add_subparsers(dest="verb", required=True)

    def verb(name: str, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        return verbs.add_parser(
            name, parents=[common, *parents], help=VERBS[name], description=VERBS[name], allow_abbrev=False
        )

    listed = verb("pending", which)
    listed.add_argument(
        "--limit", type=int, default=20, metavar="N", help="most rows, by due time (default 20)"
    )
    listed.add_argument(
        "--count", action="store_true", help="only how many, exactly; and how many the store holds"
    )
    listed.add_argument("--payload", action="store_true", help="key and value too, as text")
    coming = verb("forecast", which)
    coming.add_argument(
        "--every", default="1 minute", metavar="TIME", help="width of a step (default 1 minute)"
    )
    coming.add_argument("--png", type=Path, metavar="FILE", help="draws it")
    verb("cancel", which, dry)
    verb("move", which, dry).add_argument(
        "--to",
        required=True,
        metavar="SQL",
        help="a timestamp: \"timestamp'2026-01-01 10:00:00'\", 'deliver_at + interval 1 hour'",
    )
    verb("reroute", which, dry).add_argument("--to", required=True, metavar="NAME", help="a destination")
    verb("acts")
    return top.parse_args(argv)


def run(config: JobConfig, asked: argparse.Namespace, say: Say) -> int:
    """Does what was asked.

    Args:
        config: The checked config of the job.
        asked: Of :func:`parse`.
        say: Takes the lines.

    Returns:
        0.

    Raises:
        WheelError: It cannot be done.
    """
    with session(config.name) as spark:
        wheel = _wheel(spark, config)
        if asked.verb == "pending":
            _list(spark, wheel, asked, say)
        elif asked.verb == "forecast":
            _forecast(spark, wheel, asked, say)
        elif asked.verb == "acts":
            _acts(spark, wheel, say)
        else:
            _act(spark, wheel, asked, say)
    return 0


def _wheel(spark: SparkSession, config: JobConfig) -> Wheel:
    if config.store is None:
        return Wheel(config.checkpoint)
    store = SlotStore.open(spark, config.store.path, config.wheel.layout(), create=False)
    return Wheel(config.checkpoint, store)


def _picked(asked: argparse.Namespace) -> acts.Picked:
    return acts.Picked(asked.id, asked.where)


def _rows(spark: SparkSession, wheel: Wheel, asked: argparse.Namespace) -> DataFrame:
    rows = pending(spark, wheel)
    return rows if asked.id is None and asked.where is None else _picked(asked).of(rows)


def _list(spark: SparkSession, wheel: Wheel, asked: argparse.Namespace, say: Say) -> None:
    rows = _rows(spark, wheel, asked)
    if asked.count:
        say(f"pending {rows.count()}")
        if wheel.store is not None:
            say(f"stored {stored(wheel.store)}")
        return
    payload = [F.col(name).cast("string").alias(name) for name in ("key", "value")] if asked.payload else []
    shown = rows.orderBy("deliver_at", "schedule_id").limit(asked.limit)
    kept = ("schedule_id", "seq", "deliver_at", "destination", "max_lateness_ms", "source", "place")
    _say_rows(shown.select(*kept, *payload), say)


def _forecast(spark: SparkSession, wheel: Wheel, asked: argparse.Namespace, say: Say) -> None:
    steps = forecast(_rows(spark, wheel, asked), asked.every).persist()
    try:
        _say_rows(steps, say)
        if asked.png is not None:
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
    base = 0 * named.iloc[:, 0]
    for destination in named.columns:
        width = apart if len(named) > 1 else 0.01  # days
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


def _say_rows(rows: DataFrame, say: Say) -> None:
    for row in rows.select(F.to_json(F.struct("*")).alias("line")).collect():
        say(row.line)
