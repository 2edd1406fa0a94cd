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
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from wheel_udf.common.errors import ConfigError
from wheel_udf.common.geometry import INT64_MAX
from wheel_udf.common.instants import instant_text_ms
from wheel_udf.common.progress import PrintLine
from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.policies.series import upcoming
from wheel_udf.recurrence.local_times import zone_of
from wheel_udf.recurrence.occurrences import occurrences_of
from wheel_udf.shard.rows import PAUSED_MS

_MOST: Final = 100_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def execute(*told: Any) -> None:
    """Executes the verb: arguments and a printer of lines, and before them the config if one is given.

    Raises:
        ConfigError: Neither a rule nor a config with an id is given, or the rule is none.
        WheelError: The pending entries cannot be read.
    """
    *config, asked, print_line = told
    if not 1 <= asked.n <= _MOST:
        raise ConfigError("not a number of lines", field="-n", value=asked.n, rule=f"1 to {_MOST}")
    if bool(config) == (asked.repeat is not None) or bool(config) != bool(asked.id):
        raise ConfigError(
            "what is asked for is not clear", field="next", rule="--repeat, or --config and --id"
        )
    if config:
        _of_job(config[0], asked, print_line)
    else:
        _of_rule(asked, print_line)


def _of_rule(asked: argparse.Namespace, print_line: PrintLine) -> None:
    occurrences = occurrences_of(asked.repeat, asked.time_zone or "UTC", asked.on_gap, asked.on_fold)
    rule = occurrences.rule
    from_ms = wall_clock_ms() if asked.instant is None else asked.instant
    anchor_ms = from_ms if rule.starts_ms is None else rule.starts_ms
    most = asked.n if rule.count is None else min(asked.n, rule.count)
    found = occurrences.between(from_ms, INT64_MAX, anchor_ms, most).tolist()
    _print(found, rule.zone, print_line, f"no occurrence after {instant_text_ms(from_ms)}")


def _of_job(config: Any, asked: argparse.Namespace, print_line: PrintLine) -> None:
    from wheel_udf.job.compose import pending_work_of
    from wheel_udf.job.sessions import session
    from wheel_udf.pending.state import waiting
    from wheel_udf.spark.failures import quiet_sql

    with quiet_sql(), session(config.name) as spark:
        work = pending_work_of(spark, config)
        rows = {row.schedule_id: row for row in waiting(spark, work.query, ids=asked.id).collect()}
    for name in asked.id:
        row = rows.get(name)
        if len(asked.id) > 1:
            print_line(f"{name}:")
        if row is None:
            print_line(f"{name} is not pending")
        elif row.repeat is not None and row.deliver_at_ms == PAUSED_MS:
            print_line(f"{name} is paused")
        elif row.repeat is None:
            _print([row.deliver_at_ms - (row.level_error_ms or 0)], "UTC", print_line, "")
        else:
            nominal_ms = row.deliver_at_ms - (row.level_error_ms or 0)
            found = upcoming(row.repeat, nominal_ms, row.anchor_ms, row.occurrence, asked.n)
            _print(found, json.loads(row.repeat)["time_zone"], print_line, "")


def _print(instants_ms: Iterable[int], zone: str, print_line: PrintLine, none: str) -> None:
    lines = [f"{instant_text_ms(each)}  {_local(each, zone)}" for each in instants_ms]
    for line in lines or [none]:
        print_line(line)


def _local(instant_ms: int, zone: str) -> str:
    """The local time of an instant with its offset, and the name of the zone."""
    at = (_EPOCH + timedelta(milliseconds=instant_ms)).astimezone(zone_of(zone))
    return f"{at.isoformat(timespec='milliseconds')} {zone}"
