"""The tools of the tests themselves, on literal rows: the oracle, and the public helpers.

A property test that agrees with the oracle means something only if the oracle is right by itself.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.unit.wheel.heap_model import CANCEL, CANCEL_OUTCOMES, SCHEDULE, SCHEDULE_OUTCOMES, HeapModel


def schedule(schedule_id: str, seq: int, due: int, **rest: Any) -> dict[str, Any]:
    row = {
        "schedule_id": schedule_id,
        "op": SCHEDULE,
        "seq": seq,
        "amend": 0,
        "seq_given": True,
        "deliver_at_ms": due,
    }
    nothing = dict.fromkeys(("max_lateness_ms", "key", "value", "headers", "source"))
    return row | nothing | {"destination": "out"} | rest


def cancel(schedule_id: str, seq: int) -> dict[str, Any]:
    return schedule(schedule_id, seq, 0) | {"op": CANCEL, "deliver_at_ms": None, "destination": None}


def ids(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(row["schedule_id"], row["seq"]) for row in rows]


def told(model: HeapModel) -> dict[str, int]:
    """The counts that are not zero."""
    return {name: count for name, count in model.counts.items() if count}


def test_what_is_due_fires_oldest_first_then_by_id_then_by_seq() -> None:
    model = HeapModel(None)
    fired, missed = model.batch(
        [schedule("b", 1, 5), schedule("a", 1, 5), schedule("z", 1, 4), schedule("c", 1, 6)], 5
    )
    assert ids(fired) == [("z", 1), ("a", 1), ("b", 1)]
    assert missed == []
    assert (model.pending, model.next_due_ms, model.clock_ms) == (1, 6, 5)


def test_an_entry_later_than_it_may_be_is_missed_and_one_just_in_time_fires() -> None:
    model = HeapModel(None)
    fired, missed = model.batch(
        [schedule("a", 1, 0, max_lateness_ms=9), schedule("b", 1, 0, max_lateness_ms=10)], 10
    )
    assert (ids(fired), ids(missed)) == ([("b", 1)], [("a", 1)])


def test_a_limit_counts_missed_rows_and_keeps_the_rest_due() -> None:
    model = HeapModel(None)
    late = [schedule(name, 1, due, max_lateness_ms=0) for due, name in enumerate("abc")]
    fired, missed = model.batch([*late, schedule("d", 1, 9)], 10, limit=2)
    assert (ids(fired), ids(missed), model.next_due_ms) == ([], [("a", 1), ("b", 1)], 2)
    fired, missed = model.batch([], 10, limit=2)
    assert (ids(fired), ids(missed), model.next_due_ms) == ([("d", 1)], [("c", 1)], None)


def test_versions_decide_and_not_the_order_of_arrival() -> None:
    for batch in ([schedule("a", 1, 5), schedule("a", 2, 9)], [schedule("a", 2, 9), schedule("a", 1, 5)]):
        model = HeapModel(None)
        model.batch(batch, 0)
        assert (model.next_due_ms, told(model)) == (9, {"superseded": 1})


def test_a_cancel_is_above_the_schedule_of_its_own_seq() -> None:
    model = HeapModel(None)
    assert model.batch([cancel("a", 1), schedule("a", 1, 0)], 0) == ([], [])
    assert told(model) == {"cancelled": 1, "applied": 1}


def test_a_waiting_cancel_ends_the_first_older_schedule_and_supersedes_the_next() -> None:
    model = HeapModel(None)
    model.batch([cancel("a", 3)], 0)
    assert told(model) == {"waiting": 1}
    model.batch([schedule("a", 1, 0), schedule("a", 2, 0)], 0)
    assert told(model) == {"cancelled": 1, "applied": 1, "superseded": 1}


def test_a_cancel_after_a_cancel_is_late_and_a_newer_schedule_changes_the_count_of_neither() -> None:
    model = HeapModel(None)
    model.batch([cancel("a", 1)], 0)
    model.batch([cancel("a", 2)], 0)
    model.batch([schedule("a", 3, 9)], 0)
    assert (told(model), model.pending) == ({"waiting": 1, "late": 1}, 1)


def test_a_late_cancel_keeps_what_is_known_of_the_firing() -> None:
    model = HeapModel(None)
    model.batch([schedule("a", 1, 5)], 5)
    model.batch([cancel("a", 2)], 6)
    model.batch([schedule("a", 3, 5, seq_given=False), schedule("a", 4, 7, seq_given=False)], 6)
    assert told(model) == {"fired": 1, "late": 1, "duplicate": 1}
    assert model.next_due_ms == 7


def test_a_missed_entry_is_no_retry_to_anybody() -> None:
    model = HeapModel(None)
    model.batch([schedule("a", 1, 0, max_lateness_ms=0)], 5)
    fired, _ = model.batch([schedule("a", 2, 0, seq_given=False)], 5)
    assert (ids(fired), told(model)) == ([("a", 2)], {"missed": 1, "fired": 1})


def test_of_equal_versions_in_one_batch_the_first_by_content_is_kept() -> None:
    model = HeapModel(None)
    fired, _ = model.batch(
        [schedule("a", 1, 5), schedule("a", 1, 3, value=b"y"), schedule("a", 1, 3, value=b"x")], 9
    )
    assert [(row["deliver_at_ms"], row["value"]) for row in fired] == [(3, b"x")]
    assert told(model) == {"fired": 1, "duplicate": 2}


@pytest.mark.parametrize(
    ("memory_ms", "now_ms", "outcome"), [(10, 9, "duplicate"), (10, 10, "fired"), (0, 0, "fired")]
)
def test_memory_ends_at_its_very_end(memory_ms: int, now_ms: int, outcome: str) -> None:
    model = HeapModel(memory_ms)
    model.batch([schedule("a", 1, 0)], 0)
    before = model.counts[outcome]
    model.batch([schedule("a", 1, 0)], now_ms)
    assert model.counts[outcome] == before + 1


def test_the_clock_holds_against_a_step_back_and_stands_while_nothing_happens() -> None:
    model = HeapModel(None)
    model.batch([], 50)
    assert (model.clock_ms, model.changed) == (None, False)
    model.batch([schedule("a", 1, 100)], 100)
    assert (model.clock_ms, model.changed) == (100, True)
    fired, _ = model.batch([schedule("b", 1, 90)], 20)
    assert (ids(fired), model.clock_ms) == ([("b", 1)], 100)


@pytest.mark.parametrize("seed", range(20))
def test_the_identities_close_whatever_comes(seed: int) -> None:
    random_ = random.Random(seed)
    model = HeapModel(random_.choice([None, 0, 5, 50]))
    for _ in range(30):
        commands = [
            schedule(random_.choice("abc"), random_.randrange(9), random_.randrange(90)) for _ in range(3)
        ]
        commands += [cancel(random_.choice("abc"), random_.randrange(9)) for _ in range(2)]
        model.batch(commands, random_.randrange(90), random_.choice([None, 1, 2]))
        assert model.schedules_in == model.pending + sum(model.counts[name] for name in SCHEDULE_OUTCOMES)
        assert model.cancels_in == sum(model.counts[name] for name in CANCEL_OUTCOMES)
        assert model.counts["cancelled"] == model.counts["applied"]
