"""The reference purgatory: each operation ends once, and leaves nothing behind."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from wheel_udf.common.errors import ConfigError
from wheel_udf.purgatory.reference import DelayedOperation, Outcome, Purgatory


class Acks(DelayedOperation):
    """Waits for so many acknowledgements."""

    def __init__(self, needed: int, deadline_ms: int) -> None:
        super().__init__(deadline_ms)
        self.needed, self.got, self.calls = needed, 0, list[str]()

    def try_complete(self) -> bool:
        return self.got >= self.needed and self.force_complete()

    def on_complete(self) -> None:
        self.calls.append("complete")

    def on_expiration(self) -> None:
        self.calls.append("expiration")

    def on_cancel(self) -> None:
        self.calls.append("cancel")


def counts(purgatory: Purgatory) -> tuple[int, int]:
    return purgatory.watched, purgatory.delayed


def test_what_is_complete_already_never_waits() -> None:
    purgatory, done = Purgatory(), Acks(0, 100)
    assert purgatory.try_complete_else_watch(done, ["t0"])
    assert (done.calls, done.outcome, counts(purgatory)) == (["complete"], Outcome.COMPLETED, (0, 0))


def test_an_event_on_any_key_tries_the_operation_and_its_end_takes_it_off_all_lists() -> None:
    purgatory, one, two = Purgatory(), Acks(1, 100), Acks(2, 100)
    assert not purgatory.try_complete_else_watch(one, ["t0", "t1", "t2"])
    assert not purgatory.try_complete_else_watch(two, ["t1", "t1"])
    assert counts(purgatory) == (4, 2)
    one.got = two.got = 1
    assert purgatory.check_and_complete("t1") == 1
    assert counts(purgatory) == (1, 1)
    assert [purgatory.check_and_complete(key) for key in ("t0", "t1", "t2", "nobody's")] == [0, 0, 0, 0]
    assert purgatory.advance(100) == 1
    assert (one.calls, two.calls) == (["complete"], ["complete", "expiration"])
    assert counts(purgatory) == (0, 0)
    assert purgatory.next_wakeup_ms is None


def test_an_operation_expires_at_its_deadline_and_not_before() -> None:
    purgatory, late = Purgatory(start_ms=1_000), Acks(1, 1_500)
    purgatory.try_complete_else_watch(late, ["t"])
    assert (purgatory.advance(1_499), purgatory.advance(1_500), purgatory.advance(9_999)) == (0, 1, 0)
    assert late.outcome is Outcome.EXPIRED
    late.got = 1
    assert not late.try_complete()
    assert late.calls == ["complete", "expiration"]


def test_a_deadline_in_the_past_is_over_at_the_next_look() -> None:
    purgatory, past = Purgatory(start_ms=1_000), Acks(1, 10)
    assert not purgatory.try_complete_else_watch(past, ["t"])
    assert purgatory.advance(1_000) == 1


def test_a_cancel_by_key_ends_what_watches_it_without_completing_it() -> None:
    purgatory, one, other = Purgatory(), Acks(1, 100), Acks(1, 100)
    purgatory.try_complete_else_watch(one, ["t0", "t1"])
    purgatory.try_complete_else_watch(other, ["t1"])
    assert purgatory.cancel_for_key("t0") == [one]
    assert purgatory.cancel_for_key("t0") == []
    one.got = 1
    assert purgatory.check_and_complete("t1") == 0
    assert (one.calls, one.outcome, counts(purgatory)) == (["cancel"], Outcome.CANCELLED, (1, 1))
    assert purgatory.advance(100) == 1


def test_an_operation_needs_a_key_and_waits_once() -> None:
    purgatory, waits = Purgatory(), Acks(1, 100)
    with pytest.raises(ConfigError, match=r"without keys .*rule: at least one"):
        purgatory.try_complete_else_watch(waits, [])
    purgatory.try_complete_else_watch(waits, ["t"])
    with pytest.raises(ConfigError, match="waits, or has waited, in a purgatory already"):
        purgatory.try_complete_else_watch(waits, ["other"])
    assert counts(purgatory) == (1, 1)


def test_an_event_between_the_first_attempt_and_the_watch_is_not_lost() -> None:
    purgatory = Purgatory()

    class Unlucky(Acks):
        def try_complete(self) -> bool:
            done = super().try_complete()
            if self.got == 0:  # it happens right after the first attempt, and finds no one on the list
                self.got = 1
                assert purgatory.check_and_complete("t") == 0
            return done

    unlucky = Unlucky(1, 100)
    assert purgatory.try_complete_else_watch(unlucky, ["t"])
    assert counts(purgatory) == (0, 0)


def test_a_callback_may_use_the_purgatory() -> None:
    purgatory, second = Purgatory(), Acks(1, 100)

    class First(Acks):
        def on_complete(self) -> None:
            super().on_complete()
            second.got = 1
            purgatory.check_and_complete("second")

    first = First(1, 100)
    purgatory.try_complete_else_watch(second, ["second"])
    purgatory.try_complete_else_watch(first, ["first"])
    first.got = 1
    assert purgatory.check_and_complete("first") == 1
    assert second.calls == ["complete"]


def test_a_callback_that_fails_leaves_the_others_of_its_call_to_the_next() -> None:
    purgatory, good = Purgatory(), Acks(1, 20)

    class Bad(Acks):
        def on_complete(self) -> None:
            raise RuntimeError("mine")

    bad = Bad(1, 10)
    for each in (bad, good):
        purgatory.try_complete_else_watch(each, ["t"])
    with pytest.raises(RuntimeError, match="mine"):
        purgatory.advance(50)
    assert purgatory.next_wakeup_ms == 50
    assert purgatory.advance(50) == 1
    assert (bad.outcome, good.calls) == (Outcome.EXPIRED, ["complete", "expiration"])


def test_twenty_threads_that_race_for_a_hundred_operations_end_each_once() -> None:
    purgatory, ended = Purgatory(), list[tuple[str, int]]()
    operations = [Acks(1, 50) for _ in range(100)]
    for number, each in enumerate(operations):
        purgatory.try_complete_else_watch(each, [f"k{number}", "all"])
        each.got = 1
    start = threading.Barrier(20)

    def race(number: int) -> None:
        start.wait()
        match number % 4:
            case 0:
                ended.append(("completed", purgatory.check_and_complete("all")))
            case 1:
                ended.append(
                    ("completed", sum(purgatory.check_and_complete(f"k{each}") for each in range(100)))
                )
            case 2:
                ended.append(("expired", purgatory.advance(50)))
            case _:
                ended.append(("cancelled", len(purgatory.cancel_for_key("k7"))))

    threads = [threading.Thread(target=race, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outcomes = Counter(str(each.outcome) for each in operations)
    told = Counter[str]()
    for outcome, number in ended:
        told[outcome] += number
    assert outcomes == +told
    assert sum(outcomes.values()) == 100
    for each in operations:
        once = {
            Outcome.COMPLETED: ["complete"],
            Outcome.EXPIRED: ["complete", "expiration"],
            Outcome.CANCELLED: ["cancel"],
        }
        assert each.outcome is not None
        assert each.calls == once[each.outcome]
    assert counts(purgatory) == (0, 0)


ACTS = st.one_of(
    st.tuples(
        st.just("add"), st.integers(0, 3), st.sets(st.sampled_from("abc"), min_size=1), st.integers(0, 60)
    ),
    st.tuples(st.just("event"), st.sampled_from("abc")),
    st.tuples(st.just("cancel"), st.sampled_from("abc")),
    st.tuples(st.just("advance"), st.integers(0, 30)),
)


@given(st.lists(ACTS, max_size=60))
def test_whatever_happens_it_ends_as_a_list_of_all_operations_would_have_it(
    acts: list[tuple[object, ...]],
) -> None:
    purgatory, now_ms = Purgatory(tick_ms=5, size=3), 0
    waiting: list[tuple[Acks, set[str]]] = []
    everyone: list[tuple[Acks, list[str]]] = []

    def end(those: list[tuple[Acks, set[str]]], calls: list[str]) -> int:
        for operation, keys in those:
            waiting.remove((operation, keys))
            next(told for known, told in everyone if known is operation).extend(calls)
        return len(those)

    for act in acts:
        match act:
            case ("add", int(needed), set(keys), int(delay_ms)):
                operation = Acks(needed, now_ms + delay_ms)
                everyone.append((operation, ["complete"] if needed == 0 else []))
                if needed:
                    waiting.append((operation, keys))
                assert purgatory.try_complete_else_watch(operation, sorted(keys)) == (needed == 0)
            case ("event", str(key)):
                mine = [each for each in waiting if key in each[1]]
                for operation, _ in mine:
                    operation.got += 1
                done = [each for each in mine if each[0].got >= each[0].needed]
                assert purgatory.check_and_complete(key) == end(done, ["complete"])
            case ("cancel", str(key)):
                mine = [each for each in waiting if key in each[1]]
                assert purgatory.cancel_for_key(key) == [operation for operation, _ in mine]
                end(mine, ["cancel"])
            case ("advance", int(by_ms)):
                now_ms += by_ms
                over = [each for each in waiting if each[0].deadline_ms <= now_ms]
                assert purgatory.advance(now_ms) == end(over, ["complete", "expiration"])
        assert [operation.calls for operation, _ in everyone] == [told for _, told in everyone]
        assert counts(purgatory) == (sum(len(keys) for _, keys in waiting), len(waiting))
