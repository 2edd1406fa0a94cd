"""The state of a purgatory's shard made anew from its rows after every batch: what is decided is what the model says
of all rows at once.
"""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, strategies as st

from tests.unit.purgatory.shard import Shard
from tests.unit.purgatory.test_step_property import (
    IN_TIME,
    assert_decided,
    models_of,
    through_batches,
)
from tests.unit.purgatory.watch_model import Event, Outcome, Request
from wheel_udf.common.geometry import Wheel
from wheel_udf.purgatory.seed import rows_of_text, seeded
from wheel_udf.purgatory.state import KINDS, WatchState
from wheel_udf.wheel.seed import Seed

WHEELS = (Wheel(tick_ms=1, size=4, levels=3), Wheel(tick_ms=3, size=7, levels=2))


def rows_in(state: WatchState) -> dict[str, pa.Table]:
    """All rows of a shard, by kind."""
    return {
        kind: rows_of_text(kind, state.text) if state.text else KINDS[kind].schema.empty_table()
        for kind in KINDS
    }


class MovingShard(Shard):
    """A shard that moves to another geometry after each batch."""

    def batch(self, clock: int, *rows: Request | Event) -> list[Outcome]:
        found = super().batch(clock, *rows)
        before = self.state
        content = rows_in(before)
        assert sum(table.num_rows for table in content.values()) == sum(
            chunk.rows for chunk in before.chunks if before.text
        )
        there = seeded(WatchState(WHEELS[1]), Seed(before.clock_ms, before.counts), content)
        self.state = seeded(WatchState(WHEELS[0]), Seed(there.clock_ms, there.counts), rows_in(there))
        scalars = "clock_ms", "next_due_ms", "pending", "resting", "ahead", "counts"
        assert all(getattr(self.state, name) == getattr(before, name) for name in scalars)
        return found


@given(*IN_TIME)
def test_a_purgatory_that_moves_after_each_batch_decides_as_the_model_does(
    operations: list[Request],
    events: list[Event],
    clocks: list[int],
    lookback_and_memory: tuple[int, int],
    data: st.DataObject,
) -> None:
    lookback, memory = lookback_and_memory
    shard = MovingShard(lookback=lookback, memory=memory)
    through_batches(operations, events, clocks, shard, data)
    assert_decided(shard, models_of(operations, events, lookback, memory), operations)
