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

They read the config of the job, and work while it runs and while it is stopped. A job that runs answers them itself,
over HTTP (:mod:`wheel_udf.job.asking`); else they start Spark. Rows are printed as JSON, one on a line (if there is
none, a line says so), without key and value unless ``--payload`` is given. ``--dry-run`` counts and changes nothing. A
purgatory has ``pending`` (its operations), ``cancel`` and ``acts``. The arguments: :mod:`wheel_udf.job.arguments`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from wheel_udf.api.answer import Answer
from wheel_udf.checkpoint.identity import identity_of
from wheel_udf.checkpoint.spark_logs import last_committed
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.instants import instant_text_ms
from wheel_udf.common.progress import PrintLine
from wheel_udf.job.asking import print_answer
from wheel_udf.job.compose import destinations_of, pending_work_of, sink_of
from wheel_udf.job.models.purgatory import AnyConfig, PurgatoryConfig
from wheel_udf.job.models.scheduler import SchedulerConfig
from wheel_udf.job.progress import progress_of
from wheel_udf.job.sessions import session
from wheel_udf.pending import acts
from wheel_udf.pending.entries import PendingWork, count_far, count_pending, forecast, pending
from wheel_udf.pending.history import history_of
from wheel_udf.pending.operations import operations_pending
from wheel_udf.pending.redrive import dead_letters, redrive
from wheel_udf.spark.failures import quiet_sql

_FEW = 10_000
"""Of more rows, reading all entries costs less than finding the first ones."""

OF_PURGATORY = ("pending", "cancel", "acts")
_PLURAL = {
    "entry": "entries",
    "operation": "operations",
    "occurrence": "occurrences",
    "dead letter": "dead letters",
}


def execute(config: AnyConfig, asked: argparse.Namespace, print_line: PrintLine) -> None:
    """Executes a verb in a session of its own.

    Raises:
        ConfigError: A purgatory has no such verb.
        WheelError: The verb failed.
    """
    require_verb(config, asked.verb)
    if asked.verb in acts.DONE:
        _picked(asked)  # a usage error needs no Spark
    with quiet_sql(), session(config.name) as spark, progress_of(spark, asked.verb) as progress:
        answer = answer_of(spark, config, pending_work_of(spark, config), asked)
        print_answer(answer, asked, progress.around(print_line))


def require_verb(config: AnyConfig, verb: str) -> None:
    """Checks that a job has a verb.

    Raises:
        ConfigError: A purgatory has no such verb.
    """
    if isinstance(config, PurgatoryConfig) and verb not in OF_PURGATORY:
        raise ConfigError(
            "a purgatory has no such verb",
            field="verb",
            value=verb,
            rule=", ".join(OF_PURGATORY),
            hint="an operation cannot be changed: cancel it, and send a new one",
        )


def answer_of(
    spark: SparkSession,
    config: AnyConfig,
    work: PendingWork,
    asked: argparse.Namespace,
    most: int | None = None,
) -> Answer:
    """Answers a verb.

    Args:
        spark: A session.
        config: The config of the job.
        work: Its pending work.
        asked: The arguments.
        most: How many rows a forecast may have; None: any number.

    Raises:
        ConfigError: A forecast has more rows.
        WheelError: The verb failed.
    """
    match asked.verb:
        case "pending" if asked.count:
            return _count(spark, config, work, asked)
        case "pending" | "forecast":
            return _of_frame(frame_of(spark, config, work, asked, most), _none(config, work, asked), most)
        case "history":
            return _history(spark, work, config, asked.id)
        case "acts":
            return _of_frame(acts.audit(spark, work.query).orderBy("at", "batch"), "0 acts")
        case "redrive":
            assert not isinstance(config, PurgatoryConfig), "it has no such verb"
            return _redrive(spark, work, config, asked)
        case _:
            return _act(spark, work, asked, "operation" if isinstance(config, PurgatoryConfig) else "entry")


def frame_of(
    spark: SparkSession,
    config: AnyConfig,
    work: PendingWork,
    asked: argparse.Namespace,
    most: int | None = None,
) -> DataFrame:
    """The rows of ``pending`` or ``forecast``; of a forecast one more than `most`, see :func:`require_most`."""
    if asked.verb == "forecast":
        rows, clock_ms = _rows(spark, work, asked), _clock_ms(spark, work, asked.as_of)
        steps = forecast(rows, asked.every, horizon=asked.horizon, clock_ms=clock_ms)
        return steps if most is None else steps.limit(most + 1)
    if isinstance(config, PurgatoryConfig):
        return _operations(spark, config, asked)
    first = asked.limit if asked.where is None and asked.limit <= _FEW else None
    rows = _rows(spark, work, asked, first)
    shown = rows.orderBy(F.asc_nulls_last("scheduled_at"), "schedule_id").limit(asked.limit)
    # JSON leaves nulls out: the line of an entry without a delay level has no columns of levels.
    scheduled = F.when(F.col("delay_level_ms").isNotNull(), F.col("scheduled_at")).alias("scheduled_at")
    kept = ("delay_level_ms", "destination", "max_lateness_ms", "source", "repeat", "occurrence")
    paused = F.when(F.col("paused"), F.col("paused")).alias("paused")
    return shown.select(
        "schedule_id", "seq", "deliver_at", scheduled, *kept, paused, "place", *_payload(asked)
    )


