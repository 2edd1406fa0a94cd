"""Property tests of the purgatory's step: whatever the batches, what comes out is what the model says of all rows at
once.
"""

from __future__ import annotations

import math
from itertools import permutations

import pytest
from hypothesis import given, strategies as st

from tests.unit.purgatory.shard import Shard
from tests.unit.purgatory.watch_model import BEAT, SUM, Event, Outcome, Request, outcomes_of

KEYS = ("a", "b", "c", "d")
IDS = ("o", "p", "q")
TIMES = st.integers(0, 40) | st.integers(0, 3)
GROUPS = st.sampled_from(["g", "g", "h"])


@st.composite
def requests(draw: st.DrawFn) -> Request:
    keys = tuple(draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True)))
    need = draw(st.sampled_from([SUM, BEAT, *range(1, len(keys) + 1)]))
    time = draw(TIMES)
    deadline = time + draw(st.integers(1 if need == BEAT else 0, 12))
    limit = deadline + draw(st.integers(1, 15)) if need > 0 and draw(st.booleans()) else None
    op_id = draw(st.sampled_from(IDS))
    threshold = draw(st.sampled_from([0.3, 1.0, 2.0]))
    return Request(op_id, keys, need, time, deadline, threshold, limit, draw(GROUPS))


EVENTS = st.builds(
    Event,
    st.sampled_from(KEYS),
    TIMES,
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([0.1, 0.2, 0.7]),
    GROUPS,
) | st.builds(Event, st.sampled_from(IDS), TIMES, st.just(2), st.just(0.0), GROUPS)


def models_of(
    operations: list[Request], events: list[Event], lookback: int, memory: float = math.inf
) -> list[list[Outcome]]:
    """What may be decided. Of operations that differ in nothing but what they say any one may be meant; which one: the
    test below.
    """
    distinct = set(operations)
    names = [(r.group, r.op_id, r.time, r.deadline) for r in distinct]
    tied = [r for r in distinct if names.count((r.group, r.op_id, r.time, r.deadline)) > 1]
    return [
        outcomes_of(operations, events, 200, lookback, memory, tie={r: n for n, r in enumerate(order)}.get)
        for order in permutations(sorted(tied, key=repr))
    ]


def assert_decided(shard: Shard, models: list[list[Outcome]], operations: list[Request]) -> None:
    """The shard has decided what a model says, all of it, and has counted every operation."""
    told = [sorted(model, key=repr) for model in models]
    decided = sorted(shard.outcomes, key=repr)
    assert decided == told[0] or decided in told[1:]
    begun = sum(o.generation == 1 for o in shard.outcomes)
    assert begun + shard.state.counts["duplicate"] == len(operations)
    assert shard.state.pending == 0


def through_batches(
    operations: list[Request],
    events: list[Event],
    clocks: list[int],
    shard: Shard,
    data: st.DataObject,
) -> None:
    """Runs rows through batches, in any order but that none is behind the clock when it comes."""
    batches: dict[int, list[Request | Event]] = {clock: [] for clock in sorted({*clocks, 200})}
    for row in data.draw(st.permutations([*operations, *events])):
        last = next(clock for clock in batches if clock > row.time)
        batches[data.draw(st.sampled_from([clock for clock in batches if clock <= last]))].append(row)
    for clock, rows in batches.items():
        decided = len(shard.outcomes)
        shard.batch(clock, *rows)
        assert all(o.at < clock for o in shard.outcomes[decided:])


@given(
    st.lists(requests(), max_size=5),
    st.lists(EVENTS, max_size=14),
    st.lists(st.integers(0, 45), max_size=6),
    st.sampled_from([0, 3, 50]),
    st.data(),
)
def test_the_outcomes_do_not_depend_on_where_batches_end(
    operations: list[Request], events: list[Event], clocks: list[int], lookback: int, data: st.DataObject
) -> None:
    shard = Shard(lookback=lookback, memory=None)
    through_batches(operations, events, clocks, shard, data)

    assert_decided(shard, models_of(operations, events, lookback), operations)


IN_TIME = (
    st.lists(requests(), max_size=5),
    st.lists(EVENTS, max_size=14),
    st.lists(st.integers(0, 45), max_size=6),
    st.sampled_from([(0, 0), (0, 7), (3, 3), (3, 10)]),
    st.data(),
)
"""Operations, events, clocks, lookback and memory, batches: nothing is forgotten that is still needed."""


@given(*IN_TIME)
def test_what_is_remembered_is_enough_for_rows_that_are_in_time(
    operations: list[Request],
    events: list[Event],
    clocks: list[int],
    lookback_and_memory: tuple[int, int],
    data: st.DataObject,
) -> None:
    lookback, memory = lookback_and_memory
    shard = Shard(lookback=lookback, memory=memory)
    through_batches(operations, events, clocks, shard, data)
    assert_decided(shard, models_of(operations, events, lookback, memory), operations)


GOLDEN = (("a", "b", "c"), ("b",), ("b", "a"), ("a", "b"), ("c",), ("a",))
"""Which of the operations on these keys is meant, the first before all others, if their ids and times are the same."""


@pytest.mark.parametrize("batches", [1, 2])
def test_of_operations_that_differ_in_their_keys_alone_the_same_one_is_meant_in_any_order(
    batches: int,
) -> None:
    for earlier, later in permutations(GOLDEN, 2):
        shard, both = Shard(), [Request("o", keys, 1, 0, 9) for keys in (earlier, later)]
        for rows in [both] if batches == 1 else [[row] for row in both]:
            shard.batch(0, *rows)
        (outcome,) = shard.batch(300)

        assert outcome.missing == min(earlier, later, key=GOLDEN.index)
