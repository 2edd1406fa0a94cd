"""Answers ``pending`` of a tiered job from its slot store, without Spark (:mod:`wheel_udf.pending.store_alone`).

What is not answered here is answered with Spark: predicates, earlier moments, other verbs, the direct mode, and a store
that does not know all that is pending.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from wheel_udf.api.answer import Answer
from wheel_udf.checkpoint.spark_logs import last_committed, read_to
from wheel_udf.common.errors import WheelError
from wheel_udf.common.instants import instant_text_ms
from wheel_udf.common.progress import PrintLine
from wheel_udf.job.asking import print_answer
from wheel_udf.job.models.purgatory import AnyConfig
from wheel_udf.job.models.scheduler import TieredConfig
from wheel_udf.metrics.batch_log import last_line
from wheel_udf.pending.store_alone import StoreAlone
from wheel_udf.store.layout import is_far
from wheel_udf.store.log import StoreLog
from wheel_udf.store.table import layout_of

MOST_ROWS: Final = 10_000
_COLUMNS: Final = ("delay_level_ms", "destination", "max_lateness_ms", "source")


def was_answered(config: AnyConfig, asked: argparse.Namespace, print_line: PrintLine) -> bool:
    """Prints the answer of a job that rests.

    Args:
        config: The config of the job.
        asked: The arguments of the command line.
        print_line: Takes the lines.

    Returns:
        False if the question is one for Spark; then nothing was printed.
    """
    answer = answer_without_spark(config, asked)
    if answer is not None:
        print_answer(answer, asked, print_line)
    return answer is not None


def _is_simple(asked: argparse.Namespace) -> bool:
    return (
        asked.verb == "pending"
        and asked.where is None
        and asked.as_of is None
        and (not asked.count or asked.id is None)
        and 0 < asked.limit <= MOST_ROWS
    )


def answer_without_spark(
    config: AnyConfig, asked: argparse.Namespace, log: StoreLog | None = None
) -> Answer | None:
    """Answers from the slot store of a job, whether it runs or rests.

    Args:
        config: The config of the job.
        asked: The arguments.
        log: The log of the store if it was opened before: then its layout is known, and only new commits are read.

    Returns:
        None if the question is one for Spark.
    """
    if not isinstance(config, TieredConfig) or not _is_simple(asked):
        return None
    try:
        return _answer(config, asked, log)
    except WheelError:  # which Spark's way reports, if it still stands
        return None


def _answer(config: TieredConfig, asked: argparse.Namespace, log: StoreLog | None) -> Answer | None:
    if log is None:
        layout = config.wheel.layout()
        if layout_of(config.store.path) != layout:
            return None
        log = StoreLog(config.store.path, layout)
    store = _store_of(config, log)
    if store is None:
        return None
    if asked.count:
        if (pending := store.count()) is None:
            return None
        return Answer.of_counts(pending=pending, stored=log.far_rows())
    rows = store.rows(asked.id, asked.limit)
    if rows is None:
        return None
    matching = "" if asked.id is None else " match"
    none = [] if rows.num_rows else [f"0 pending entries{matching}"]
    return Answer(rows=list(_lines_of(rows, payload=asked.payload)), lines=none)


def _store_of(config: TieredConfig, log: StoreLog) -> StoreAlone | None:
    """What the store knows; None if the batch log lacks the last committed batch, or the store does not know enough."""
    line, wheel = last_line(config.checkpoint, "wheel"), f"{config.checkpoint}/wheel"
    position = read_to(wheel)
    if line is None or not line.get("complete") or line.get("batch_id") != last_committed(wheel):
        return None
    # After a repair another batch may have the same number.
    if line.get("clock_ms") != position[1] or line.get("near") is None:
        return None
    return StoreAlone.of(log, wheel, position, line["near"])


def _lines_of(rows: pa.Table, *, payload: bool) -> Iterator[Mapping[str, Any]]:
    """The rows as ``pending`` prints them."""
    for row in rows.to_pylist():
        due_ms = row["deliver_at_ms"]
        asked_ms = due_ms - (row["level_error_ms"] or 0)
        named = {
            "schedule_id": row["schedule_id"],
            "seq": row["seq"],
            "deliver_at": instant_text_ms(asked_ms),
        }
        if row["delay_level_ms"] is not None:
            named["scheduled_at"] = instant_text_ms(due_ms)
        named |= {name: row[name] for name in _COLUMNS}
        named["place"] = "store" if is_far(row["level"]) else "state"
        if payload:
            named |= {name: row[name] and row[name].decode(errors="replace") for name in ("key", "value")}
        yield {name: value for name, value in named.items() if value is not None}