def _operations(spark: SparkSession, config: PurgatoryConfig, asked: argparse.Namespace) -> DataFrame:
    shown = _operations_asked(spark, config, asked).orderBy("deadline", "group", "op_id").limit(asked.limit)
    payload = {"key", "value", "headers"}
    return shown.select(*(F.col(name) for name in shown.columns if name not in payload), *_payload(asked))


def _operations_asked(spark: SparkSession, config: PurgatoryConfig, asked: argparse.Namespace) -> DataFrame:
    rows = operations_pending(spark, config.checkpoint, as_of_ms=asked.as_of)
    return rows if asked.id is None and asked.where is None else _picked(asked).of(rows, "op_id")


def _count(spark: SparkSession, config: AnyConfig, work: PendingWork, asked: argparse.Namespace) -> Answer:
    if isinstance(config, PurgatoryConfig):
        counts = {"pending": _operations_asked(spark, config, asked).count()}
    else:
        everything = asked.id is None and asked.where is None and asked.as_of is None
        counts = {"pending": count_pending(spark, work) if everything else _rows(spark, work, asked).count()}
        if work.store is not None:
            counts["stored"] = count_far(work.store)
    return Answer.of_counts(**counts)


def require_most(count: int, most: int) -> None:
    """Refuses a forecast of more rows than fit into one answer.

    Raises:
        ConfigError: It has more.
    """
    if count > most:
        raise ConfigError(
            "a forecast of too many rows for one answer",
            field="every",
            rule=f"up to {most:,} rows",
            hint="wider steps, or a condition",
        )


def _of_frame(rows: DataFrame, none: str, most: int | None = None) -> Answer:
    """The rows of a frame; `none` says that there are none."""
    found = [json.loads(row.line) for row in rows.select(F.to_json(F.struct("*")).alias("line")).collect()]
    if most is not None:
        require_most(len(found), most)
    return Answer(rows=found, lines=[none] if none and not found else [])


def _none(config: AnyConfig, work: PendingWork, asked: argparse.Namespace) -> str:
    """The line that is printed if there are no rows."""
    if getattr(asked, "limit", 1) == 0:
        return ""  # there may be some
    early = "" if last_committed(work.query) is not None else "; no batch has ended yet"
    if asked.verb == "forecast":
        return f"nothing falls due (a forecast leaves out paused series){early}"
    noun = "operations" if isinstance(config, PurgatoryConfig) else "entries"
    matching = " match" if asked.id is not None or asked.where is not None else ""
    return f"0 pending {noun}{matching}{early}"


def _payload(asked: argparse.Namespace) -> list[Column]:
    if not asked.payload:
        return []
    # A payload need not be text, but a string of a table does.
    return [F.make_valid_utf8(F.col(name).cast("string")).alias(name) for name in ("key", "value")]


def _picked(asked: argparse.Namespace) -> acts.Picked:
    return acts.Picked(asked.id, asked.where)


def _rows(
    spark: SparkSession, work: PendingWork, asked: argparse.Namespace, first: int | None = None
) -> DataFrame:
    rows = pending(spark, work, ids=asked.id, as_of_ms=asked.as_of, first=first)
    return rows if asked.id is None and asked.where is None else _picked(asked).of(rows)


def _clock_ms(spark: SparkSession, work: PendingWork, as_of_ms: int | None) -> int:
    """The clock from which a forecast looks ahead."""
    if as_of_ms is not None and identity_of(work.query).clock == "processing":
        return as_of_ms
    return acts.store_clock_ms(spark, work)


def _act(spark: SparkSession, work: PendingWork, asked: argparse.Namespace, noun: str) -> Answer:
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
    return _acted(asked, count, noun)


def _acted(asked: argparse.Namespace, count: int, noun: str) -> Answer:
    lines = [act_text(asked.verb, count, noun, dry_run=asked.dry_run)]
    return Answer(counts={"picked" if asked.dry_run else "changed": count}, lines=lines)


def _redrive(
    spark: SparkSession, work: PendingWork, config: SchedulerConfig, asked: argparse.Namespace
) -> Answer:
    picked = _picked(asked)
    name = asked.letters or config.dead_letters
    if name is None:
        hint = "name the destination with --from, or set dead_letters in the config"
        raise ConfigError(
            "no dead letters", field="dead_letters", value=None, rule="a destination", hint=hint
        )
    letters = dead_letters(spark, destinations_of(config).resolve(name), name)
    count = redrive(spark, work, letters, picked, per_s=asked.rate, dry_run=asked.dry_run)
    return _acted(asked, count, "dead letter")


def act_text(verb: str, count: int, noun: str, *, dry_run: bool) -> str:
    """The sentence that says what an act has changed."""
    noun = noun if count == 1 else _PLURAL[noun]
    return f"would {verb} {count} {noun} (dry run)" if dry_run else f"{acts.DONE[verb]} {count} {noun}"


def _history(spark: SparkSession, work: PendingWork, config: AnyConfig, schedule_id: str) -> Answer:
    events = history_of(
        spark,
        work,
        schedule_id,
        geometry=config.wheel.wheel(),
        destinations=destinations_of(config),
        rejects=sink_of(config.rejects),
    )
    rows = []
    for event in events:
        named = {name: value for name, value in asdict(event).items() if value is not None}
        named |= {
            name: instant_text_ms(named[name])
            for name in ("at_ms", "deliver_at_ms", "acted_at_ms")
            if name in named
        }
        rows.append({name.removesuffix("_ms"): value for name, value in named.items()})
    none = "nothing is known of this id: it never arrived, or ended long ago (see contract.memory), or went to files"
    return Answer(rows=rows, lines=[] if rows else [none])
