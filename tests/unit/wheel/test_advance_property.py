"""The pure step against the heap model: random commands, clocks that jump both ways, restarts, limits, memories.

Few ids and few seqs, so that versions collide; due times on and beside the edges of every level of a random wheel.
What one example does::

    state --- advance ---> state' --- to_row / from_row, now and then ---> state' --- advance ---> ...
      |                      |
    model --- batch -----> fired, missed, counts, pending, next due, clock: equal, row for row and in order
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given, strategies as st

from tests.unit.wheel.heap_model import (
    CANCEL,
    CANCEL_OUTCOMES,
    ENTRY_COLUMNS,
    SCHEDULE,
    SCHEDULE_OUTCOMES,
    HeapModel,
)
from wheel_udf.common.geometry import Wheel
from wheel_udf.shard.state import ShardState
from wheel_udf.testing.frames import commands_table, rows_of
from wheel_udf.wheel.step import advance

Row = dict[str, Any]

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
CLOCK_MAX_MS = 2**62
STARTS_MS = (0, 1, -1, -123_457, 999, 1_375_272_000_000, 1_700_000_000_123)
HOSTILE_MS = (2**31 - 1, 2**31, 2**53, 2**53 + 1, 2**62, INT64_MAX, -(2**31), -(2**53), -(2**62), INT64_MIN)
MEMORIES_MS = st.none() | st.just(0) | st.integers(1, 30) | st.integers(31, 5_000) | st.just(300_000)
LIMITS = st.none() | st.integers(1, 3) | st.integers(4, 40)

# Neighbours differ in one column each: where versions tie, each of them has to decide.
PAYLOADS = tuple(
    dict(zip(("destination", "value", "key", "headers", "source"), payload, strict=True))
    for payload in (
        ("out", None, None, None, None),
        ("out", None, None, None, "t/0/7"),
        ("out", None, None, None, "t/1/7"),
        ("out", None, None, "[]", "t/1/7"),
        ("out", None, b"k", "[]", None),
        ("out", None, b"", "[]", None),
        ("out", b"", b"", "[]", None),
        ("out", b"\xff\x00", b"", "[]", None),
        ("other", b"\xff\x00", b"", "[]", None),
    )
)

wheels = st.builds(
    Wheel,
    tick_ms=st.sampled_from((1, 7, 10, 1000)) | st.integers(1, 1000),
    size=st.integers(2, 20),
    levels=st.integers(1, 6),
)


@dataclass(frozen=True)
class Move:
    """One batch: the clock moves by `step_ms`, then the drafts of commands become rows due relative to it."""

    step_ms: int
    drafts: tuple[Row, ...]
    limit: int | None
    restart: bool
    seed: int


@dataclass(frozen=True)
class Run:
    """A shard's life: its shape, its memory, the first clock and all batches."""

    wheel: Wheel
    memory_ms: int | None
    start_ms: int
    moves: list[Move]

    def batches(self) -> Iterator[tuple[Move, int, list[Row]]]:
        """Each move with the clock it comes to and its commands."""
        now_ms = self.start_ms
        for move in self.moves:
            now_ms = within(-CLOCK_MAX_MS, now_ms + move.step_ms, CLOCK_MAX_MS)
            yield move, now_ms, commands_of(move.drafts, self.start_ms, now_ms)


def spans(wheel: Wheel) -> list[int]:
    """The tick of every level and the interval of the top one, ms."""
    return [wheel.tick_of(level) for level in range(1, wheel.levels + 1)] + [wheel.interval_of(wheel.levels)]


def distances(wheel: Wheel) -> st.SearchStrategy[int]:
    """Distances in time that sit on, just before and just after the edges of some level, or anywhere."""
    edges = st.builds(
        lambda span, n, off: span * n + off,
        st.sampled_from(spans(wheel)),
        st.integers(-2, 3),
        st.integers(-1, 1),
    )
    return st.integers(-3, 3) | edges | st.integers(-2_000, 50_000)


