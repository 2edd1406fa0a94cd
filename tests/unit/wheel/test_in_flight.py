"""What is handed to a sender ahead of its due time: one sentence each, and the step beside a heap model over random lives
of senders.

Reading the time lines: above the line the commands of a batch, on the line its clock, below it what leaves (``a!``
released by the batch, ``a>`` handed over). The horizon is the clock and 4; the wheel has ticks of 1 ms.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given, strategies as st

from tests.unit.wheel.flight_model import FlightModel, Terms
from tests.unit.wheel.heap_model import (
    CANCEL,
    CANCEL_OUTCOMES,
    ENTRY_COLUMNS,
    SCHEDULE,
    SCHEDULE_OUTCOMES,
)
from tests.unit.wheel.test_advance_property import (
    LIMITS,
    MEMORIES_MS,
    PAYLOADS,
    STARTS_MS,
    commands_of,
    drafts,
    spans,
    wheels,
)
from wheel_udf.common.geometry import INT64_MAX, Wheel
from wheel_udf.policies.in_flight import HandOver, InFlight, beyond_ms, complete_ms
from wheel_udf.policies.limits import Limits
from wheel_udf.policies.rates import Rate, Rates, Turnstile
from wheel_udf.policies.sender_news import Confirmed, SenderNews
from wheel_udf.policies.shard_limits import ShardLimits
from wheel_udf.shard.state import ShardState
from wheel_udf.testing.frames import commands_table, rows_of
from wheel_udf.wheel.policies import Gate, Policies
from wheel_udf.wheel.step import Step, advance

WHEEL = Wheel(tick_ms=1, size=20, levels=3)
ALL = INT64_MAX


def is_punctual(names: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    return names.to_numpy() != "other"  # type: ignore[no-any-return]


def schedule(schedule_id: str, due_ms: int, **rest: Any) -> dict[str, Any]:
    return {"schedule_id": schedule_id, "seq": 1, "deliver_at_ms": due_ms, **rest}


def cancel(schedule_id: str, seq: int = 2) -> dict[str, Any]:
    return {"schedule_id": schedule_id, "op": "CANCEL", "seq": seq}


class Shard:
    """A shard driven by hand; batches count from 0. Answers (released, handed over), as ids."""

    def __init__(self, ahead_ms: int = 4, memory_ms: int | None = None) -> None:
        self.state, self.memory_ms, self.ahead_ms = ShardState.empty(WHEEL), memory_ms, ahead_ms
        self.batches, self.rows, self.octets = 0, 100, 10**9
        self.step: Step | None = None

    def batch(
        self,
        now_ms: int,
        *commands: dict[str, Any],
        news: tuple[Confirmed, ...] = (),
        limit: int | None = None,
        limits: Limits | None = None,
        off: bool = False,
        gate: Gate | None = None,
    ) -> tuple[list[str], list[str]]:
        over = HandOver(self.batches, self.ahead_ms, is_punctual, self.rows, self.octets, news)
        rows = commands_table(commands) if commands else None
        self.batches += 1
        self.step = advance(
            self.state,
            rows,
            now_ms,
            limit,
            memory_ms=self.memory_ms,
            policies=Policies(
                admit=ShardLimits(limits) if limits else None, hold=InFlight(None if off else over), gate=gate
            ),
        )
        state = self.step.state
        self.state = ShardState.from_row(state.to_row(1), WHEEL, 1)
        return (
            [row["schedule_id"] for row in rows_of(self.step.fired)],
            [row["schedule_id"] for row in rows_of(self.step.handed)],
        )

    @property
    def told(self) -> dict[str, int]:
        """Pending, in flight, and the counts that are not zero."""
        counts = {"pending": self.state.pending, "in_flight": self.state.in_flight, **self.state.counts}
        return {name: count for name, count in counts.items() if count}


# ---- hand-over -----------------------------------------------------------------------------------


def test_what_is_due_within_the_horizon_is_handed_over_and_what_is_due_is_released() -> None:
    #   a@1 b@3 c@4 d@5 e@9
    # --1--------------------2--->
    #   a!  b> c> d>              (e is beyond 1 + 4)
    shard = Shard()
    rows = [schedule("a", 1), schedule("d", 5), schedule("c", 4), schedule("e", 9), schedule("b", 3)]
    assert shard.batch(1, *rows) == (["a"], ["b", "c", "d"])
    assert shard.told == {"pending": 4, "in_flight": 3, "fired": 1}
    assert shard.state.next_due_ms == 9
    assert shard.batch(5) == ([], ["e"])


def test_what_waits_for_its_turn_was_handed_over_with_that_as_its_due_time() -> None:
    shard, gate = Shard(ahead_ms=500), Turnstile(Rates({"out": Rate(10, 1)}), 0, 1)
    assert shard.batch(2, schedule("a", 1), schedule("b", 1), gate=gate) == (["a"], [])
    assert shard.batch(102, gate=gate) == (["b"], [])
    assert shard.step is not None
    assert shard.step.fired["deliver_at_ms"].to_pylist() == [1]


def test_what_is_in_flight_counts_for_the_limits_of_its_destination() -> None:
    shard = Shard()
    shard.batch(0, schedule("a", 3))
    shard.batch(1, schedule("b", 200), limits=Limits(per_destination=1))
    assert shard.step.refused is not None
    assert shard.step.refused["schedule_id"].to_pylist() == ["b"]
    assert shard.told == {"pending": 1, "in_flight": 1, "rejected": 1}


def test_what_is_handed_over_is_handed_over_once() -> None:
    shard = Shard()
    assert shard.batch(0, schedule("a", 3)) == ([], ["a"])
    assert shard.batch(1) == ([], [])
    assert shard.batch(99, schedule("b", 200)) == ([], [])
    assert shard.told == {"pending": 2, "in_flight": 1}


def test_a_confirmation_fires_a_batch_that_is_confirmed_whole_and_no_other() -> None:
    shard = Shard()
    shard.batch(0, schedule("a", 3), schedule("b", 4))
    assert shard.batch(5, news=(Confirmed(0, 0, 3),)) == ([], [])
    assert shard.told == {"pending": 2, "in_flight": 2}, "b is not confirmed: the batch waits"
    assert shard.batch(6, news=(Confirmed(0, 0, 4),)) == ([], [])
    assert shard.told == {"fired": 2}


def test_a_confirmation_for_earlier_batches_fires_none_of_a_later_one() -> None:
    shard = Shard()
    shard.batch(0, schedule("a", 3))
    shard.batch(1, schedule("b", 3))
    shard.batch(5, news=(Confirmed(0, 0, ALL),))
    assert shard.told == {"pending": 1, "in_flight": 1, "fired": 1}


def test_a_tick_with_nothing_to_confirm_and_nothing_to_hand_over_changes_nothing() -> None:
    shard = Shard()
    shard.batch(0, schedule("a", 3), schedule("b", 50))
    before = shard.state.to_row(1)
    assert shard.batch(1, news=(Confirmed(0, 0, 2),)) == ([], [])
    assert shard.step is not None
    assert not shard.step.changed
    assert shard.state.to_row(1) == before


def test_destinations_that_are_not_punctual_wait_for_their_batch() -> None:
    shard = Shard()
    assert shard.batch(0, schedule("a", 2), schedule("t", 2, destination="other")) == ([], ["a"])
    assert shard.state.next_due_ms == 2
    assert shard.batch(1) == ([], [])
    assert shard.batch(2) == (["t"], [])


def test_the_oldest_are_handed_over_as_far_as_there_is_room_and_the_rest_goes_later_or_with_its_batch() -> (
    None
):
    shard = Shard()
    shard.rows = 2
    assert shard.batch(0, *(schedule(name, due) for name, due in zip("abcd", (4, 3, 2, 1), strict=True))) == (
        [],
        ["d", "c"],
    )
    shard.rows = 1
    assert shard.batch(1) == ([], ["b"])
    shard.rows = 0
    assert shard.batch(3) == ([], [])
    assert shard.batch(4) == (["a"], [])


def test_the_room_in_bytes_counts_the_payload() -> None:
    shard = Shard()
    shard.octets = 5_000
    large = {"value": b"x" * 3_000}
    assert shard.batch(0, schedule("a", 1, **large), schedule("b", 2, **large)) == ([], ["a"])
    shard.octets = 100
    assert shard.batch(1) == ([], []), "nothing fits: the batch releases it"
    assert shard.batch(2) == (["b"], [])


def test_the_limit_of_a_batch_bounds_what_is_released_and_handed_over_together() -> None:
    shard = Shard()
    rows = [schedule(name, due) for name, due in zip("abcd", (0, 1, 2, 3), strict=True)]
    assert shard.batch(0, *rows, limit=2) == (["a"], ["b"])
    assert shard.batch(1, limit=1) == ([], ["c"])
    assert shard.batch(3, limit=1) == (["d"], [])


# ---- cancels, replaces, retries ------------------------------------------------------------------


def test_a_cancel_in_the_batch_of_the_hand_over_wins_and_one_after_it_is_late() -> None:
    shard = Shard()
    shard.batch(0, schedule("a", 9), schedule("b", 9))
    assert shard.batch(6, cancel("a")) == ([], ["b"])
    assert shard.batch(7, cancel("b")) == ([], [])
    shard.batch(20, news=(Confirmed(0, 2, ALL),))
    assert shard.told == {"fired": 1, "cancelled": 1, "applied": 1, "late": 1}


def test_a_replace_after_the_hand_over_starts_the_id_anew() -> None:
    shard = Shard()
    shard.batch(0, schedule("a", 3))
    assert shard.batch(1, schedule("a", 30, seq=2)) == ([], [])
    shard.batch(5, news=(Confirmed(0, 1, ALL),))
    assert shard.told == {"pending": 1, "fired": 1}
    assert shard.batch(26) == ([], ["a"])


def test_a_retry_of_what_is_in_flight_is_a_duplicate() -> None:
    shard = Shard()
    shard.batch(0, schedule("a", 3))
    assert shard.batch(1, schedule("a", 3, seq=7, seq_given=False)) == ([], [])
    assert shard.told == {"pending": 1, "in_flight": 1, "duplicate": 1}


def test_the_memory_of_what_was_handed_over_counts_from_its_due_time() -> None:
    shard = Shard(ahead_ms=50, memory_ms=10)
    shard.batch(0, schedule("a", 40))
    shard.batch(49, cancel("a"))
    shard.batch(51, cancel("a", 3))
    assert shard.told == {"pending": 1, "in_flight": 1, "late": 2}
    shard.batch(60, news=(Confirmed(0, 2, ALL),))
    shard.batch(62, cancel("a", 4))
    assert shard.state.counts["waiting"] == 1, "11 ms after its last mention"


def test_what_was_in_flight_for_longer_than_memory_was_taken_for_unknown() -> None:
    # A copy of it was fired beside it, and a cancel waited for ever.
    shard = Shard(memory_ms=10)
    shard.batch(0, schedule("a", 3), schedule("b", 3), schedule("c", 3))
    shard.batch(5, cancel("c", 1))
    assert shard.batch(20, schedule("a", 3), cancel("b")) == ([], [])
    assert shard.told == {"pending": 3, "in_flight": 3, "duplicate": 1, "late": 2}
    assert shard.batch(21, news=(Confirmed(3, 2, -1),), limit=1) == (["a"], [])
    assert shard.batch(40, schedule("c", 3), schedule("a", 3)) == (["a", "b", "c"], []), (
        "memory of a ends at 31"
    )
    assert shard.told == {"fired": 4, "duplicate": 2, "late": 2}


# ---- a new sender --------------------------------------------------------------------------------


def test_a_new_sender_gets_what_the_one_before_has_not_noted() -> None:
    #   a@3 b@4          new sender since batch 1; noted: batch 0 up to 3
    # --0----------------2---------------------------------------------->
    #   a> b>            b>
    shard = Shard()
    shard.batch(0, schedule("a", 3), schedule("b", 4))
    assert shard.batch(2, news=(Confirmed(0, 0, 3), Confirmed(1, 0, -1))) == ([], ["b"])
    assert shard.told == {"pending": 1, "in_flight": 1, "fired": 1}
    shard.batch(5, news=(Confirmed(0, 0, 3), Confirmed(1, 1, ALL)))
    assert shard.told == {"fired": 2}


def test_what_is_due_when_the_new_sender_comes_is_released_by_the_batch() -> None:
    shard = Shard()
    shard.batch(0, schedule("a", 3), schedule("b", 4))
    assert shard.batch(9, news=(Confirmed(1, 0, -1),)) == (["a", "b"], [])
    assert shard.told == {"fired": 2}


def test_what_an_old_sender_had_and_is_too_late_now_is_missed() -> None:
    shard = Shard()
    shard.batch(0, schedule("a", 3, max_lateness_ms=2))
    assert shard.batch(9, news=(Confirmed(1, 0, -1),)) == ([], [])
    assert shard.told == {"missed": 1}


def test_what_is_handed_over_again_and_finds_no_room_is_still_late_for_a_cancel() -> None:
    shard = Shard()
    shard.batch(0, schedule("a", 4))
    shard.rows = 0
    assert shard.batch(1, news=(Confirmed(1, 0, -1),)) == ([], [])
    assert (shard.told, shard.state.next_due_ms) == ({"pending": 1, "in_flight": 1}, 4)
    assert shard.batch(2, cancel("a")) == ([], [])
    assert shard.batch(4) == (["a"], [])
    assert shard.told == {"fired": 1, "late": 1}


def test_under_a_limit_what_an_earlier_sender_had_went_before_what_was_due_earlier() -> None:
    shard = Shard(ahead_ms=4)
    shard.rows = 1
    rows = [schedule("new", 90), schedule("newer", 91), schedule("old", 50, destination="other")]
    assert shard.batch(88, *rows, limit=0) == ([], [])
    assert shard.batch(88, limit=2) == (["old"], ["new"])
    shard.batch(88, schedule("oldest", 40, destination="other"), schedule("old", 50, seq=2), limit=0)
    news = (Confirmed(3, 2, -1),)
    order = [shard.batch(200, news=news if number == 0 else (), limit=1)[0] for number in range(4)]
    assert order == [["oldest"], ["old"], ["new"], ["newer"]]


def test_a_missed_row_that_an_earlier_sender_had_counts_under_the_limit() -> None:
    shard = Shard()
    shard.batch(0, schedule("a", 2, max_lateness_ms=0), schedule("b", 4))
    news = (Confirmed(1, 0, -1),)
    assert shard.batch(9, schedule("c", 3), news=news, limit=2) == (["c"], [])
    assert (shard.told, shard.state.next_due_ms) == (
        {"pending": 1, "in_flight": 1, "fired": 1, "missed": 1},
        4,
    )


def test_a_backlog_that_an_earlier_sender_had_was_opened_whole_in_each_batch() -> None:
    shard = Shard(ahead_ms=100_000)
    shard.rows = 10_000
    shard.batch(0, *(schedule(f"{number:05}", number + 1) for number in range(10_000)))
    news = (Confirmed(1, 0, -1),)
    released = shard.batch(50_000, news=news, limit=100)[0]
    before = {chunk.text for chunk in shard.state.in_flight_chunks}
    released += shard.batch(50_001, limit=100)[0]
    after = {chunk.text for chunk in shard.state.in_flight_chunks}
    assert len(before) == 10, "in runs of about a thousand"
    assert len(before - after) == 1, "one was opened"
    for _ in range(3):
        released += shard.batch(50_002, limit=4_000)[0]
    assert released == [f"{number:05}" for number in range(10_000)]


def test_a_limit_on_entries_counts_no_row_that_leaves_with_the_batch() -> None:
    # What the sender had confirmed, or had left and is due, counted: an entry that had room was refused.
    limits = Limits(pending=1, per_destination=1)
    for news, fired in (((Confirmed(0, 0, ALL),), []), ((Confirmed(1, 0, -1),), ["a"])):
        shard = Shard()
        shard.batch(0, schedule("a", 3))
        assert shard.batch(9, schedule("b", 500), news=news, limits=limits) == (fired, [])
        assert shard.told == {"pending": 1, "fired": 1}


def test_a_limit_on_entries_counts_each_row_that_stays_in_the_batch() -> None:
    # What the sender had and was due was taken for gone, although the sender had not confirmed it, or the limit of the
    # batch held it back.
    limits = Limits(per_destination=1)
    for news, limit in (((), None), ((Confirmed(1, 0, -1),), 1)):
        shard = Shard()
        shard.batch(0, schedule("a", 3), schedule("other", 1, destination="other"), limit=5)
        shard.batch(9, schedule("b", 500), news=news, limits=limits, limit=limit)
        assert shard.state.counts["rejected"] == 1


def test_a_note_on_batches_that_were_repaired_away_says_nothing_of_those_planned_anew() -> None:
    assert Confirmed(3, 9, 50).before(7) == Confirmed(3, 6, 50)
    assert not Confirmed(3, 9, 50).before(7).covers(7)


def test_without_a_sender_all_in_flight_is_released_when_it_is_due() -> None:
    shard = Shard()
    shard.batch(0, schedule("a", 2), schedule("b", 4))
    assert shard.batch(2, off=True) == (["a"], [])
    assert (shard.state.next_due_ms, shard.told) == (4, {"pending": 1, "in_flight": 1, "fired": 1})
    assert shard.batch(3, off=True) == ([], [])
    assert shard.batch(4, off=True) == (["b"], [])


# ---- what the clock is told ----------------------------------------------------------------------


def test_the_shard_tells_when_there_is_more_to_hand_over_and_what_would_complete_a_batch() -> None:
    shard = Shard()
    shard.batch(
        0, schedule("a", 3), schedule("b", 4), schedule("c", 90), schedule("t", 2, destination="other")
    )
    assert (beyond_ms(shard.state, 4), complete_ms(shard.state)) == (90, 4)
    shard.batch(87, news=(Confirmed(0, 0, ALL),))
    assert (beyond_ms(shard.state, 91), complete_ms(shard.state)) == (None, 90)


def test_news_travel_as_json() -> None:
    news = SenderNews(4_000, 200_000, 10**8, (Confirmed(0, 4, -1), Confirmed(5, 4, ALL)))
    sizes = {"ahead_ms": 4_000, "free_rows": 200_000, "free_bytes": 10**8}
    assert news.to_json() == sizes | {"confirmed": [[0, 4, -1], [5, 4, ALL]]}
    assert SenderNews.from_json(news.to_json()) == news
    for found in (
        {},
        sizes,
        sizes | {"confirmed": []},
        sizes | {"confirmed": [[4, 5]]},
        sizes | {"confirmed": ["a"]},
    ):
        with pytest.raises(ValueError, match=r".*"):
            SenderNews.from_json(found)


# ---- against the model ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Move:
    """One batch of a life: its commands, and how the sender is doing."""

    step_ms: int
    drafts: tuple[dict[str, Any], ...]
    limit: int | None
    ahead_ms: int
    rows: int
    sender: str
    until: float


@dataclass
class Pair:
    """The step and its model, side by side, and a sender that is killed now and then."""

    wheel: Wheel
    memory_ms: int | None
    state: ShardState = field(init=False)
    model: FlightModel = field(init=False)
    batches: int = 0
    since: int = 0
    noted: tuple[Confirmed, ...] = ()
    out: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.state, self.model = ShardState.empty(self.wheel), FlightModel(self.memory_ms)

    def news(self, move: Move) -> tuple[Confirmed, ...]:
        """What the sender says before a batch; a killed one has noted what it last said."""
        if move.sender == "silent":
            return ()
        if move.sender in ("killed", "killed and its note lost"):
            self.noted = (
                () if move.sender != "killed" else tuple(each.before(self.batches) for each in self.noted)
            )
            self.since = self.batches
        given = [each for each in self.model.flying if each.batch is not None and each.batch >= self.since]
        dues = sorted(each.entry["deliver_at_ms"] for each in given)
        until = INT64_MAX if not dues or move.until == 1 else dues[int(move.until * len(dues))] - 1
        present = Confirmed(self.since, self.batches - 1, until)
        earlier = tuple(each for each in self.noted if each.since != self.since)[-2:]
        self.noted = (*earlier, present)
        return self.noted

    def batch(self, commands: list[dict[str, Any]], now_ms: int, move: Move) -> None:
        news = self.news(move)
        terms = None if move.sender == "off" else Terms(self.batches, move.ahead_ms, move.rows, news)
        over = terms and HandOver(self.batches, move.ahead_ms, is_punctual, move.rows, 10**9, news)
        table = commands_table(commands) if commands else None
        step = advance(
            self.state,
            table,
            now_ms,
            move.limit,
            memory_ms=self.memory_ms,
            policies=Policies(hold=InFlight(over)),
        )
        again = advance(
            self.state,
            table,
            now_ms,
            move.limit,
            memory_ms=self.memory_ms,
            policies=Policies(hold=InFlight(over)),
        )
        assert again.state.to_row(1) == step.state.to_row(1), "a replay does the same"
        fired, missed, handed = self.model.batch_with(commands, now_ms, move.limit, terms)
        assert (shown(step.fired), shown(step.missed), shown(step.handed)) == (fired, missed, handed)
        assert step.state.clock_ms in (
            (step.clock_ms,) if step.changed else (self.model.clock_ms, step.clock_ms)
        )
        self.model.clock_ms = step.state.clock_ms
        self.state = ShardState.from_row(step.state.to_row(1), self.wheel, 1)
        self.batches += 1
        self.agree(step, move)
        for row in [*fired, *handed]:
            name = (row["schedule_id"], row["seq"], row["amend"], row["deliver_at_ms"])
            self.out[name] = self.out.get(name, 0) + 1

    def agree(self, step: Step, move: Move) -> None:
        counts = {name: self.state.counts[name] for name in (*SCHEDULE_OUTCOMES, *CANCEL_OUTCOMES)}
        assert counts == dict(self.model.counts)
        assert self.state.pending == self.model.pending
        assert self.state.in_flight == len(self.model.flying)
        assert self.state.next_due_ms == self.model.next_due_ms
        assert self.model.schedules_in == self.state.pending + sum(counts[name] for name in SCHEDULE_OUTCOMES)
        assert self.model.cancels_in == sum(counts[name] for name in CANCEL_OUTCOMES)
        assert all(row["deliver_at_ms"] <= step.clock_ms for row in rows_of(step.fired))
        for row in rows_of(step.handed):
            assert step.clock_ms < row["deliver_at_ms"] <= step.clock_ms + move.ahead_ms

    def end(self, now_ms: int) -> None:
        """The last sender has sent everything: nothing is left, and everything that fired has come out."""
        last = Move(0, (), None, 0, 0, "alive", 1.0)
        self.batch([], now_ms, last)
        self.batch([], now_ms, last)
        assert self.state.pending == 0
        assert sum(self.out.values()) >= self.state.counts["fired"]


def shown(table: pa.Table) -> list[dict[str, Any]]:
    return [{name: row[name] for name in ENTRY_COLUMNS} for row in rows_of(table)]


def moves(wheel: Wheel) -> st.SearchStrategy[Move]:
    leaps = st.sampled_from((0, 0, 1, 5, *spans(wheel)[:3])) | st.integers(-20, 400)
    return st.builds(
        Move,
        step_ms=leaps,
        drafts=st.lists(drafts(wheel), max_size=6).map(tuple),
        limit=LIMITS,
        ahead_ms=st.sampled_from((0, 1, 4, 100, 5_000)),
        rows=st.sampled_from((0, 1, 3, 1_000)),
        sender=st.sampled_from(
            ("alive", "alive", "alive", "silent", "killed", "killed and its note lost", "off")
        ),
        until=st.sampled_from((0.0, 0.3, 0.6, 1.0)),
    )


def rushes() -> st.SearchStrategy[Move]:
    """Moves under tight limits: rows of either way fall due together, and senders die."""
    names = st.sampled_from(("a", "b", "c", "d", "e", "f", "g"))
    draft = st.fixed_dictionaries(
        {
            "schedule_id": names,
            "op": st.sampled_from((SCHEDULE, SCHEDULE, SCHEDULE, SCHEDULE, CANCEL)),
            "seq": st.integers(0, 3),
            "amend": st.just(0),
            "seq_given": st.booleans(),
            "since": st.just("now"),
            "offset_ms": st.integers(-3, 12),
            "max_lateness_ms": st.sampled_from((None, None, None, 5)),
            "payload": st.sampled_from((PAYLOADS[0], PAYLOADS[-1])),
            "level": st.just((None, None)),
        }
    )
    return st.builds(
        Move,
        step_ms=st.integers(0, 6),
        drafts=st.lists(draft, max_size=5).map(tuple),
        limit=st.integers(0, 3),
        ahead_ms=st.sampled_from((4, 100)),
        rows=st.sampled_from((0, 1, 1_000)),
        sender=st.sampled_from(("alive", "silent", "killed", "killed and its note lost", "off")),
        until=st.sampled_from((0.0, 0.5, 1.0)),
    )


lives = st.tuples(wheels, MEMORIES_MS).flatmap(
    lambda made: st.tuples(
        st.just(made[0]),
        st.just(made[1]),
        st.sampled_from(STARTS_MS),
        st.lists(moves(made[0]), min_size=1, max_size=12),
    )
)


@given(life=lives)
def test_every_batch_equals_the_heap_model_over_lives_of_senders(
    life: tuple[Wheel, int | None, int, list[Move]],
) -> None:
    _live(*life)


@given(memory_ms=st.sampled_from((None, 0, 3, 300)), some=st.lists(rushes(), min_size=4, max_size=12))
def test_under_tight_limits_every_batch_equals_the_heap_model(
    memory_ms: int | None, some: list[Move]
) -> None:
    _live(WHEEL, memory_ms, 0, some)


def _live(wheel: Wheel, memory_ms: int | None, start_ms: int, some: list[Move]) -> None:
    pair, now_ms, latest_ms = Pair(wheel, memory_ms), start_ms, start_ms
    for move in some:
        now_ms += move.step_ms
        latest_ms = max(latest_ms, now_ms)
        pair.batch(commands_of(move.drafts, start_ms, now_ms), now_ms, move)
        event(move.sender)
    dues = [entry["deliver_at_ms"] for entry in pair.model.waiting.values()]
    pair.end(max([latest_ms, *dues, *(each.entry["deliver_at_ms"] for each in pair.model.flying)]))
