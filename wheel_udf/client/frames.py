"""Commands as DataFrames: the columns of the command contract, from any batch or streaming frame.

::

    order = F.to_json(F.struct("*"))
    commands = frames.schedule(orders, schedule_id="order_id", delay="30 minutes", destination="close", value=order)
    cancels = frames.cancel(payments, schedule_id="order_id", event_time="paid_at")
    commands.unionByName(cancels, allowMissingColumns=True)

An argument that differs from row to row (`schedule_id`, `seq`, `event_time`, `key`, `value`, `headers`) is a Column or
the name of one. One that may be the same for all rows (`delay`, `deliver_at`, `destination`, `max_lateness`) is a
value, which is checked now, or a Column, which the job checks row by row. Columns that are not given are left out,
which is the same as null.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, Literal

from pyspark.sql import Column, DataFrame, functions as F

from wheel_udf.client import checks
from wheel_udf.client.checks import Duration, Instant, OnFold, OnGap, OnMissed
from wheel_udf.common.errors import ContractError

_INSTANTS: Final = ("deliver_at", "starts_at", "until")
Named = Column | str
"""A Column, or the name of one."""


def schedule(  # noqa: PLR0913  # one for each column of the contract
    frame: DataFrame,
    *,
    schedule_id: Named,
    delay: Duration | Column | None = None,
    deliver_at: Instant | Column | None = None,
    destination: str | Column | None = None,
    value: Named | None = None,
    key: Named | None = None,
    headers: Named | None = None,
    seq: Named | None = None,
    event_time: Named | None = None,
    max_lateness: Duration | Column | None = None,
    spread: Duration | Column | None = None,
    repeat: str | Column | None = None,
    time_zone: str | Column | None = None,
    starts_at: Instant | Column | None = None,
    until: Instant | Column | None = None,
    count: int | Column | None = None,
    on_missed: OnMissed | Column | None = None,
    on_gap: OnGap | Column | None = None,
    on_fold: OnFold | Column | None = None,
    op: Literal["SCHEDULE", "REPLACE"] = "SCHEDULE",
) -> DataFrame:
    """Builds SCHEDULE commands, one for each row.

    Args:
        frame: The rows.
        schedule_id: Identity of the entry.
        delay: Due time, counted from `event_time`; or
        deliver_at: the absolute due time; a value needs a time zone.
        destination: Where the row goes when it is due; None if the job has a default.
        value: The payload, binary or string.
        key: The key that is delivered.
        headers: The headers that are delivered: an array of structs (key, value), or a map.
        seq: Version of the id; by default `event_time` in ms.
        event_time: When the command was made; by default the time of the batch that reads it.
        max_lateness: Past this lateness the row becomes a reject, ``missed``.
        spread: The due time is moved by a hash of the id, by less than this.
        repeat: The rule of a series, such as ``0 9 * * 1-5``, ``every 15 minutes``, ``R/PT15M``; then no due time is
            needed.
        time_zone: Of the rule, such as ``Europe/Paris``; by default that of the job.
        starts_at: The series has no occurrence before it; by default, none up to `event_time`.
        until: The series has no occurrence after it.
        count: How many occurrences there are.
        on_missed: Which of the occurrences are delivered that were over when the wheel came to them.
        on_gap: What becomes of a local time that does not exist.
        on_fold: At which of the two instants of a local time that comes twice.
        op: See :func:`replace`.

    Returns:
        The columns of the contract that were given.

    Raises:
        ContractError: A value breaks the contract, or an argument that must be a column is not one.
    """
    given = {
        "delay": delay,
        "deliver_at": deliver_at,
        "destination": destination,
        "max_lateness": max_lateness,
        "spread": spread,
        "repeat": repeat,
        "time_zone": time_zone,
        "starts_at": starts_at,
        "until": until,
        "count": count,
        "on_missed": on_missed,
        "on_gap": on_gap,
        "on_fold": on_fold,
    }
    # Of a rule or beginnings in columns, each row may have another one.
    if repeat is None or not any(isinstance(each, Column) for each in (repeat, deliver_at, delay, starts_at)):
        checks.due_time(given)
    return frame.select(
        F.lit(op).alias("op"),
        *_columns(
            schedule_id=schedule_id, value=value, key=key, headers=headers, seq=seq, event_time=event_time
        ),
        *_values(**given),
    )


replace: Final = partial(schedule, op="REPLACE")
"""Builds REPLACE commands, which replace an earlier version as a whole; otherwise as :func:`schedule`."""


def cancel(
    frame: DataFrame, *, schedule_id: Named, seq: Named | None = None, event_time: Named | None = None
) -> DataFrame:
    """Builds CANCEL commands, one for each row.

    Args:
        frame: The rows.
        schedule_id: The id.
        seq: Version that the cancel ends, with all below it; by default `event_time` in ms.
        event_time: When the command was made; by default the time of the batch that reads it.

    Returns:
        The columns of the contract that were given, and a ``delay`` of nulls, without which a source of cancels alone
        is refused.

    Raises:
        ContractError: An argument that must be a column is not one.
    """
    return _of_ids(frame, "CANCEL", schedule_id=schedule_id, seq=seq, event_time=event_time)


def fire_now(
    frame: DataFrame, *, schedule_id: Named, seq: Named | None = None, event_time: Named | None = None
) -> DataFrame:
    """Builds FIRE_NOW commands, one for each row: what waits under the id is released at once; of a series the next
    occurrence. Otherwise as :func:`cancel`.

    Args:
        frame: The rows.
        schedule_id: The id.
        seq: The highest version that it releases; by default `event_time` in ms.
        event_time: When the command was made; by default the time of the batch that reads it.
    """
    return _of_ids(frame, "FIRE_NOW", schedule_id=schedule_id, seq=seq, event_time=event_time)


def _of_ids(frame: DataFrame, op: str, **given: Any) -> DataFrame:
    return frame.select(*_columns(**given), F.lit(op).alias("op"), F.lit(None).cast("string").alias("delay"))


def _values(**given: Any) -> Iterator[Column]:
    for name, value in given.items():
        if isinstance(value, Column):
            yield value.alias(name)
        elif value is not None:
            column = F.lit(checks.CHECKS[name](value))
            yield (column.cast("timestamp") if name in _INSTANTS else column).alias(name)


def _columns(**given: Any) -> Iterator[Column]:
    for name, value in given.items():
        if value is None and name != "schedule_id":
            continue
        if not isinstance(value, Column | str):
            hint = "a value for all rows: F.lit(...)"
            raise ContractError(
                "not a column", field=name, value=value, rule="a Column, or the name of one", hint=hint
            )
        yield (F.col(value) if isinstance(value, str) else value).alias(name)
