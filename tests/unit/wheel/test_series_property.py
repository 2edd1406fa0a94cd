"""Series against their model: random rules, versions and clocks, row for row; and what must hold of any of them.

Few ids and few seqs, so that versions collide; event times and clocks on and beside the instants of the rules, so that
an edit meets an occurrence. What one example does::

    commands --- begin ---> begun, refused        state --- advance ---> state' --- to_row / from_row, now and then
                               |                    |
                             model --- batch ---> fired, missed, refused, counts, pending rows, next due: equal
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, example, given, strategies as st

from tests.unit.wheel.heap_model import CANCEL, CANCEL_OUTCOMES, SCHEDULE, SCHEDULE_OUTCOMES
from tests.unit.wheel.series_model import (
    DAY_MS,
    FIRES,
    HOUR_MS,
    MINUTE_MS,
    PARIS_AUTUMN_MS,
    PARIS_SPRING_MS,
    PAUSED_MS,
    PENDING_COLUMNS,
    RELEASE_COLUMNS,
    SeriesModel,
    is_paused,
)
from wheel_udf.common.geometry import Wheel
from wheel_udf.policies.series import Series, begin
from wheel_udf.shard.rows import COMMAND_SCHEMA, FIRE_NOW
from wheel_udf.shard.state import ShardState
from wheel_udf.testing.frames import rows_of
from wheel_udf.wheel.acted import ACT_SCHEMA, as_commands
from wheel_udf.wheel.policies import Policies
from wheel_udf.wheel.step import Step, advance

Row = dict[str, Any]

QUARTER_MS = 15 * MINUTE_MS
COUNTS = (*SCHEDULE_OUTCOMES, *CANCEL_OUTCOMES, "occurrences_fired", "occurrences_missed", *FIRES)
STARTS_MS = (
    1_767_607_200_000,  # 2026-01-05T10:00Z
    PARIS_SPRING_MS - 5 * HOUR_MS,
    PARIS_AUTUMN_MS - 5 * HOUR_MS,
)
PLAIN = dict.fromkeys(COMMAND_SCHEMA.names) | {"amend": 0, "act": 0, "seq_given": True}

wheels = st.sampled_from((Wheel(1_000, 20, 6), Wheel(1_000, 4, 3), Wheel(60_000, 8, 4), Wheel(7, 20, 6)))
memories = st.sampled_from((None, 0, HOUR_MS))
limits = st.none() | st.none() | st.integers(1, 3) | st.integers(4, 9)

# On the instants of most rules, and beside them.
grid = st.builds(
    lambda quarters, off: quarters * QUARTER_MS + off,
    st.integers(-12, 12),
    st.sampled_from((-1, 0, 0, 0, 1, 30_000)),
)
rules = st.sampled_from(("every 15 minutes", "every 45 minutes", "*/15 * * * *", "*/7 * * * *")).map(
    lambda words: {"repeat": words, "time_zone": "UTC"}
) | st.builds(
    lambda minute, gap, fold: {"repeat": f"{minute} 2 * * *", "time_zone": "Europe/Paris", **gap, **fold},
    st.sampled_from((0, 30)),
    st.sampled_from(({}, {"on_gap": "skip"})),
    st.sampled_from(({}, {"on_fold": "last"}, {"on_fold": "both"})),
)
policies_of_rules: st.SearchStrategy[Row] = (
    st.just({})
    | st.just({"on_missed": "none"})
    | st.sampled_from((None, 1, 2, 5)).map(
        lambda most: {"on_missed": "all", **({"most": most} if most else {})}
    )
)
ends = st.fixed_dictionaries(
    {},
    optional={"count": st.sampled_from((1, 2, 3, 6)), "until_offset_ms": grid.map(lambda at: at + HOUR_MS)},
)


@dataclass(frozen=True)
class Move:
    """One batch: the clock moves by `step_ms`, then the drafts become commands, due relative to it."""

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

    def batches(self, *, unique: bool) -> Iterator[tuple[Move, int, list[Row]]]:
        """Each move with the clock it comes to and its commands.

        Args:
            unique: Whether a batch has one command of each version at most: which of several is kept hangs on their
                content, and is not the model's matter.
        """
        now_ms = self.start_ms
        for move in self.moves:
            now_ms += move.step_ms
            commands = [command_of(draft, now_ms) for draft in move.drafts]
            if unique:
                versions = {(each["schedule_id"], each["seq"], each["op"]): each for each in commands}
                commands = [*versions.values()]
            yield move, now_ms, commands


series_drafts = st.fixed_dictionaries(
    {
        "kind": st.just("series"),
        "event_ms": grid.map(lambda at: min(at, MINUTE_MS)),
        "begin_ms": st.none() | st.none() | grid,
        "rule": rules,
        "policy": policies_of_rules,
        "ends": ends,
        "spread_ms": st.sampled_from((0, 0, 0, 1, 30_000, 20 * MINUTE_MS)),
        "max_lateness_ms": st.sampled_from((None, None, 0, MINUTE_MS, HOUR_MS)),
    }
)
bad_drafts = st.fixed_dictionaries(
    {
        "kind": st.just("series"),
        "event_ms": st.just(0),
        "begin_ms": st.none(),
        "rule": st.sampled_from(
            (
                {"repeat": "61 * * * *", "time_zone": "UTC"},
                {"repeat": "*/7 * * * *", "time_zone": "Mars/Olympus"},
            )
        ),
        "policy": st.just({}),
        "ends": st.just({}),
        "spread_ms": st.just(0),
        "max_lateness_ms": st.none(),
    }
)
one_shot_drafts = st.fixed_dictionaries(
    {
        "kind": st.just("one-shot"),
        "due_ms": grid,
        "max_lateness_ms": st.sampled_from((None, None, 0, MINUTE_MS)),
    }
)
drafts = st.tuples(
    st.fixed_dictionaries(
        {
            "schedule_id": st.sampled_from(("a", "b", "c", "é")),
            "seq": st.integers(0, 6),
            "seq_given": st.booleans(),
        }
    ),
    st.one_of(
        series_drafts,
        series_drafts,
        series_drafts,
        series_drafts,
        one_shot_drafts,
        st.just({"kind": "cancel"}),
        bad_drafts,
    ),
).map(lambda both: {**both[0], **both[1]})
moves = st.builds(
    Move,
    step_ms=grid.map(abs) | st.sampled_from((0, 1, MINUTE_MS, HOUR_MS, DAY_MS, -HOUR_MS, -1)),
    drafts=st.lists(drafts, max_size=5).map(tuple),
    limit=limits,
    restart=st.booleans(),
    seed=st.integers(0, 99),
)
runs = st.builds(
    Run,
    wheel=wheels,
    memory_ms=memories,
    start_ms=st.sampled_from(STARTS_MS),
    moves=st.lists(moves, min_size=3, max_size=10),
)


def command_of(draft: Row, now_ms: int) -> Row:
    row = PLAIN | {name: draft[name] for name in ("schedule_id", "seq", "seq_given")}
    if draft["kind"] == "cancel":
        return row | {"op": CANCEL}
    row |= {"op": SCHEDULE, "destination": "out", "max_lateness_ms": draft["max_lateness_ms"]}
    if draft["kind"] == "one-shot":
        return row | {"deliver_at_ms": now_ms + draft["due_ms"]}
    event_ms, begin_ms = now_ms + draft["event_ms"], draft["begin_ms"]
    told = draft["rule"] | draft["policy"] | draft["ends"]
    if (until_ms := told.pop("until_offset_ms", None)) is not None:
        told["until_ms"] = now_ms + until_ms
    return row | {
        "repeat": json.dumps(told),
        "anchor_ms": event_ms if begin_ms is None else now_ms + begin_ms,
        "last_ms": event_ms if begin_ms is None else now_ms + begin_ms - 1,
        "spread_ms": draft["spread_ms"],
    }


def table_of(commands: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist([*commands], schema=COMMAND_SCHEMA)


def shown(table: pa.Table, names: tuple[str, ...] = RELEASE_COLUMNS) -> list[Row]:
    return [{name: row[name] for name in names} for row in rows_of(table)]


def _id(row: Row) -> bytes:
    schedule_id: str = row["schedule_id"]
    return schedule_id.encode()


def pending_of(state: ShardState) -> list[Row]:
    return sorted(shown(state.entries(), PENDING_COLUMNS), key=_id)


def step_of(
    state: ShardState,
    commands: Iterable[Row],
    now_ms: int,
    limit: int | None,
    memory_ms: int | None,
    acts: Iterable[Row] = (),
    fires: Iterable[tuple[str, int]] = (),
) -> tuple[Step, list[Row]]:
    """A step as the worker makes it, and the commands refused before it."""
    clock_ms = now_ms if state.clock_ms is None else max(state.clock_ms, now_ms)
    acted, _ = as_commands(state, pa.Table.from_pylist([*acts], schema=ACT_SCHEMA))
    begun, refused = begin(pa.concat_tables([table_of(commands), acted]), state, clock_ms, memory_ms)
    policies = Policies(repeat=Series(state.wheel.tick_ms))
    fired = table_of(
        PLAIN | {"schedule_id": name, "seq": seq, "act": FIRE_NOW, "op": SCHEDULE} for name, seq in fires
    )
    step = advance(state, begun, now_ms, limit, memory_ms=memory_ms, policies=policies, fires=fired)
    return step, rows_of(refused)


def act_on(entry: Row, kind: str, clock_ms: int) -> Row | None:
    """The row of an act on a pending entry; None if the act does not select it."""
    row = {name: entry[name] for name in ("schedule_id", "seq", "destination", "occurrence")}
    row |= {"amend": entry["amend"] + 1, "op": SCHEDULE}
    is_series = entry["repeat"] is not None
    if kind == "pause" and is_series and not is_paused(entry):
        return row | {"deliver_at_ms": PAUSED_MS, "occurrence": None}
    if kind == "resume" and is_paused(entry):
        return row | {"deliver_at_ms": _nominal_ms(entry) + entry["spread_ms"]}
    if kind == "fire-now" and not is_paused(entry):
        return row | {"deliver_at_ms": clock_ms}
    return None


def _nominal_ms(entry: Row) -> int:
    nominal: int = entry["deliver_at_ms"] - (entry["level_error_ms"] or 0)
    return nominal


def completed(act: Row, entry: Row | None) -> Row | None:
    """The act as a command with its whole payload; None if it comes too late."""
    if entry is None or entry["seq"] != act["seq"] or act["occurrence"] not in (None, entry["occurrence"]):
        return None
    moved_ms = None if entry["repeat"] is None else act["deliver_at_ms"] - _nominal_ms(entry)
    row = PLAIN | entry | {"amend": act["amend"], "deliver_at_ms": act["deliver_at_ms"], "op": SCHEDULE}
    return row | {"level_error_ms": moved_ms, "seq_given": False, "of_state": True}


@dataclass
class Pair:
    """The step and its model, side by side; every batch is compared and every invariant checked."""

    wheel: Wheel
    memory_ms: int | None
    state: ShardState = field(init=False)
    model: SeriesModel = field(init=False)
    refused: int = 0

    def __post_init__(self) -> None:
        self.state = ShardState.empty(self.wheel)
        self.model = SeriesModel(self.memory_ms, self.wheel.tick_ms)

    def restart(self) -> None:
        before = pending_of(self.state)
        self.state = ShardState.from_row(self.state.to_row(1), self.wheel, 1)
        assert pending_of(self.state) == before

    def batch(
        self,
        commands: list[Row],
        now_ms: int,
        limit: int | None,
        acts: list[Row] | None = None,
        fires: list[tuple[str, int]] | None = None,
    ) -> list[Row]:
        before, acts, fires = self.state.to_row(1), acts or [], fires or []
        step, refused = step_of(self.state, commands, now_ms, limit, self.memory_ms, acts, fires)
        assert self.state.to_row(1) == before, "the step is pure: a retried task starts from the same state"
        waiting = {row["schedule_id"]: row for row in rows_of(self.state.entries())}
        acted = [completed(act, waiting.get(act["schedule_id"])) for act in acts]
        good = [row for row in acted if row is not None]
        fired, missed = self.model.batch([*commands, *good], now_ms, limit, fires)
        codes = [(row["schedule_id"], row["seq"], json.loads(row["reject"])["error_code"]) for row in refused]
        assert sorted(codes) == sorted(self.model.refused)
        assert shown(step.fired) == fired
        late = len(missed) - len(self.model.dropped)
        assert shown(step.missed)[:late] == missed[:late]
        assert sorted(shown(step.missed)[late:], key=_id) == missed[late:], "by id"
        assert step.changed == self.model.changed
        late_acts = len(acts) - len(good)
        self.state, self.refused = step.state.counting(superseded=late_acts), self.refused + len(refused)
        self.model.counts["superseded"] += late_acts
        self.model.schedules_in += late_acts
        self.agree()
        return fired

    def agree(self) -> None:
        counts = {name: self.state.counts[name] for name in COUNTS}
        assert counts == {name: self.model.counts[name] for name in COUNTS}
        assert self.state.counts["occurrences_skipped"] == 0
        assert pending_of(self.state) == sorted(
            ({name: row.get(name) for name in PENDING_COLUMNS} for row in self.model.waiting.values()),
            key=_id,
        )
        assert (self.state.pending, self.state.next_due_ms) == (self.model.pending, self.model.next_due_ms)
        assert self.state.clock_ms == self.model.clock_ms
        assert self.model.schedules_in == self.state.pending + sum(counts[name] for name in SCHEDULE_OUTCOMES)
        assert self.model.cancels_in == sum(counts[name] for name in CANCEL_OUTCOMES)


@given(run=runs)
def test_every_batch_of_series_equals_the_model_across_restarts_limits_and_clocks(run: Run) -> None:
    pair = Pair(run.wheel, run.memory_ms)
    for move, now_ms, commands in run.batches(unique=True):
        if move.restart:
            pair.restart()
        pair.batch(commands, now_ms, move.limit)
    for outcome, count in pair.model.counts.items():
        if count:
            event(outcome)


@given(run=runs)
def test_the_order_of_the_rows_of_a_batch_with_series_never_shows(run: Run) -> None:
    straight = shuffled = ShardState.empty(run.wheel)
    for move, now_ms, commands in run.batches(unique=False):
        others = random.Random(move.seed).sample(commands, len(commands))
        one, _ = step_of(straight, commands, now_ms, move.limit, run.memory_ms)
        two, _ = step_of(shuffled, others, now_ms, move.limit, run.memory_ms)
        assert rows_of(one.fired) == rows_of(two.fired)
        assert rows_of(one.missed) == rows_of(two.missed)
        assert one.state.counts == two.state.counts
        assert pending_of(one.state) == pending_of(two.state)
        straight, shuffled = one.state, two.state


@given(
    some=st.lists(series_drafts, min_size=1, max_size=6),
    jumps=st.lists(grid.map(abs), min_size=1, max_size=6),
    start_ms=st.sampled_from(STARTS_MS),
)
def test_many_small_steps_pass_the_occurrences_that_one_big_jump_passes(
    some: list[Row], jumps: list[int], start_ms: int
) -> None:
    names = [{"schedule_id": f"id{n}", "seq": 1, "seq_given": True} for n in range(len(some))]
    commands = [command_of({**name, **draft}, start_ms) for name, draft in zip(names, some, strict=True)]
    wheel, end_ms = Wheel(1_000, 20, 6), start_ms + sum(jumps)
    jump, _ = step_of(ShardState.empty(wheel), commands, end_ms, None, None)
    step, _ = step_of(ShardState.empty(wheel), commands, start_ms, None, None)
    now_ms = start_ms
    for distance in jumps:
        now_ms += distance
        step, _ = step_of(step.state, [], now_ms, None, None)
    assert pending_of(step.state) == pending_of(jump.state)
    passed = [
        (each.counts["occurrences_fired"] + each.counts["occurrences_missed"], each.counts["ended"])
        for each in (jump.state, step.state)
    ]
    assert passed[0] == passed[1]


@example(
    some=[
        {"kind": "one-shot", "due_ms": -1, "max_lateness_ms": None},
        {
            "kind": "series", "event_ms": -2 * QUARTER_MS - 1, "begin_ms": None, "policy": {}, "ends": {}, "spread_ms": 0,
            "rule": {"repeat": "every 15 minutes", "time_zone": "UTC"}, "max_lateness_ms": None,
        },
    ],
    limits_of=[],
    start_ms=STARTS_MS[0],
)  # fmt: skip
@given(
    some=st.lists(series_drafts | one_shot_drafts, min_size=1, max_size=6),
    limits_of=st.lists(st.integers(1, 5), max_size=8),
    start_ms=st.sampled_from(STARTS_MS),
)
def test_any_split_of_the_limit_releases_the_same_occurrences_in_the_order_in_which_they_wait(
    some: list[Row], limits_of: list[int], start_ms: int
) -> None:
    # Without `most`, which counts anew for what a limit leaves.
    names = [{"schedule_id": f"id{n}", "seq": 1, "seq_given": True} for n in range(len(some))]
    commands = [command_of({**name, **draft}, start_ms) for name, draft in zip(names, some, strict=True)]
    commands = [row for row in commands if row["repeat"] is None or "most" not in row["repeat"]]
    state, now_ms = ShardState.empty(Wheel(1_000, 20, 6)), start_ms + HOUR_MS
    whole, _ = step_of(state, commands, now_ms, None, None)
    step, _ = step_of(state, commands, now_ms, 1, None)
    fired, missed = rows_of(step.fired), rows_of(step.missed)
    for limit in [*limits_of, 1, None]:
        step, _ = step_of(step.state, [], now_ms, limit, None)
        fired, missed = fired + rows_of(step.fired), missed + rows_of(step.missed)
    names_of = tuple(name for name in RELEASE_COLUMNS if name != "last_ms")
    of_split = [{name: row[name] for name in names_of} for row in fired]
    of_whole = shown(whole.fired, names_of)
    assert sorted(of_split, key=repr) == sorted(of_whole, key=repr)
    # Within one batch rows are in the order of their due times; over several, one that stands for missed ones too has
    # the place of the first of these.
    for_itself = [row for row in of_split if not row["missed_before"]]
    assert for_itself == [row for row in of_whole if not row["missed_before"]]
    assert sorted((row["schedule_id"], row["occurrence"] or 0) for row in missed) == sorted(
        (row["schedule_id"], row["occurrence"] or 0) for row in rows_of(whole.missed)
    )
    assert pending_of(step.state) == pending_of(whole.state)
    assert step.state.counts == whole.state.counts


def drawn(make: random.Random, ids: int, newest: int) -> Row:
    """One random draft with a seq up to `newest`: as the strategies above, but of longer lives."""
    kind = make.choices(("series", "one-shot", "cancel"), (12, 3, 1))[0]
    grid_ms = make.randrange(-12, 13) * QUARTER_MS + make.choice((-1, 0, 0, 1, 30_000))
    draft = {"schedule_id": f"id-{make.randrange(ids)}", "seq": newest - make.choice((0, 0, 0, 1, 4))}
    draft |= {"seq_given": make.random() < 0.5, "kind": kind, "due_ms": grid_ms}
    draft |= {"max_lateness_ms": make.choice((None, None, 0, MINUTE_MS, HOUR_MS))}
    utc = make.choice(("every 15 minutes", "every 45 minutes", "*/15 * * * *", "*/7 * * * *"))
    paris = {"repeat": make.choice(("0 2 * * *", "30 2 * * *")), "time_zone": "Europe/Paris"}
    paris |= make.choice(({}, {"on_gap": "skip"}))
    paris |= make.choice(({}, {"on_fold": "last"}, {"on_fold": "both"}))
    rule = {"repeat": utc, "time_zone": "UTC"} if make.random() < 0.7 else paris
    policy = make.choice(({}, {"on_missed": "none"}, {"on_missed": "all"}, {"on_missed": "all", "most": 3}))
    ending = make.choice(
        ({}, {}, {"count": make.randrange(1, 9)}, {"until_offset_ms": grid_ms + 2 * HOUR_MS})
    )
    return draft | {
        "event_ms": min(grid_ms, MINUTE_MS),
        "begin_ms": make.choice((None, None, grid_ms)),
        "rule": rule,
        "policy": policy,
        "ends": ending,
        "spread_ms": make.choice((0, 0, 1, 30_000, 20 * MINUTE_MS)),
    }


@pytest.mark.parametrize(("start_ms", "memory_ms"), tuple(zip(STARTS_MS, (None, 0, HOUR_MS), strict=True)))
@pytest.mark.parametrize("ids", [4, 30])
def test_a_crowd_of_series_equals_the_model(ids: int, start_ms: int, memory_ms: int | None) -> None:
    make = random.Random(f"{ids} {start_ms} {memory_ms}")
    wheel = make.choice((Wheel(1_000, 20, 6), Wheel(1_000, 4, 3), Wheel(60_000, 8, 4), Wheel(7, 20, 6)))
    steps_ms = (0, 1, MINUTE_MS, 5 * MINUTE_MS, QUARTER_MS, 3 * QUARTER_MS, 2 * HOUR_MS, -HOUR_MS)
    pair, now_ms = Pair(wheel, memory_ms), start_ms
    for number in range(40):
        now_ms = now_ms + make.choice(steps_ms) if make.random() < 0.95 else now_ms + DAY_MS
        some = tuple(drawn(make, ids, number) for _ in range(make.choice((0, 0, 1, ids // 3))))
        move = Move(0, some, make.choice((None, None, 1, 3, 20)), restart=False, seed=0)
        [(_, _, commands)] = Run(wheel, memory_ms, now_ms, [move]).batches(unique=True)
        pair.batch(commands, now_ms, move.limit)
        if make.random() < 0.1:
            pair.restart()
    assert min(pair.model.counts[name] for name in ("occurrences_fired", "occurrences_missed", "ended")) > 0


@pytest.mark.parametrize(("start_ms", "memory_ms"), tuple(zip(STARTS_MS, (None, 0, HOUR_MS), strict=True)))
@pytest.mark.parametrize("ids", [4, 30])
def test_a_crowd_that_is_paused_resumed_and_fired_equals_the_model(
    ids: int, start_ms: int, memory_ms: int | None
) -> None:
    # An act may be taken some batches after it was made, when its entry has gone on, or ended.
    make = random.Random(f"acts {ids} {start_ms} {memory_ms}")
    wheel = make.choice((Wheel(1_000, 20, 6), Wheel(1_000, 4, 3), Wheel(60_000, 8, 4), Wheel(7, 20, 6)))
    steps_ms = (0, 1, MINUTE_MS, 5 * MINUTE_MS, QUARTER_MS, 3 * QUARTER_MS, 2 * HOUR_MS, -HOUR_MS)
    pair, now_ms, held, paused = Pair(wheel, memory_ms), start_ms, list[Row](), 0
    for number in range(60):
        now_ms = now_ms + make.choice(steps_ms)
        some = tuple(drawn(make, ids, number) for _ in range(make.choice((0, 0, 1, ids // 3))))
        limit = make.choice((None, None, None, 3, 20))
        move = Move(0, some, limit, restart=False, seed=0)
        [(_, _, commands)] = Run(wheel, memory_ms, now_ms, [move]).batches(unique=True)
        taken = {}
        for act in [act for act in held if make.random() < 0.7]:
            taken[act["schedule_id"], act["seq"], act["amend"]] = act
            held.remove(act)
        fires = [
            (f"id-{make.randrange(ids)}", number - make.randrange(4))
            for _ in range(make.choice((0, 0, 1, 3)))
        ]
        pair.batch(commands, now_ms, limit, [*taken.values()], fires)
        if make.random() < 0.1:
            pair.restart()
        entries = pending_of(pair.state)
        paused += sum(map(is_paused, entries))
        for entry in make.sample(entries, min(len(entries), make.choice((0, 1, 2, ids // 3)))):
            # Of the columns that an act has, a pending row lacks none.
            act = act_on(
                entry, make.choice(("pause", "pause", "resume", "fire-now")), pair.state.clock_ms or 0
            )
            held += [] if act is None else [act]
    told = ("occurrences_fired", "occurrences_missed", "superseded", *FIRES)
    assert min(paused, *(pair.model.counts[name] for name in told)) > 0
