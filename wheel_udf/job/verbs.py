"""The verbs on pending entries: pending, forecast, history, acts; cancel, move, reroute, fire-now; of series skip,
pause, resume, backfill; of dead letters redrive.

::

    wheel-udf pending  --config FILE [--id ID]... [--where SQL] [--limit N | --count] [--as-of INSTANT]
    wheel-udf forecast --config FILE [--where SQL] [--every '1 minute'] [--horizon '1 day'] [--png FILE]
                       [--as-of INSTANT]
    wheel-udf history  --config FILE --id ID
    wheel-udf acts     --config FILE
    wheel-udf cancel   --config FILE (--id ID | --where SQL)... [--dry-run]
    wheel-udf move     --config FILE (--id ID | --where SQL)... --to SQL [--dry-run]
    wheel-udf reroute  --config FILE (--id ID | --where SQL)... --to NAME [--dry-run]
    wheel-udf fire-now --config FILE (--id ID | --where SQL)... [--dry-run]
    wheel-udf skip     --config FILE (--id ID | --where SQL)... [--dry-run]
    wheel-udf backfill --config FILE (--id ID | --where SQL)... --from INSTANT --to INSTANT [--most N] [--dry-run]
    wheel-udf redrive  --config FILE (--id ID | --where SQL)... [--from NAME] [--rate N/s] [--dry-run]
    wheel-udf pause    --config FILE (--id ID | --where SQL)... [--dry-run]
    wheel-udf resume   --config FILE (--id ID | --where SQL)... [--dry-run]

They read the config of the job, and work while it runs and while it is stopped. Rows are printed as JSON, one on a
line (if there is none, a line says so), without key and value unless ``--payload`` is given. ``--dry-run`` counts and
changes nothing. A purgatory has ``pending`` (its operations), ``cancel`` and ``acts``. The arguments:
:mod:`wheel_udf.job.arguments`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from wheel_udf.checkpoint.identity import identity_of
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.instants import instant_text_ms
from wheel_udf.common.progress import PrintLine
from wheel_udf.job.compose import destinations_of, pending_work_of, sink_of
from wheel_udf.job.models.purgatory import AnyConfig, PurgatoryConfig
from wheel_udf.job.models.scheduler import SchedulerConfig
from wheel_udf.job.picture import draw
from wheel_udf.job.progress import progress_of
from wheel_udf.job.sessions import session
from wheel_udf.pending import acts
from wheel_udf.pending.entries import PendingWork, count_far, count_pending, forecast, pending
from wheel_udf.pending.history import history_of
from wheel_udf.pending.operations import operations_pending
from wheel_udf.pending.redrive import dead_letters, redrive
from wheel_udf.spark.failures import quiet_sql

_OF_PURGATORY = ("pending", "cancel", "acts")
_PLURAL = {
    "entry": "entries",
    "operation": "operations",
    "occurrence": "occurrences",
    "dead letter": "dead letters",
}


def execute(config: AnyConfig, asked: argparse.Namespace, print_line: PrintLine) -> None:
    """Executes a verb.

    Raises:
        ConfigError: A purgatory has no such verb.
        WheelError: The verb failed.
    """
    if isinstance(config, PurgatoryConfig) and asked.verb not in _OF_PURGATORY:
        raise ConfigError(
            "a purgatory has no such verb",
            field="verb",
            value=asked.verb,
            rule=", ".join(_OF_PURGATORY),
            hint="an operation cannot be changed: cancel it, and send a new one",
        )
    with quiet_sql(), session(config.name) as spark, progress_of(spark, asked.verb) as progress:
        print_line = progress.around(print_line)
        work = pending_work_of(spark, config)
        match asked.verb:
            case "pending" if isinstance(config, PurgatoryConfig):
                _list_operations(spark, config, asked, print_line)
            case "pending":
                _list(spark, work, asked, print_line)
            case "forecast":
                _forecast(spark, work, asked, print_line)
            case "history":
                _history(spark, work, config, asked.id, print_line)
            case "acts":
                _acts(spark, work, print_line)
            case "redrive":
                assert not isinstance(config, PurgatoryConfig), "refused above"
                _redrive(spark, work, config, asked, print_line)
            case _:
                noun = "operation" if isinstance(config, PurgatoryConfig) else "entry"
                _act(spark, work, asked, print_line, noun)


def _list_operations(
    spark: SparkSession, config: PurgatoryConfig, asked: argparse.Namespace, print_line: PrintLine
) -> None:
    rows = operations_pending(spark, config.checkpoint, as_of_ms=asked.as_of)
    if asked.id is not None or asked.where is not None:
        rows = _picked(asked).of(rows, "op_id")
    if asked.count:
        print_line(f"pending {rows.count()}")
        return
    shown = rows.orderBy("deadline", "group", "op_id").limit(asked.limit)
    payload = {"key", "value", "headers"}
    named = [F.col(name) for name in shown.columns if name not in payload]
    _say_rows(shown.select(*named, *_payload(asked)), print_line, _none(asked, "operations"))


def _none(asked: argparse.Namespace, noun: str) -> str:
    """The line that is printed if there are no rows."""
    if getattr(asked, "limit", 1) == 0:
        return ""  # there may be some
    return f"0 pending {noun}" + (" match" if asked.id is not None or asked.where is not None else "")


def _payload(asked: argparse.Namespace) -> list[Column]:
    return [F.col(name).cast("string").alias(name) for name in ("key", "value")] if asked.payload else []


def _picked(asked: argparse.Namespace) -> acts.Picked:
    return acts.Picked(asked.id, asked.where)


def _rows(spark: SparkSession, work: PendingWork, asked: argparse.Namespace) -> DataFrame:
    rows = pending(spark, work, ids=asked.id, as_of_ms=asked.as_of)
    return rows if asked.id is None and asked.where is None else _picked(asked).of(rows)


def _list(spark: SparkSession, work: PendingWork, asked: argparse.Namespace, print_line: PrintLine) -> None:
    if asked.count:
        everything = asked.id is None and asked.where is None and asked.as_of is None
        count = count_pending(spark, work) if everything else _rows(spark, work, asked).count()
        print_line(f"pending {count}")
        if work.store is not None:
            print_line(f"stored {count_far(work.store)}")
        return
    shown = _rows(spark, work, asked).orderBy("deliver_at", "schedule_id").limit(asked.limit)
    # JSON leaves nulls out: the line of an entry without a delay level has no columns of levels.
    scheduled = F.when(F.col("delay_level_ms").isNotNull(), F.col("scheduled_at")).alias("scheduled_at")
    kept = ("delay_level_ms", "destination", "max_lateness_ms", "source", "repeat", "occurrence")
    paused = F.when(F.col("paused"), F.col("paused")).alias("paused")
    _say_rows(
        shown.select("schedule_id", "seq", "deliver_at", scheduled, *kept, paused, "place", *_payload(asked)),
        print_line,
        _none(asked, "entries"),
    )


def _forecast(
    spark: SparkSession, work: PendingWork, asked: argparse.Namespace, print_line: PrintLine
) -> None:
    rows, clock_ms = _rows(spark, work, asked), _clock_ms(spark, work, asked.as_of)
    steps = forecast(rows, asked.every, horizon=asked.horizon, clock_ms=clock_ms).persist()
    try:
        _say_rows(steps, print_line, _none(asked, "entries"))
        if asked.png is not None and steps.isEmpty():
            print_line("no picture was drawn")
        elif asked.png is not None:
            draw(steps, asked.png)
            print_line(f"drawn: {asked.png}")
    finally:
        steps.unpersist()


def _clock_ms(spark: SparkSession, work: PendingWork, as_of_ms: int | None) -> int:
    """The clock from which a forecast looks ahead."""
    if as_of_ms is not None and identity_of(work.query).clock == "processing":
        return as_of_ms
    return acts.store_clock_ms(spark, work)


def _act(
    spark: SparkSession,
    work: PendingWork,
    asked: argparse.Namespace,
    print_line: PrintLine,
    noun: str,
) -> None:
    picked = _picked(asked)
    if asked.verb == "backfill":
        count = acts.backfill(
            spark,
            work,
            picked,
            from_ms=asked.begin,
            to_ms=asked.end,
            most=asked.most,
            dry_run=asked.dry_run,
        )
        noun = "occurrence"
    elif asked.verb in acts.PLAIN:
        count = acts.PLAIN[asked.verb](spark, work, picked, dry_run=asked.dry_run)
    else:
        act = acts.move if asked.verb == "move" else acts.reroute
        count = act(spark, work, picked, to=asked.to, dry_run=asked.dry_run)
    print_line(act_text(asked.verb, count, noun, dry_run=asked.dry_run))


def _redrive(
    spark: SparkSession,
    work: PendingWork,
    config: SchedulerConfig,
    asked: argparse.Namespace,
    print_line: PrintLine,
) -> None:
    picked = _picked(asked)
    name = asked.letters or config.dead_letters
    if name is None:
        hint = "name the destination with --from, or set dead_letters in the config"
        raise ConfigError(
            "no dead letters", field="dead_letters", value=None, rule="a destination", hint=hint
        )
    letters = dead_letters(spark, destinations_of(config).resolve(name), name)
    count = redrive(spark, work, letters, picked, per_s=asked.rate, dry_run=asked.dry_run)
    print_line(act_text(asked.verb, count, "dead letter", dry_run=asked.dry_run))


def act_text(verb: str, count: int, noun: str, *, dry_run: bool) -> str:
    """The sentence that says what an act has changed."""
    noun = noun if count == 1 else _PLURAL[noun]
    return f"would {verb} {count} {noun} (dry run)" if dry_run else f"{acts.DONE[verb]} {count} {noun}"


def _acts(spark: SparkSession, work: PendingWork, print_line: PrintLine) -> None:
    _say_rows(acts.audit(spark, work.query).orderBy("at", "batch"), print_line, "0 acts")


def _history(
    spark: SparkSession, work: PendingWork, config: AnyConfig, schedule_id: str, print_line: PrintLine
) -> None:
    events = history_of(
        spark,
        work,
        schedule_id,
        geometry=config.wheel.wheel(),
        destinations=destinations_of(config),
        rejects=sink_of(config.rejects),
    )
    for event in events:
        named = {name: value for name, value in asdict(event).items() if value is not None}
        named |= {
            name: instant_text_ms(named[name])
            for name in ("at_ms", "deliver_at_ms", "acted_at_ms")
            if name in named
        }
        print_line(json.dumps({name.removesuffix("_ms"): value for name, value in named.items()}))
    if not events:
        print_line(
            "nothing is known of this id: it never arrived, or ended long ago (see contract.memory), or went to files"
        )


def _say_rows(rows: DataFrame, print_line: PrintLine, none: str) -> None:
    lines = rows.select(F.to_json(F.struct("*")).alias("line")).collect()
    for row in lines:
        print_line(row.line)
    if none and not lines:
        print_line(none)
