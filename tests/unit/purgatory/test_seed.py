"""The state of a purgatory's shard made anew from its rows after every batch: what is decided is what the model says of all rows at once."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from tests.unit.purgatory.shard import Shard
from tests.unit.purgatory.test_step_property import EVENTS, requests, through_batches, tie
from tests.unit.purgatory.watch_model import Event, Outcome, Request, outcomes_of
from wheel_udf.purgatory.seed import KINDS, rows_of_text, seeded
from wheel_udf.purgatory.state import WatchState
from wheel_udf.wheel.geometry import Wheel
from wheel_udf.wheel.seed import Seed

WHEELS = (Wheel(tick_ms=1, size=4, levels=3), Wheel(tick_ms=3, size=7, levels=2))


class MovingShard(Shard):
    """A shard that moves to another geometry after each batch."""

    def batch(self, clock: int, *rows: Request | Event) -> list[Outcome]:
        found = super().batch(clock, *rows)
        before = self.state
        content = {
            kind: rows_of_text(kind, before.text) if before.text else KINDS[kind].schema.empty_table()
            for kind in KINDS
        }
        assert sum(table.num_rows for table in content.values()) == sum(
            chunk.rows for chunk in before.chunks if before.text
        )
        there = seeded(WatchState(WHEELS[1]), Seed(before.clock_ms, before.counts), content)
        back = {
            kind: rows_of_text(kind, there.text) if there.text else KINDS[kind].schema.empty_table()
            for kind in KINDS
        }
        self.state = seeded(WatchState(WHEELS[0]), Seed(there.clock_ms, there.counts), back)
        scalars = "clock_ms", "next_due_ms", "pending", "resting", "ahead", "counts"
        assert all(getattr(self.state, name) == getattr(before, name) for name in scalars)
        return found


@settings(max_examples=100, deadline=None)
@given(
    st.lists(requests(), max_size=5),
    st.lists(EVENTS, max_size=14),
    st.lists(st.integers(0, 45), max_size=6),
    st.sampled_from([(0, 0), (0, 7), (3, 3), (3, 10)]),
    st.data(),
)
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

    model = outcomes_of(operations, events, 200, lookback, memory, tie)
    assert sorted(shard.outcomes, key=repr) == sorted(model, key=repr)
    begun = sum(o.generation == 1 for o in shard.outcomes)
    assert begun + shard.state.counts["duplicate"] == len(operations)
    assert shard.state.pending == 0