def drafts(wheel: Wheel) -> st.SearchStrategy[Row]:
    return st.fixed_dictionaries(
        {
            "schedule_id": st.sampled_from(("a", "b", "c", "é")),
            "op": st.sampled_from((SCHEDULE, SCHEDULE, SCHEDULE, CANCEL)),
            "seq": st.integers(0, 6) | st.sampled_from((-1, INT64_MIN, INT64_MAX)),
            "amend": st.sampled_from((0, 0, 0, 1, 2)),
            "seq_given": st.booleans(),
            "since": st.sampled_from(("start", "now", "now", "zero")),
            "offset_ms": distances(wheel) | st.sampled_from(HOSTILE_MS),
            "max_lateness_ms": st.none()
            | st.none()
            | st.integers(0, 20)
            | st.sampled_from((5_000, INT64_MAX)),
            "payload": st.sampled_from(PAYLOADS),
            # (level, error): none, exact, rounded up, and the top level for more than that.
            "level": st.sampled_from(((None, None), (None, None), (5, 0), (30, 0), (30, 1), (30, -2_000))),
        }
    )


def moves(wheel: Wheel, memory_ms: int | None) -> st.SearchStrategy[Move]:
    remembered = memory_ms or 1
    leaps = (0, 1, remembered - 1, remembered, *spans(wheel), -3_600_000, 86_400_000, 2**40)
    return st.builds(
        Move,
        step_ms=distances(wheel) | st.sampled_from(leaps),
        drafts=st.lists(drafts(wheel), max_size=7).map(tuple),
        limit=LIMITS,
        restart=st.booleans(),
        seed=st.integers(0, 99),
    )


runs = st.tuples(wheels, MEMORIES_MS).flatmap(
    lambda made: st.builds(
        Run,
        wheel=st.just(made[0]),
        memory_ms=st.just(made[1]),
        start_ms=st.sampled_from(STARTS_MS),
        moves=st.lists(moves(*made), min_size=1, max_size=12),
    )
)


def within(low: int, value: int, high: int) -> int:
    return max(low, min(value, high))


def commands_of(drafts: Iterable[Row], start_ms: int, now_ms: int) -> list[Row]:
    """The rows of a batch."""
    since = {"start": start_ms, "now": now_ms, "zero": 0}
    commands = []
    for draft in drafts:
        row = {
            name: draft[name]
            for name in ("schedule_id", "op", "seq", "amend", "seq_given", "max_lateness_ms")
        }
        row |= draft["payload"]
        row["delay_level_ms"], row["level_error_ms"] = draft["level"]
        row["deliver_at_ms"] = within(INT64_MIN, since[draft["since"]] + draft["offset_ms"], INT64_MAX)
        if row["op"] == CANCEL:
            row |= dict.fromkeys(
                (
                    "deliver_at_ms",
                    "max_lateness_ms",
                    "destination",
                    "value",
                    "key",
                    "headers",
                    "source",
                    "delay_level_ms",
                    "level_error_ms",
                )
            )
        commands.append(row)
    return commands


def shown(table: pa.Table) -> list[Row]:
    return [{name: row[name] for name in ENTRY_COLUMNS} for row in rows_of(table)]


@dataclass
class Pair:
    """The step and its model, side by side; every batch is compared and every invariant checked."""

    wheel: Wheel
    memory_ms: int | None
    state: ShardState = field(init=False)
    model: HeapModel = field(init=False)
    fired_at_ms: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.state = ShardState.empty(self.wheel)
        self.model = HeapModel(self.memory_ms)

    def restart(self) -> None:
        self.state = ShardState.from_row(self.state.to_row(1), self.wheel, 1)

    def batch(self, commands: list[Row], now_ms: int, limit: int | None) -> list[Row]:
        before, before_clock_ms = self.state.to_row(1), self.state.clock_ms
        table = commands_table(commands) if commands else None
        step = advance(self.state, table, now_ms, limit, memory_ms=self.memory_ms)
        fired, missed = self.model.batch(commands, now_ms, limit)
        assert shown(step.fired) == fired
        assert shown(step.missed) == missed
        assert step.changed == self.model.changed
        assert step.clock_ms == (now_ms if before_clock_ms is None else max(before_clock_ms, now_ms))
        if not step.changed:
            assert step.state.to_row(1) == before
        assert self.state.to_row(1) == before, "the step is pure: a retried task starts from the same state"
        self.state = step.state
        self.agree()
        self.never_early_never_twice(fired, step.clock_ms)
        return fired

    def agree(self) -> None:
        counts = {name: self.state.counts[name] for name in (*SCHEDULE_OUTCOMES, *CANCEL_OUTCOMES)}
        assert counts == dict(self.model.counts)
        assert self.state.pending == self.model.pending
        assert self.state.next_due_ms == self.model.next_due_ms
        assert self.state.clock_ms == self.model.clock_ms
        assert self.model.schedules_in == self.state.pending + sum(counts[name] for name in SCHEDULE_OUTCOMES)
        assert self.model.cancels_in == sum(counts[name] for name in CANCEL_OUTCOMES)
        assert counts["cancelled"] == counts["applied"]
        assert min(counts.values()) >= 0

    def never_early_never_twice(self, fired: list[Row], clock_ms: int) -> None:
        for row in fired:
            assert row["deliver_at_ms"] <= clock_ms
            name = (row["schedule_id"], (row["seq"], row["amend"]))
            if name in self.fired_at_ms:
                assert self.memory_ms is not None, "fired twice although remembered for ever"
                assert clock_ms >= self.fired_at_ms[name] + self.memory_ms, "fired twice although remembered"
            self.fired_at_ms[name] = clock_ms


