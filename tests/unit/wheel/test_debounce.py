"""Debounce and throttle as in docs/kafka.md, against the pure step: only versions, due times and the memory differ."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from wheel_udf.common.geometry import Wheel
from wheel_udf.shard.rows import COMMAND_SCHEMA
from wheel_udf.shard.state import ShardState
from wheel_udf.testing.frames import rows_of
from wheel_udf.wheel.step import advance

WHEEL = Wheel(tick_ms=1_000, size=20, levels=4)


class Shard:
    """A shard; a batch returns (value, due time) of the rows that fired."""

    def __init__(self, memory_ms: int) -> None:
        self.state, self.memory_ms = ShardState.empty(WHEEL), memory_ms

    def batch(self, now_ms: int, *events: dict[str, Any]) -> list[tuple[bytes, int]]:
        plain = dict.fromkeys(COMMAND_SCHEMA.names) | {"amend": 0, "op": 0, "act": 0}
        plain |= {"schedule_id": "user-7", "destination": "changed"}
        commands = pa.Table.from_pylist([plain | event for event in events], schema=COMMAND_SCHEMA)
        step = advance(self.state, commands, now_ms, None, memory_ms=self.memory_ms)
        self.state = step.state
        return [(row["value"], row["deliver_at_ms"]) for row in rows_of(step.fired)]


def event(offset: int, due_ms: int) -> dict[str, Any]:
    """An event without a version: its offset is the version."""
    return {"seq": offset, "seq_given": False, "deliver_at_ms": due_ms, "value": b"%d" % offset}


def same_version(number: int, due_ms: int) -> dict[str, Any]:
    """An event of ``seq_from: constant``."""
    return {"seq": 0, "seq_given": True, "deliver_at_ms": due_ms, "value": b"%d" % number}


def test_debounce_delivers_the_last_event_after_the_quiet_time() -> None:
    shard = Shard(memory_ms=300_000)
    assert shard.batch(0, event(1, 30_000)) == []
    assert shard.batch(10_000, event(2, 40_000)) == []
    assert shard.batch(20_000, event(3, 50_000)) == []
    assert shard.batch(49_000) == []
    assert shard.batch(50_000) == [(b"3", 50_000)]
    assert shard.batch(60_000, event(4, 90_000)) == []
    assert shard.batch(90_000) == [(b"4", 90_000)]


def test_debounce_delivers_once_what_one_batch_reads_late_and_each_event_of_several_batches() -> None:
    events = [event(1, 30_000), event(2, 40_000)]
    together, apart = Shard(memory_ms=300_000), Shard(memory_ms=300_000)
    assert together.batch(100_000, *events) == [(b"2", 40_000)]
    assert [apart.batch(100_000, each) for each in events] == [[(b"1", 30_000)], [(b"2", 40_000)]]


def test_throttle_delivers_the_first_event_and_drops_others_until_the_memory_ends() -> None:
    shard = Shard(memory_ms=60_000)
    assert shard.batch(0, same_version(1, 0)) == [(b"1", 0)]
    assert shard.batch(10_000, same_version(2, 10_000)) == []
    assert shard.batch(59_000, same_version(3, 59_000)) == []
    assert shard.batch(70_000, same_version(4, 70_000)) == [(b"4", 70_000)]


def test_throttle_with_a_delay_delivers_the_first_event_after_it() -> None:
    shard = Shard(memory_ms=60_000)
    assert shard.batch(0, same_version(1, 5_000), same_version(2, 6_000)) == []
    assert shard.batch(4_000, same_version(3, 9_000)) == []
    assert shard.batch(9_000) == [(b"1", 5_000)]
    assert shard.batch(50_000, same_version(4, 50_000)) == []
