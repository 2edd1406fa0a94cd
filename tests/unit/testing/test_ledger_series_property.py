"""The ledger checker against a small model of series, FIRE_NOW and retries: right runs are never accused, whatever is
known; planted faults are found.

The model takes one command and one occurrence at a time::

    batch: clock := its instant;  versions in order;  FIRE_NOW;  what is due is released, oldest first, or dropped;
           a delivery that fails waits, comes back, and after three attempts is a dead letter
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import given, strategies as st

from wheel_udf.testing.ledger import Rules, check

Row = dict[str, Any]

WAIT_MS, MOST_ATTEMPTS, LONGEST_STEP_MS = 20, 3, 160
NEVER = 2**62


@dataclass
class Entry:
    """What is pending under an id; of a series `due_ms` is the nominal time of its next occurrence."""

    row: Row
    due_ms: int
    anchor_ms: int = 0
    last_ms: int = 0
    number: int = 0
    wake_ms: int | None = None
    attempt: int = 1

    @property
    def period_ms(self) -> int | None:
        return int(self.row["repeat"].split()[1]) if self.row.get("repeat") else None

    @property
    def ready_ms(self) -> int:
        return self.due_ms if self.wake_ms is None else self.wake_ms

    def after(self, at_ms: int, number: int) -> int:
        """The first occurrence after an instant, if it may have this number."""
        period_ms = self.period_ms
        assert period_ms is not None
        past = (at_ms - self.anchor_ms) // period_ms + 1 if at_ms >= self.anchor_ms else 0
        found = self.anchor_ms + past * period_ms
        is_over = number > (self.row.get("count") or NEVER) or found > (self.row.get("until_ms") or NEVER)
        return NEVER if is_over else found


@dataclass
class Model:
    """One wheel.

    Attributes:
        tried_again: Occurrences of series that came back.
        fails: Whether the next deliveries fail.
    """

    memory_ms: int | None
    make: Random
    pending: dict[str, Entry] = field(default_factory=dict)
    tried_again: list[Entry] = field(default_factory=list)
    ended: dict[str, tuple[tuple[int, int], int]] = field(default_factory=dict)
    fired: list[Row] = field(default_factory=list)
    rejects: list[Row] = field(default_factory=list)
    account: Counter[str] = field(default_factory=Counter)
    fails: float = 0.0

    def batch(self, commands: list[Row], clock_ms: int) -> None:
        here: set[str] = set()
        for row in sorted(commands, key=_version):
            if row["op"] != "FIRE_NOW":
                self._apply(row, clock_ms, row["schedule_id"] in here)
                here.add(row["schedule_id"])
        for row in sorted(commands, key=_version, reverse=True):
            if row["op"] == "FIRE_NOW":
                self._fire_now(row, clock_ms)
        due = [(name, entry) for name, entry in self.pending.items() if entry.ready_ms <= clock_ms]
        for name, entry in due:
            if entry.period_ms is not None:
                self._release_series(name, entry, clock_ms)
                continue
            del self.pending[name]
            self.ended[name] = (_version(entry.row), clock_ms)
            self.account["fired"] += 1
            if (back := self._deliver(entry, entry.due_ms, clock_ms)) is not None:
                self.pending[name] = back
                self.ended.pop(name)
        again, self.tried_again = self.tried_again, []
        for entry in again:
            self._try_again(entry, clock_ms)

    def _try_again(self, entry: Entry, clock_ms: int) -> None:
        if entry.ready_ms <= clock_ms:
            self.account["fired"] += 1
            back = self._deliver(entry, entry.due_ms, clock_ms)
            self.tried_again += [back] if back is not None else []
        else:
            self.tried_again.append(entry)

    def _apply(self, row: Row, clock_ms: int, was_here: bool) -> None:
        name, version, is_cancel = row["schedule_id"], _version(row), row["op"] == "CANCEL"
        entry, ended = self.pending.get(name), self.ended.get(name)
        forgets = self.memory_ms is not None and not was_here
        if ended and forgets and clock_ms - ended[1] >= (self.memory_ms or 0):
            ended = None
        known = _version(entry.row) if entry else ended[0] if ended else None
        if known and version <= known:
            self.account[
                ("cancel_" if is_cancel else "") + ("duplicate" if version == known else "superseded")
            ] += 1
            return
        if entry:
            self.account["cancelled" if is_cancel else "superseded"] += 1
            del self.pending[name]
        if is_cancel:
            self.account["applied" if entry else "late" if ended else "waiting"] += 1
            self.ended[name] = (version, clock_ms)
            return
        new = _begun(row, entry)
        if new.due_ms == NEVER and known is None:
            reason = {"error_code": "no_occurrence", "error_message": "why"}
            self.rejects.append({"schedule_id": name, "seq": row["seq"]} | reason)
            self.account["rejected"] += 1
        elif new.due_ms == NEVER:
            self.account["ended"] += 1
            self.ended[name] = (version, clock_ms)
        else:
            self.pending[name] = new

    def _fire_now(self, row: Row, clock_ms: int) -> None:
        entry = self.pending.get(row["schedule_id"])
        is_applied = entry is not None and entry.row["seq"] <= row["seq"] and entry.ready_ms > clock_ms
        self.account["fire_applied" if is_applied else "fire_late"] += 1
        if entry is None or not is_applied:
            return
        if entry.wake_ms is not None or entry.period_ms is not None:
            entry.wake_ms = clock_ms
        else:
            entry.due_ms = clock_ms

    def _release_series(self, name: str, entry: Entry, clock_ms: int) -> None:
        passed, entry.wake_ms = [entry.due_ms], None
        while (following := entry.after(passed[-1], entry.number + len(passed) + 1)) <= clock_ms:
            passed.append(following)
        policy, number = entry.row.get("on_missed") or "latest", entry.number + len(passed)
        kept = {"all": passed[:3], "none": passed if len(passed) == 1 else []}.get(policy, passed[-1:])
        dropped = passed[3:] if policy == "all" else passed if not kept else []
        for at_ms in kept:
            before = len(passed) - 1 if policy == "latest" else 0
            one = Entry(entry.row, at_ms, number=entry.number + passed.index(at_ms) + 1)
            self.account["occurrences_fired"] += 1
            self.account["occurrences_missed"] += before
            back = self._deliver(one, at_ms, clock_ms, before)
            self.tried_again += [back] if back is not None else []
        if dropped:
            text = f"occurrences that were over: {len(dropped)}; rule: on_missed"
            told = {"error_code": "missed", "error_message": text, "rejected_at_ms": clock_ms}
            about = {name: entry.row[name] for name in ("schedule_id", "seq", "destination")}
            self.rejects.append(about | told | {"deliver_at_ms": dropped[-1]})
            self.account["occurrences_missed"] += len(dropped)
        entry.number, entry.last_ms, entry.due_ms = number, passed[-1], following
        if following == NEVER:
            del self.pending[name]
            self.ended[name] = (_version(entry.row), clock_ms)
            self.account["ended"] += 1

    def _deliver(self, entry: Entry, due_ms: int, clock_ms: int, before: int | None = None) -> Entry | None:
        """Delivers a row, or returns what comes back."""
        about = {name: entry.row[name] for name in ("schedule_id", "seq", "destination")}
        about |= {"deliver_at_ms": due_ms, "fire_id": f"{about['schedule_id']}/{about['seq']}/{due_ms}"}
        if self.make.random() >= self.fails:
            figures = {"fired_at_ms": clock_ms, "attempt": entry.attempt, "missed_before": before}
            self.fired.append(about | figures | {"occurrence": entry.number or None})
            return None
        self.account["retried"] += 1
        if entry.attempt == MOST_ATTEMPTS:
            self.account["dead"] += 1
            self.fired.append(about | {"dead_at_ms": clock_ms, "origin": "out", "destination": "dead"})
            return None
        wait = {"wake_ms": clock_ms + WAIT_MS, "attempt": entry.attempt + 1, "number": entry.number}
        return Entry({**entry.row, "repeat": None}, due_ms, **wait)


def _begun(row: Row, old: Entry | None) -> Entry:
    """A command as an entry; a series goes on where the one before it stands."""
    if row.get("repeat") is None:
        return Entry(row, row["deliver_at_ms"])
    event_ms, starts_ms = row["event_time_ms"], row.get("starts_at_ms")
    begin_ms = event_ms if starts_ms is None else starts_ms - 1
    new = Entry(row, 0, anchor_ms=event_ms if starts_ms is None else starts_ms)
    if old is not None and old.period_ms is not None:
        is_kept = old.row["repeat"] == row["repeat"] and starts_ms is None
        if is_kept:
            new.anchor_ms = old.anchor_ms
        takes_over = is_kept and old.due_ms <= event_ms
        begin_ms = old.due_ms - 1 if takes_over else max(begin_ms, old.last_ms)
    new.last_ms, new.due_ms = begin_ms, new.after(begin_ms, 1)
    return new


def _version(row: Row) -> tuple[int, int]:
    return row["seq"], int(row["op"] == "CANCEL")


KINDS = (
    {"op": "CANCEL"}, {"op": "FIRE_NOW"}, {"due": 5}, {"due": 90}, {"repeat": "every 10 ms"}, {"repeat": "every 10 ms"},
    {"repeat": "every 35 ms"}, {"repeat": "every 35 ms", "count": 3}, {"repeat": "every 10 ms", "until": 100},
    {"repeat": "every 10 ms", "on_missed": "all"}, {"repeat": "every 35 ms", "on_missed": "none"},
    {"repeat": "every 25 ms", "starts": 30}, {"repeat": "every 25 ms", "starts": -60},
)  # fmt: skip

batches = st.lists(
    st.tuples(
        st.sampled_from((1, 7, 40, LONGEST_STEP_MS)),
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 4), st.sampled_from(KINDS), st.sampled_from((0, 4, 15))), max_size=3),
    ),
    min_size=1,
    max_size=10,
)  # fmt: skip
Plan = list[tuple[int, list[tuple[str, int, Row, int]]]]


def command_of(name: str, seq: int, kind: Row, event_ms: int) -> Row:
    row = {"schedule_id": name, "seq": seq, "op": kind.get("op", "SCHEDULE"), "event_time_ms": event_ms}
    if row["op"] != "SCHEDULE":
        return row
    row |= {
        "destination": "out",
        **{each: kind[each] for each in ("repeat", "count", "on_missed") if each in kind},
    }
    instants = {"deliver_at_ms": "due", "starts_at_ms": "starts", "until_ms": "until"}
    return row | {column: event_ms + kind[each] for column, each in instants.items() if each in kind}


@dataclass
class Run:
    """A run of the model."""

    commands: list[Row]
    model: Model
    until_ms: int


def run_of(plan: Plan, memory_ms: int | None, make: Random, fails: float) -> Run:
    """Runs a plan, and then until nothing waits for a further attempt; of one version there is one command."""
    model, clock_ms = Model(memory_ms, make, fails=fails), 1_000
    said: dict[tuple[str, int, str], Row] = {}
    commands = []
    for number, (step_ms, drafts) in enumerate(plan):
        clock_ms += step_ms
        batch = []
        for name, seq, kind, lag_ms in drafts:
            row = command_of(name, seq, kind, clock_ms - lag_ms)
            row = said.setdefault((name, seq, row["op"]), row)
            batch.append(row | {"read_ms": clock_ms, "batch": number})
        model.batch(batch, clock_ms)
        commands += batch
    while model.tried_again or any(entry.attempt > 1 for entry in model.pending.values()):
        clock_ms += WAIT_MS
        model.batch([], clock_ms)
    return Run(commands, model, clock_ms)


def told(commands: list[Row], known: str, make: Random) -> list[Row]:
    """The commands with what is known of when they were read."""
    slack = {"exact": 0, "bounds": 60}.get(known)
    rows = []
    for row in commands:
        kept = {name: value for name, value in row.items() if name not in ("read_ms", "batch")}
        if slack is not None:
            kept |= {
                "read_from_ms": row["read_ms"] - make.randint(0, slack),
                "read_by_ms": row["read_ms"] + make.randint(0, slack),
            }
        rows.append(kept | ({"batch": row["batch"]} if known == "exact" else {}))
    return rows


@given(
    plan=batches,
    memory_ms=st.sampled_from((None, 0, 50, 200)),
    known=st.sampled_from(("exact", "bounds", "order", "nothing")),
    fails=st.sampled_from((0.0, 0.0, 0.4)),
    make=st.randoms(use_true_random=False),
)
def test_a_right_run_is_never_accused_whatever_is_known_of_it(
    plan: Plan, memory_ms: int | None, known: str, fails: float, make: Random
) -> None:
    run = run_of(plan, memory_ms, make, fails)
    within_ms = LONGEST_STEP_MS + (MOST_ATTEMPTS * (WAIT_MS + LONGEST_STEP_MS) if fails else 0)
    rules = Rules(
        until_ms=run.until_ms, memory_ms=memory_ms, in_order=known == "order", clock_rises=make.random() < 0.5,
        fires_within_ms=within_ms,
    )  # fmt: skip
    waiting = [
        entry.row | {"deliver_at_ms": entry.due_ms, "attempt": None} for entry in run.model.pending.values()
    ]
    report = check(
        told(run.commands, known, make), run.model.fired, run.model.rejects, rules=rules,
        account=run.model.account | {"pending": len(waiting)}, pending=waiting if make.random() < 0.5 else None,
    )  # fmt: skip
    report.require()


@given(
    kind=st.sampled_from([kind for kind in KINDS if "repeat" in kind]),
    steps=st.lists(st.sampled_from((1, 7, 40, LONGEST_STEP_MS)), min_size=1, max_size=12),
    make=st.randoms(use_true_random=False),
)
def test_each_planted_fault_is_found_in_a_series_of_which_all_is_known(
    kind: Row, steps: list[int], make: Random
) -> None:
    first: list[tuple[str, int, Row, int]] = [("a", 1, kind, 0)]
    run = run_of([(5, first), *((step_ms, []) for step_ms in steps)], None, make, 0.0)
    rules, rows = Rules(until_ms=run.until_ms, memory_ms=None), run.model.fired
    commands = told(run.commands, "exact", make)
    assert check(commands, rows, run.model.rejects, rules=rules).undecided == 0
    if not rows:
        return
    at = make.randrange(len(rows))
    rest, row = rows[:at] + rows[at + 1 :], rows[at]
    faults = {
        "lost": rest,
        "twice": [*rows, row],
        "early": [*rest, row | {"fired_at_ms": row["deliver_at_ms"] - 1}],
        "wrong_occurrence": [*rest, row | {"deliver_at_ms": row["deliver_at_ms"] - 1}],
    }
    for name, planted in faults.items():
        assert name in check(commands, planted, run.model.rejects, rules=rules).counts
    for change in ({"occurrence": row["occurrence"] + 1}, {"missed_before": row["missed_before"] + 1}):
        report = check(commands, [*rest, row | change], run.model.rejects, rules=rules)
        assert report.counts == {"wrong_occurrence": 1}
