"""The verb ``next``: the next occurrences of a rule, or of series that are pending.

::

    wheel-udf next --repeat '0 9 * * 1-5' --time-zone Europe/Paris [--from INSTANT] -n 5     no config, no Spark
    wheel-udf next --config FILE --id ID -n 10                                               what is pending

A line for each occurrence: the instant in UTC, and the local time of the rule's zone with its offset. Those of a
pending series begin with the one that it waits for, and end with its ``until`` or ``count``; those of a rule begin
after ``--from``, by default now, from which a period counts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from wheel_udf.common.errors import ConfigError
from wheel_udf.common.geometry import INT64_MAX
from wheel_udf.common.instants import instant_text_ms
from wheel_udf.common.progress import PrintLine
from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.policies.series import upcoming
from wheel_udf.recurrence.local_times import zone_of
from wheel_udf.recurrence.occurrences import Occurrences, occurrences_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from wheel_udf.pending.entries import PendingWork

_MOST: Final = 100_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def execute(*told: Any) -> None:
    """Executes the verb: arguments and a printer of lines, and before them the config if one is given.

    Raises:
        ConfigError: Neither a rule nor a config with an id is given, or the rule is none.
        WheelError: The pending entries cannot be read.
    """
    *config, asked, print_line = told
    check(asked, of_job=bool(config))
    if config:
        _of_job(config[0], asked, print_line)
    else:
        _of_rule(asked, print_line)


def check(asked: argparse.Namespace, *, of_job: bool) -> None:
    """Checks what is asked for: ids of a job, or a rule.

    Raises:
        ConfigError: Neither or both are given, or the number of lines is out of range.
    """
    if not 1 <= asked.n <= _MOST:
        raise ConfigError("not a number of lines", field="-n", value=asked.n, rule=f"1 to {_MOST}")
    if of_job == (asked.repeat is not None) or of_job != bool(asked.id):
        raise ConfigError(
            "what is asked for is not clear", field="next", rule="--repeat, or --config and --id"
        )


def _of_rule(asked: argparse.Namespace, print_line: PrintLine) -> None:
    occurrences = occurrences_of(asked.repeat, asked.time_zone or "UTC", asked.on_gap, asked.on_fold)
    rule = occurrences.rule
    from_ms = wall_clock_ms() if asked.instant is None else asked.instant
    anchor_ms = from_ms if rule.starts_ms is None else rule.starts_ms
    most = asked.n
    if rule.count is not None:
        gone = 0 if rule.starts_ms is None else _gone(occurrences, rule.starts_ms, from_ms)
        most = min(most, rule.count - gone)
    found = occurrences.between(from_ms, INT64_MAX, anchor_ms, most).tolist() if most > 0 else []
    for line in _lines(found, rule.zone) or [f"no occurrence after {instant_text_ms(from_ms)}"]:
        print_line(line)


def _gone(occurrences: Occurrences, starts_ms: int, upto_ms: int) -> int:
    """How many occurrences there were from the start of a rule up to an instant."""
    before, upto, anchor = (np.array([each], np.int64) for each in (starts_ms - 1, upto_ms, starts_ms))
    return int(occurrences.upto(before, upto, anchor)[0][0])


def _of_job(config: Any, asked: argparse.Namespace, print_line: PrintLine) -> None:
    from wheel_udf.job.compose import pending_work_of
    from wheel_udf.job.sessions import session
    from wheel_udf.spark.failures import quiet_sql

    with quiet_sql(), session(config.name) as spark:
        for line in lines_of(spark, pending_work_of(spark, config), asked.id, asked.n):
            print_line(line)


def lines_of(spark: SparkSession, work: PendingWork, ids: Sequence[str], most: int) -> list[str]:
    """The lines about pending entries.

    Args:
        spark: A session.
        work: Where the entries are.
        ids: Their ids.
        most: How many occurrences of each.

    Raises:
        WheelError: They cannot be read.
    """
    from pyspark.sql import functions as F

    from wheel_udf.pending.entries import ENTRY_ID, entries

    nominal_ms = F.unix_millis("deliver_at").alias("nominal_ms")
    columns = (ENTRY_ID, nominal_ms, "repeat", "paused", "anchor_ms", "occurrence")
    rows = {row[ENTRY_ID]: row for row in entries(spark, work, ids=ids).select(*columns).collect()}
    lines: list[str] = []
    for name in ids:
        row = rows.get(name)
        if len(ids) > 1:
            lines.append(f"{name}:")
        if row is None:
            lines.append(f"{name} is not pending")
        elif row.paused:
            lines.append(f"{name} is paused")
        elif row.repeat is None:
            lines += _lines([row.nominal_ms], "UTC")
        else:
            # Of a series that the wheel of the tiered mode has not read yet nobody knows the occurrence.
            times = upcoming(row.repeat, row.nominal_ms, row.anchor_ms or 0, row.occurrence or 0, most)
            lines += _lines(times, json.loads(row.repeat)["time_zone"])
    return lines


def _lines(instants_ms: Iterable[int], zone: str) -> list[str]:
    return [f"{instant_text_ms(each)}  {_local(each, zone)}" for each in instants_ms]


def _local(instant_ms: int, zone: str) -> str:
    """The local time of an instant with its offset, and the name of the zone."""
    try:
        at = (_EPOCH + timedelta(milliseconds=instant_ms)).astimezone(zone_of(zone))
    except OverflowError:
        return f"(outside the years of local times, {zone})"
    return f"{at.isoformat(timespec='milliseconds')} {zone}"