@given(run=runs)
def test_every_batch_equals_the_heap_model_across_restarts_limits_and_hostile_clocks(run: Run) -> None:
    pair = Pair(run.wheel, run.memory_ms)
    for move, now_ms, commands in run.batches():
        if move.restart:
            pair.restart()
        pair.batch(commands, now_ms, move.limit)
    for outcome, count in pair.model.counts.items():
        if count:
            event(outcome)


@given(run=runs)
def test_the_order_of_the_rows_within_a_batch_never_shows(run: Run) -> None:
    straight = shuffled = ShardState.empty(run.wheel)
    for move, now_ms, commands in run.batches():
        others = random.Random(move.seed).sample(commands, len(commands))
        one = advance(straight, commands_table(commands), now_ms, move.limit, memory_ms=run.memory_ms)
        two = advance(shuffled, commands_table(others), now_ms, move.limit, memory_ms=run.memory_ms)
        assert (shown(one.fired), shown(one.missed)) == (shown(two.fired), shown(two.missed))
        assert one.state.counts == two.state.counts
        assert (one.state.pending, one.state.next_due_ms) == (two.state.pending, two.state.next_due_ms)
        straight, shuffled = one.state, two.state


@given(
    copies=st.lists(
        st.fixed_dictionaries(
            {
                "deliver_at_ms": st.sampled_from((1, 2)),
                "delay_level_ms": st.sampled_from((None, 5)),
                "level_error_ms": st.sampled_from((None, 0, 1)),
                "payload": st.sampled_from(PAYLOADS),
                "max_lateness_ms": st.sampled_from((None, 0, 5)),
                "seq_given": st.booleans(),
            }
        ),
        min_size=2,
        max_size=3,
    )
)
def test_which_of_several_copies_of_one_version_is_kept_hangs_on_their_content_alone(
    copies: list[Row],
) -> None:
    version = {"schedule_id": "a", "seq": 1, "amend": 0, "op": SCHEDULE}
    rows = [version | copy["payload"] | {n: copy[n] for n in copy if n != "payload"} for copy in copies]
    for order in itertools.permutations(rows):
        pair = Pair(Wheel(1, 20, 3), None)
        pair.batch([rows[0] | {"seq": 0, "deliver_at_ms": 1, "max_lateness_ms": None}], 1, None)
        pair.batch(list(order), 3, None)


@given(
    run=wheels.flatmap(
        lambda wheel: st.tuples(st.just(wheel), st.lists(drafts(wheel), max_size=30).map(tuple))
    ),
    limits=st.lists(st.integers(1, 9), max_size=6),
    now_ms=st.integers(0, 20_000),
)
def test_any_split_of_the_limit_releases_the_same_rows_in_the_same_order(
    run: tuple[Wheel, tuple[Row, ...]], limits: list[int], now_ms: int
) -> None:
    wheel, some = run
    commands = commands_of(some, 0, now_ms)
    whole = advance(ShardState.empty(wheel), commands_table(commands), now_ms, memory_ms=None)
    step = advance(ShardState.empty(wheel), commands_table(commands), now_ms, 1, memory_ms=None)
    fired, missed = shown(step.fired), shown(step.missed)
    for limit in [*limits, 1, None]:
        backlog = step.state.next_due_ms
        step = advance(step.state, None, now_ms, limit, memory_ms=None)
        released = shown(step.fired) + shown(step.missed)
        if backlog is not None and backlog <= now_ms:
            assert min(row["deliver_at_ms"] for row in released) == backlog, (
                "next due is the oldest of the backlog"
            )
        assert limit is None or len(released) <= limit
        fired, missed = fired + shown(step.fired), missed + shown(step.missed)
    assert (fired, missed) == (shown(whole.fired), shown(whole.missed))
    assert step.state.counts == whole.state.counts


