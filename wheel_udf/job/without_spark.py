"""Answers ``pending`` of a tiered job from its slot store, without Spark (:mod:`wheel_udf.pending.store_alone`).

What is not answered here is answered with Spark: predicates, earlier moments, other verbs, the direct mode, and a store
that does not know all that is pending.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

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
        and (asked.limit <= MOST_ROWS or asked.id is not None)
        and asked.limit > 0
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
    try:
        store = _store_of(config, asked, log)
        if store is None:
            return None
        if asked.count:
            pending = store.count()
            return None if pending is None else Answer.of_counts(pending=pending, stored=store.far_rows)
        rows = store.rows(asked.id, asked.limit)
    except WheelError:  # which Spark's way reports, if it still stands
        return None
    if rows is None:
        return None
    matching = "" if asked.id is None else " match"
    none = [] if rows.num_rows else [f"0 pending entries{matching}"]
    return Answer(rows=list(_lines_of(rows, payload=asked.payload)), lines=none)


def table_without_spark(
    config: AnyConfig, asked: argparse.Namespace, log: StoreLog | None, time_zone: str
) -> pa.Table | None:
    """As :func:`answer_without_spark`: the rows of ``pending`` as a table, with the columns and types of Spark's.

    Args:
        config: The config of the job.
        asked: The arguments.
        log: As there.
        time_zone: Of the timestamps, that of Spark's session.
    """
    try:
        store = None if getattr(asked, "count", False) else _store_of(config, asked, log)
        rows = None if store is None else store.rows(asked.id, asked.limit)
    except WheelError:
        return None
    return None if rows is None else _table_of(rows, time_zone, payload=asked.payload)


def _store_of(config: AnyConfig, asked: argparse.Namespace, log: StoreLog | None) -> StoreAlone | None:
    """What the store knows; None if the question is another one, the batch log lacks the last committed batch, or the
    store does not know enough.
    """
    if not isinstance(config, TieredConfig) or not _is_simple(asked):
        return None
    if log is None:
        layout = config.wheel.layout()
        if layout_of(config.store.folder) != layout:
            return None
        log = StoreLog(config.store.folder, layout)
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
            given = [name for name in ("key", "value") if row[name] is not None]
            named |= {name: row[name].decode(errors="replace") for name in given}
        yield {name: value for name, value in named.items() if value is not None}


def _table_of(rows: pa.Table, time_zone: str, *, payload: bool) -> pa.Table:
    """The rows as Spark's ``toArrow`` has them."""
    due_ms, stamp = rows["deliver_at_ms"], pa.timestamp("us", time_zone)
    asked_ms = pc.subtract(due_ms, pc.fill_null(rows["level_error_ms"], 0))
    scheduled_ms = pc.if_else(pc.is_valid(rows["delay_level_ms"]), due_ms, pa.scalar(None, pa.int64()))
    places = ["store" if is_far(level) else "state" for level in rows["level"].to_pylist()]
    columns: dict[str, Any] = {
        "schedule_id": rows["schedule_id"],
        "seq": rows["seq"],
        "deliver_at": asked_ms.cast(pa.timestamp("ms", time_zone)).cast(stamp),
        "scheduled_at": scheduled_ms.cast(pa.timestamp("ms", time_zone)).cast(stamp),
        **{name: rows[name] for name in _COLUMNS},
        "repeat": pa.nulls(rows.num_rows, pa.string()),
        "occurrence": pa.nulls(rows.num_rows, pa.int64()),
        "paused": pa.nulls(rows.num_rows, pa.bool_()),
        "place": pa.array(places, pa.string()),
    }
    if payload:
        columns |= {
            name: pa.array(
                [value and value.decode(errors="replace") for value in rows[name].to_pylist()], pa.string()
            )
            for name in ("key", "value")
        }
    return pa.table(columns)
