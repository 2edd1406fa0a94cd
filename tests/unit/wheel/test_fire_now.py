"""FIRE_NOW, one sentence each, against the pure step."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from wheel_udf.common.geometry import Wheel
from wheel_udf.policies.series import Series, begin
from wheel_udf.shard.rows import CANCEL, COMMAND_SCHEMA, FIRE_NOW, PAUSED_MS
from wheel_udf.shard.state import ShardState
from wheel_udf.testing.frames import rows_of
from wheel_udf.wheel.fire_now import split_fires
from wheel_udf.wheel.policies import Policies
from wheel_udf.wheel.step import advance

WHEEL = Wheel(tick_ms=1, size=4, levels=3)
MINUTE_MS = 60_000
Row = dict[str, Any]


def schedule(seq: int, due_ms: int, schedule_id: str = "a", **others: Any) -> Row:
    row = {"schedule_id": schedule_id, "seq": seq, "deliver_at_ms": due_ms, "destination": "out"}
    return row | others


def cancel(seq: int, schedule_id: str = "a") -> Row:
    return {"schedule_id": schedule_id, "seq": seq, "op": CANCEL}


def fire(seq: int, schedule_id: str = "a") -> Row:
    return {"schedule_id": schedule_id, "seq": seq, "act": FIRE_NOW}


def every_minute(seq: int, **told: Any) -> Row:
    text = json.dumps({"repeat": "every 1 minute", "time_zone": "UTC", **told})
    row = {"schedule_id": "a", "seq": seq, "destination": "out", "repeat": text}
    return row | {"anchor_ms": MINUTE_MS, "last_ms": MINUTE_MS - 1, "spread_ms": 0}


def table_of(*rows: Row) -> pa.Table:
    plain = dict.fromkeys(COMMAND_SCHEMA.names) | {"amend": 0, "op": 0, "act": 0, "seq_given": True}
    return pa.Table.from_pylist([plain | row for row in rows], schema=COMMAND_SCHEMA)


class Shard:
    """A shard that takes commands; a batch answers (id, seq, due time) of the rows that fired."""

    def __init__(self) -> None:
        self.state = ShardState.empty(WHEEL)

    def batch(self, now_ms: int, *commands: Row, limit: int | None = None) -> list[tuple[Any, ...]]:
        rows, fires = split_fires(table_of(*commands))
        begun, _ = begin(rows, self.state, now_ms, None)
        policies = Policies(repeat=Series(WHEEL.tick_ms))
        step = advance(self.state, begun, now_ms, limit, memory_ms=None, policies=policies, fires=fires)
        self.state = step.state
        return [(row["schedule_id"], row["seq"], row["deliver_at_ms"]) for row in rows_of(step.fired)]

    @property
    def told(self) -> Row:
        counts = {"pending": self.state.pending, **self.state.counts}
        return {name: count for name, count in counts.items() if count}


def test_what_waits_fires_with_the_batch_and_once() -> None:
    shard = Shard()
    shard.batch(0, schedule(1, 90), schedule(1, 50, "b"))
    assert shard.batch(7, fire(1)) == [("a", 1, 7)]
    assert shard.batch(90) == [("b", 1, 50)]
    assert shard.told == {"fired": 2, "fire_applied": 1}


def test_the_payload_is_that_of_the_entry() -> None:
    shard = Shard()
    payload = {"key": b"k", "value": b"v", "headers": "[]", "max_lateness_ms": 0, "destination": "mail"}
    shard.batch(0, schedule(1, 90, **payload, delay_level_ms=50, level_error_ms=40))
    rows, fires = split_fires(table_of(fire(3)))
    (row,) = rows_of(advance(shard.state, rows, 7, memory_ms=None, fires=fires).fired)
    assert row | payload | {"seq": 1, "amend": 0, "deliver_at_ms": 7} == row
    assert (row["delay_level_ms"], row["level_error_ms"]) == (None, None), "it has no level any more"


@pytest.mark.parametrize(
    ("commands", "fired", "told"),
    [
        ([schedule(2, 90), fire(2)], [("a", 2, 7)], {"superseded": 1, "fired": 1, "fire_applied": 1}),
        ([schedule(3, 90), fire(2)], [], {"pending": 1, "superseded": 1, "fire_late": 1}),
        ([cancel(1), fire(2)], [], {"cancelled": 1, "applied": 1, "fire_late": 1}),
        ([cancel(2), fire(2)], [], {"cancelled": 1, "applied": 1, "fire_late": 1}),
        ([fire(0)], [], {"pending": 1, "fire_late": 1}),
        ([fire(1, "x")], [], {"pending": 1, "fire_late": 1}),
        ([fire(1), fire(1), fire(4)], [("a", 1, 7)], {"fired": 1, "fire_applied": 1, "fire_late": 2}),
        ([schedule(1, 90, "b"), fire(5, "b")], [("b", 1, 7)], {"pending": 1, "fired": 1, "fire_applied": 1}),
        ([schedule(2, 3), fire(2)], [("a", 2, 3)], {"superseded": 1, "fired": 1, "fire_applied": 1}),
    ],
)
def test_it_takes_effect_on_what_the_other_commands_of_its_batch_leave(
    commands: list[Row], fired: list[tuple[Any, ...]], told: Row
) -> None:
    for ordered in (commands, commands[::-1]):
        shard = Shard()
        shard.batch(0, schedule(1, 80))
        assert (shard.batch(7, *ordered), shard.told) == (fired, told)


def test_one_that_finds_nothing_is_late_and_is_not_remembered() -> None:
    shard = Shard()
    assert shard.batch(1, fire(9)) == []
    assert shard.batch(2, schedule(1, 50)) == []
    assert shard.batch(50, fire(1), limit=0) == []
    assert shard.batch(51) == [("a", 1, 50)]
    assert shard.batch(52, fire(9)) == []
    assert shard.told == {"fired": 1, "fire_late": 2, "fire_applied": 1}


def test_under_a_limit_it_stays_due_since_the_clock_of_its_batch() -> None:
    shard = Shard()
    shard.batch(0, schedule(1, 6, "b"), schedule(1, 90))
    assert shard.batch(7, fire(1), limit=1) == [("b", 1, 6)]
    assert shard.batch(9, schedule(1, 8, "c"), limit=1) == [("a", 1, 7)]
    assert shard.told == {"pending": 1, "fired": 2, "fire_applied": 1}


def test_a_series_delivers_its_next_occurrence_and_goes_on_with_the_one_after_it() -> None:
    shard = Shard()
    shard.batch(0, every_minute(1))
    assert shard.batch(7, fire(1)) == [("a", 1, 7)]
    assert (shard.state.next_due_ms, shard.told) == (
        2 * MINUTE_MS,
        {"pending": 1, "occurrences_fired": 1, "fire_applied": 1},
    )
    assert shard.batch(8, every_minute(2), fire(2)) == [("a", 2, 8)]
    assert shard.state.next_due_ms == 3 * MINUTE_MS


def test_a_series_that_is_fired_for_the_last_time_has_ended() -> None:
    shard = Shard()
    assert shard.batch(7, every_minute(1, count=1), fire(1)) == [("a", 1, 7)]
    assert shard.told == {"ended": 1, "occurrences_fired": 1, "fire_applied": 1}


def test_a_paused_series_does_not_fire() -> None:
    shard = Shard()
    paused = {"occurrence": 0, "deliver_at_ms": PAUSED_MS, "level_error_ms": PAUSED_MS - MINUTE_MS}
    shard.batch(0, every_minute(1) | paused)
    assert shard.batch(7, fire(1)) == []
    assert shard.told == {"pending": 1, "fire_late": 1}