@given(
    run=wheels.flatmap(
        lambda wheel: st.tuples(
            st.just(wheel), st.lists(distances(wheel), max_size=40), st.lists(distances(wheel), max_size=15)
        )
    ),
    start_ms=st.sampled_from(STARTS_MS),
)
def test_many_small_steps_fire_what_one_big_jump_fires(
    run: tuple[Wheel, list[int], list[int]], start_ms: int
) -> None:
    wheel, dues, cuts = run
    rows = [{"schedule_id": f"id{n}", "deliver_at_ms": start_ms + due} for n, due in enumerate(dues)]
    end_ms = start_ms + max((0, *cuts))
    jump = advance(ShardState.empty(wheel), commands_table(rows), end_ms, memory_ms=None)
    step = advance(ShardState.empty(wheel), commands_table(rows), start_ms, memory_ms=None)
    fired = shown(step.fired)
    for now_ms in sorted(start_ms + cut for cut in cuts):
        step = advance(step.state, None, now_ms, memory_ms=None)
        fired += shown(step.fired)
    assert fired == shown(jump.fired)
    assert step.state.next_due_ms == jump.state.next_due_ms


def crowded(make: random.Random, now_ms: int, spread_ms: int) -> list[Row]:
    """A few hundred commands over a few hundred ids, bursts at one instant among them."""
    burst_ms = now_ms + make.randrange(spread_ms)
    rows = []
    for _ in range(make.choice([0, 1, 40, 300])):
        is_cancel = make.random() < 0.2
        due = make.choice(
            [burst_ms, now_ms + make.randrange(-100, spread_ms), now_ms + int(spread_ms ** make.random())]
        )
        row = {
            "op": CANCEL if is_cancel else SCHEDULE,
            "seq": make.randrange(50),
            "amend": make.choice([0, 0, 0, 1]),
            "seq_given": make.random() < 0.5,
        }
        row |= {"schedule_id": f"id-{make.randrange(300)}", "deliver_at_ms": None if is_cancel else due}
        row |= {"destination": None if is_cancel else make.choice(["out", "other"]), "max_lateness_ms": None}
        row |= {
            "key": None,
            "headers": None,
            "source": None,
            "value": None if is_cancel else make.randbytes(8),
        }
        rows.append(row)
    return rows


@pytest.mark.parametrize("memory_ms", [None, 0, 2_000], ids="memory_ms={}".format)
@pytest.mark.parametrize(
    "wheel",
    [Wheel(1, 2, 6), Wheel(1, 20, 3), Wheel(10, 8, 4), Wheel(1000, 20, 6), Wheel(7, 3, 1)],
    ids=Wheel.fingerprint,
)
def test_a_crowd_of_ids_equals_the_heap_model(wheel: Wheel, memory_ms: int | None) -> None:
    make = random.Random(f"{wheel.fingerprint()} {memory_ms}")
    pair, now_ms = Pair(wheel, memory_ms), 1_375_272_000_000
    spread_ms = min(4 * wheel.interval_of(wheel.levels), 10_000_000)
    leap: list[Callable[[], int]] = [
        lambda: 0,
        lambda: make.randrange(-50, 50),
        lambda: make.randrange(spread_ms // 4),
    ]
    for _ in range(25):
        now_ms += make.choice(leap)()
        pair.batch(crowded(make, now_ms, spread_ms), now_ms, make.choice([None, 1, 25, 200]))
        if make.random() < 0.3:
            pair.restart()
    pair.batch([], now_ms + 10 * spread_ms, None)
    assert pair.state.pending == 0
