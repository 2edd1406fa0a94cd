"""The wheel beside a slot store: what it is told of, what comes, what has ended there.

The last test is the whole mode without Spark: commands are split by a cursor, far ones wait in a list, a hand-over
compares versions one by one, and what the wheel fires is what a wheel fires that holds everything itself.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.unit.wheel.heap_model import CANCEL_OUTCOMES, SCHEDULE_OUTCOMES
from wheel_udf.common.geometry import Wheel
from wheel_udf.policies.store_reports import StoreReports
from wheel_udf.shard.rows import CANCEL, FAR, GONE_CANCELLED, GONE_DUPLICATE, GONE_SUPERSEDED, MOVED, SCHEDULE
from wheel_udf.shard.state import ShardState
from wheel_udf.testing.frames import commands_table, rows_of
from wheel_udf.wheel.policies import Policies
from wheel_udf.wheel.step import Step, advance

Row = dict[str, Any]
WHEEL = Wheel(1, 20, 3)


def near(seq: int, due: int, schedule_id: str = "a") -> Row:
    return {"schedule_id": schedule_id, "seq": seq, "deliver_at_ms": due}


def moved(seq: int, due: int, schedule_id: str = "a") -> Row:
    return near(seq, due, schedule_id) | {"act": MOVED}


def told(seq: int, schedule_id: str = "a") -> Row:
    return {"schedule_id": schedule_id, "seq": seq, "act": FAR}


def gone(act: int, seq: int, schedule_id: str = "a") -> Row:
    op = CANCEL if act == GONE_CANCELLED else SCHEDULE
    return {"schedule_id": schedule_id, "seq": seq, "op": op, "act": act}


def cancel(seq: int, schedule_id: str = "a") -> Row:
    return {"schedule_id": schedule_id, "seq": seq, "op": "CANCEL"}


class Shard:
    """One shard that knows of a store."""

    def __init__(self, memory_ms: int | None = None) -> None:
        self.state, self.memory_ms = ShardState.empty(WHEEL), memory_ms

    def batch(self, now_ms: int, *rows: Row) -> list[tuple[str, int]]:
        table = commands_table(rows) if rows else None
        step: Step = advance(
            self.state, table, now_ms, memory_ms=self.memory_ms, policies=Policies(report=StoreReports())
        )
        self.state = ShardState.from_row(step.state.to_row(1), WHEEL, 1)
        return [(row["schedule_id"], row["seq"]) for row in rows_of(step.fired)]

    @property
    def counts(self) -> dict[str, int]:
        return {name: count for name, count in self.state.counts.items() if count}


def test_what_is_told_of_counts_as_far_and_as_nothing_else_until_it_comes() -> None:
    shard = Shard()
    assert shard.batch(0, told(1), told(1, "b")) == []
    assert (shard.state.far, shard.state.pending, shard.counts) == (2, 0, {})
    assert shard.batch(5, moved(1, 9)) == []
    assert (shard.state.far, shard.state.pending, shard.counts) == (1, 1, {})
    assert shard.batch(9) == [("a", 1)]
    assert (shard.state.far, shard.state.pending, shard.counts) == (1, 0, {"fired": 1})


@pytest.mark.parametrize("apart", [True, False], ids=["in two batches", "in one batch"])
@pytest.mark.parametrize(
    ("rows", "fires", "counts"),
    [
        ([near(1, 9), told(2)], [], {"superseded": 1}),
        ([told(2), near(1, 9)], [], {"superseded": 1}),
        ([told(2), near(3, 9)], [("a", 3)], {"fired": 1}),
        ([told(2), near(2, 9)], [("a", 2)], {"fired": 1}),
        ([told(2), cancel(2)], [], {"waiting": 1}),
        ([cancel(3), told(2)], [], {"waiting": 1}),
        ([cancel(3), moved(2, 9)], [], {"cancelled": 1, "applied": 1}),
        ([told(1), told(2), moved(1, 9)], [], {"superseded": 1}),
        ([told(2), moved(2, 9)], [("a", 2)], {"fired": 1}),
        ([told(2), moved(2, 9), cancel(2)], [], {"cancelled": 1, "applied": 1}),
        ([told(2), cancel(2), gone(GONE_CANCELLED, 2)], [], {"cancelled": 1, "applied": 1}),
        (
            [told(2), told(3), gone(GONE_SUPERSEDED, 2), moved(3, 9)],
            [("a", 3)],
            {"superseded": 1, "fired": 1},
        ),
        ([told(2), told(2), moved(2, 9), gone(GONE_DUPLICATE, 2)], [("a", 2)], {"duplicate": 1, "fired": 1}),
        ([cancel(3), told(5), moved(5, 9)], [("a", 5)], {"waiting": 1, "fired": 1}),
    ],
)
def test_near_and_far_versions_of_an_id_beat_each_other(
    rows: list[Row], fires: list[tuple[str, int]], counts: dict[str, int], *, apart: bool
) -> None:
    shard = Shard()
    for batch in [[row] for row in rows] if apart else [rows]:
        shard.batch(1, *batch)
    assert shard.batch(9) == fires
    assert shard.counts == counts


def test_a_cancel_below_what_the_store_holds_is_superseded_and_one_above_waits_for_the_stores_word_and_further_ones_are_late() -> (
    None
):
    shard = Shard()
    for row in (told(2), cancel(1), cancel(2), cancel(3)):
        shard.batch(1, row)
    assert shard.counts == {"cancel_superseded": 1, "waiting": 1, "late": 1}


@pytest.mark.parametrize("handed_over", [False, True])
def test_a_cancel_of_a_far_entry_was_remembered_from_the_hand_over_on_so_a_later_cancel_was_late(
    *, handed_over: bool
) -> None:
    # The direct mode remembers it from when it was read, 20 ms before.
    shard = Shard(memory_ms=20)
    shard.batch(1, told(1), cancel(2))
    shard.batch(19, *[gone(GONE_CANCELLED, 2)] * handed_over)
    shard.batch(22, cancel(3))
    assert shard.counts["waiting"] == 2 - handed_over
    assert "late" not in shard.counts


def test_a_cancel_that_is_read_with_its_verdict_is_remembered_as_one_that_ended_an_entry() -> None:
    shard = Shard()
    shard.batch(1, told(1))
    shard.batch(2, cancel(5), gone(GONE_CANCELLED, 5))
    shard.batch(3, near(4, 9))
    assert shard.batch(9) == []
    assert shard.counts == {"cancelled": 1, "applied": 1, "superseded": 1}


def test_a_cancel_that_ended_an_entry_in_the_store_ends_no_second_one_here() -> None:
    shard = Shard()
    shard.batch(1, told(1), cancel(5))
    shard.batch(2, gone(GONE_CANCELLED, 5))
    shard.batch(3, near(4, 9))
    assert shard.batch(9) == []
    assert shard.counts == {"cancelled": 1, "applied": 1, "superseded": 1}


def test_a_verdict_on_a_forgotten_cancel_makes_no_count_negative() -> None:
    shard = Shard(memory_ms=0)
    shard.batch(1, near(3, 1))
    shard.batch(2, gone(GONE_CANCELLED, 5))
    assert shard.counts == {"fired": 1, "cancelled": 1}
    assert shard.state.far == -1  # nobody had told of it; a store tells first


def test_what_moves_is_no_producers_retry_even_if_it_repeats_the_due_time_of_what_fired() -> None:
    shard = Shard()
    shard.batch(9, near(1, 9))
    shard.batch(10, told(2))
    assert shard.batch(11, moved(2, 9) | {"seq_given": False}) == [("a", 2)]


@pytest.mark.parametrize(("seq", "counts"), [(1, {"superseded": 1}), (2, {"superseded": 1})])
def test_a_far_version_that_the_wheel_had_beaten_stays_beaten_when_the_wheel_has_forgotten_by_what(
    seq: int, counts: dict[str, int]
) -> None:
    # What is pending here may be a series, whose row the store does not keep.
    shard = Shard(memory_ms=5)
    shard.batch(0, near(2, 9))
    shard.batch(1, told(seq) | {"deliver_at_ms": 200})
    assert shard.batch(9) == [("a", 2)]
    shard.batch(150, near(1, 150, "b"))
    shard.batch(190, moved(seq, 200))
    assert shard.batch(200) == []
    assert (shard.state.far, shard.counts) == (0, {"fired": 2} | counts)


def act(seq: int, due: int, amend: int = 1, *, of_wheel: bool = True) -> Row:
    return near(seq, due) | {"amend": amend, "seq_given": not of_wheel}


def far_act(seq: int, due: int, amend: int = 1, *, of_wheel: bool = True) -> Row:
    return act(seq, due, amend, of_wheel=of_wheel) | {"act": FAR}


def test_an_act_on_a_pending_entry_replaces_it() -> None:
    shard = Shard(memory_ms=5)
    shard.batch(1, near(1, 9))
    assert shard.batch(2, act(1, 12)) == []
    assert shard.batch(9) == []
    assert shard.batch(12) == [("a", 1)]
    assert shard.counts == {"superseded": 1, "fired": 1}


@pytest.mark.parametrize("of_wheel", [True, False])
def test_an_act_on_an_entry_that_has_fired_meanwhile_is_late(*, of_wheel: bool) -> None:
    shard = Shard(memory_ms=5)
    assert shard.batch(9, near(1, 9)) == [("a", 1)]
    assert shard.batch(10, act(1, 12, of_wheel=of_wheel)) == []
    assert shard.batch(12) == []
    assert shard.counts == {"fired": 1, "superseded": 1}


def test_an_act_is_late_after_the_firing_is_forgotten_too_but_not_on_an_entry_of_the_store() -> None:
    shard = Shard(memory_ms=0)
    assert shard.batch(9, near(1, 9), near(1, 9, "b")) == [("a", 1), ("b", 1)]
    assert shard.batch(10, act(1, 12), act(1, 12, of_wheel=False) | {"schedule_id": "c"}) == []
    assert shard.batch(12) == [("c", 1)]
    assert shard.counts == {"fired": 3, "superseded": 1}


@pytest.mark.parametrize("apart", [True, False], ids=["in two batches", "in one batch"])
def test_an_act_on_an_entry_of_the_wheel_that_was_cancelled_meanwhile_is_late(*, apart: bool) -> None:
    shard = Shard()
    for rows in (
        ([near(1, 9)], [cancel(1)], [act(1, 12)]) if apart else ([near(1, 9), cancel(1), act(1, 12)],)
    ):
        shard.batch(1, *rows)
    assert shard.batch(12) == []
    assert shard.counts == {"cancelled": 1, "applied": 1, "superseded": 1}


@pytest.mark.parametrize("of_wheel", [True, False])
@pytest.mark.parametrize("batches", ["sac", "s ac", "sa c", "s a c", "s c a", "sc a", "c s a"])
def test_a_cancel_stands_above_a_moved_entry_of_the_same_seq_in_one_batch_or_several(
    batches: str, *, of_wheel: bool
) -> None:
    rows = {"s": near(1, 9), "a": act(1, 12, of_wheel=of_wheel), "c": cancel(1)}
    shard = Shard()
    for names in batches.split():
        assert shard.batch(1, *(rows[name] for name in names)) == []
    assert shard.batch(12) == []
    assert shard.counts == {"cancelled": 1, "applied": 1, "superseded": 1}


def test_a_cancel_that_waits_ends_a_moved_entry_of_its_seq_that_comes_from_the_store() -> None:
    shard = Shard()
    shard.batch(1, far_act(1, 200, of_wheel=False))
    shard.batch(2, cancel(1))
    assert shard.batch(200, moved(1, 200) | {"amend": 1}) == []
    assert shard.counts == {"cancelled": 1, "applied": 1}


def test_the_highest_of_several_remembered_versions_is_found_in_their_order_not_in_that_of_their_ranks() -> (
    None
):
    # The wheel remembers a CANCEL (1, 0), rank 1, and beside it the entry (1, 1), rank 2, that is in the store.
    shard = Shard()
    shard.batch(1, cancel(1))
    shard.batch(2, far_act(1, 200, of_wheel=False))
    assert shard.batch(3, near(1, 9) | {"amend": 2}) == []
    assert shard.counts == {"cancelled": 1, "applied": 1}


def test_an_act_and_its_entry_in_one_batch_are_no_late_act() -> None:
    shard = Shard(memory_ms=0)
    assert shard.batch(1, near(1, 9), act(1, 12), act(1, 13, amend=2)) == []
    assert shard.batch(13) == [("a", 1)]
    assert shard.counts == {"superseded": 2, "fired": 1}


@pytest.mark.parametrize("memory_ms", [0, 5, None])
def test_an_act_that_moves_what_has_fired_to_the_store_is_known_as_late_when_the_entry_comes_back(
    memory_ms: int | None,
) -> None:
    shard = Shard(memory_ms)
    assert shard.batch(9, near(1, 9)) == [("a", 1)]
    shard.batch(10, far_act(1, 200))
    assert (shard.state.far, shard.counts) == (1, {"fired": 1})
    shard.batch(150, near(1, 150, "b"))
    shard.batch(
        180, far_act(1, 300, amend=2, of_wheel=False)
    )  # an act on the dead entry, which the store still holds
    shard.batch(190, moved(1, 200) | {"amend": 1})
    shard.batch(250, moved(1, 300) | {"amend": 2})
    assert shard.batch(300) == []
    assert (shard.state.far, shard.counts) == (0, {"fired": 2, "superseded": 2})


def test_a_late_act_is_known_as_late_in_the_batch_whose_clock_passes_its_due_time_too() -> None:
    shard = Shard(memory_ms=0)
    shard.batch(9, near(1, 9))
    shard.batch(10, far_act(1, 200))
    assert shard.batch(500, moved(1, 200) | {"amend": 1}) == []
    assert shard.counts == {"fired": 1, "superseded": 1}


class Tiered:
    """The tiered mode in a few lines: a cursor, a list of far entries, a set of all versions ever seen."""

    def __init__(self, memory_ms: int | None = None) -> None:
        self.shard, self.cursor_ms = Shard(memory_ms), 100
        self.far: list[Row] = []
        self.versions: set[tuple[str, int, int]] = set()
        self.schedules = self.cancels = 0

    def batch(self, now_ms: int, commands: Iterable[Row]) -> list[tuple[str, int]]:
        return self.shard.batch(min(now_ms, self.cursor_ms - 1), *self._taken_in(commands))

    def _taken_in(self, commands: Iterable[Row]) -> list[Row]:
        rows = []
        for command in commands:
            is_cancel = command.get("op") == "CANCEL"
            self.cancels += is_cancel
            self.schedules += not is_cancel
            self.versions.add((command["schedule_id"], command["seq"], CANCEL if is_cancel else SCHEDULE))
            if is_cancel or command["deliver_at_ms"] < self.cursor_ms:
                rows.append(command)
            else:
                self.far.append(command)
                rows.append(told(command["seq"], command["schedule_id"]))
        return rows

    def turn(self, now_ms: int, commands: Iterable[Row]) -> list[tuple[str, int]]:
        """A batch of a backfill: the hand-over to its clock, and the commands, in one."""
        verdicts = self._handed_over(max(self.cursor_ms, (now_ms // 100 + 1) * 100))
        return self.shard.batch(now_ms, *verdicts, *self._taken_in(commands))

    def hand_over(self, cursor_ms: int, now_ms: int) -> list[tuple[str, int]]:
        rows = self._handed_over(cursor_ms)
        return self.shard.batch(min(now_ms, cursor_ms - 1), *rows)

    def _handed_over(self, cursor_ms: int) -> list[Row]:
        self.cursor_ms = cursor_ms
        leaving = [row for row in self.far if row["deliver_at_ms"] < cursor_ms]
        self.far = [row for row in self.far if row["deliver_at_ms"] >= cursor_ms]
        seen: set[tuple[str, int]] = set()
        return [self._verdict(row, seen) for row in leaving]

    def _verdict(self, row: Row, seen: set[tuple[str, int]]) -> Row:
        name = row["schedule_id"], row["seq"]
        if name in seen:
            return gone(GONE_DUPLICATE, row["seq"], row["schedule_id"])
        seen.add(name)
        higher = sorted(
            (seq, op)
            for each, seq, op in self.versions
            if each == name[0] and (seq, op) > (row["seq"], SCHEDULE)
        )
        if not higher:
            return row | {"act": MOVED}
        seq, op = higher[0]
        act, told_seq = (GONE_CANCELLED, seq) if op == CANCEL else (GONE_SUPERSEDED, row["seq"])
        return gone(act, told_seq, name[0])


def _command(schedule_id: str, seq: int, *, is_cancel: bool) -> Row:
    # The due time follows from the version: of two equal versions the store keeps the one that is due first, the wheel
    # the first that comes.
    if is_cancel:
        return cancel(seq, schedule_id)
    entry = near(seq, seq * 7919 % 400 + len(schedule_id), schedule_id)
    return entry | {"delay_level_ms": (None, 5, 30)[seq % 3], "level_error_ms": (None, 0, 13)[seq % 3]}


commands = st.builds(
    _command,
    st.sampled_from(("a", "bb", "ccc")),
    st.integers(0, 12),
    is_cancel=st.sampled_from((False, False, True)),
)
moves = st.lists(
    st.tuples(st.lists(commands, max_size=5), st.integers(0, 60), st.integers(0, 3)), max_size=14
)


@given(moves)
def test_a_wheel_beside_a_store_fires_what_a_wheel_fires_that_holds_everything(
    moves: list[tuple[list[Row], int, int]],
) -> None:
    tiered, whole, now_ms = Tiered(), ShardState.empty(WHEEL), 0
    fired: set[tuple[str, int]] = set()
    expected: set[tuple[str, int]] = set()
    for rows, step_ms, windows in [*moves, ([], 500, 6)]:
        now_ms += step_ms
        given_rows = [row | {"seq_given": True} for row in rows]
        step = advance(whole, commands_table(given_rows) if rows else None, now_ms, memory_ms=None)
        whole = step.state
        expected |= {(row["schedule_id"], row["seq"]) for row in rows_of(step.fired)}
        fired |= set(tiered.batch(now_ms, given_rows))
        if windows or now_ms >= tiered.cursor_ms:
            cursor_ms = max(tiered.cursor_ms, (now_ms // 100 + 1) * 100) + 100 * windows
            fired |= set(tiered.hand_over(cursor_ms, now_ms))
    counts = tiered.shard.state.counts
    assert fired == expected
    assert (tiered.far, tiered.shard.state.far, tiered.shard.state.pending) == ([], 0, 0)
    assert sum(counts[name] for name in SCHEDULE_OUTCOMES) == tiered.schedules
    assert sum(counts[name] for name in CANCEL_OUTCOMES) == tiered.cancels
    assert min(counts.values()) >= 0


def history(seed: int) -> list[tuple[int, list[Row]]]:
    """Batches of commands, each with its clock. Ids are used again after their end, replaced and cancelled, once or
    several times, before and after they have fired, near and far; some CANCELs are of ids that never come, some come a
    batch before their schedule.
    """
    chance, seqs, now_ms = random.Random(seed), Counter[str](), 0
    batches: list[tuple[int, list[Row]]] = [(0, [])]
    for _ in range(15):
        now_ms += chance.choice((0, 20, 60, 150))
        rows: list[Row] = []
        for _ in range(chance.randrange(7)):
            name, kind = chance.choice("abcd"), chance.random()
            due_ms = now_ms + chance.choice((-10, 3, 30, 60, 120, 250, 400, 700))
            seqs[name] += chance.choice((1, 2))
            if kind < 0.45:
                rows.append(near(seqs[name], due_ms, name))
            elif kind < 0.85:
                rows += [cancel(seqs[name], name)] * chance.choice((1, 1, 2))
            elif kind < 0.92:
                rows.append(cancel(seqs[name], f"{name} never"))
            else:
                once = f"early{seqs.total()}"
                batches[-1][1].append(cancel(2, once))
                rows.append(near(1, due_ms, once))
        batches.append((now_ms, rows))
    return [*batches, *((now_ms + 800 * more, []) for more in (1, 2, 3))]


@pytest.mark.parametrize("memory_ms", [160, 300, None])
def test_the_cancels_of_far_entries_counted_otherwise_than_those_of_near_ones(memory_ms: int | None) -> None:
    counts: Counter[str] = Counter()
    for seed in range(15):
        tiered, whole = Tiered(memory_ms), ShardState.empty(WHEEL)
        for now_ms, commands in history(seed):
            rows = [row | {"seq_given": True} for row in commands]
            step = advance(whole, commands_table(rows) if rows else None, now_ms, memory_ms=memory_ms)
            whole = step.state
            fired = sorted((row["schedule_id"], row["seq"]) for row in rows_of(step.fired))
            assert sorted(tiered.turn(now_ms, rows)) == fired, (seed, now_ms)
        assert tiered.shard.state.counts == whole.counts, seed
        counts.update(whole.counts)
    assert min(counts[name] for name in ("applied", "waiting", "late", "cancel_duplicate")) > 0
