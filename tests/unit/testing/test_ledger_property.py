"""The ledger checker against a small model of the contract: right runs are never accused, whatever is known; planted
faults are found.

The model is a dict and a heap, one command at a time::

    batch: clock := its instant;  commands in version order, each ends what it beats;  what is due is popped from the heap
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import given, strategies as st

from wheel_udf.testing.ledger import Rules, check

Row = dict[str, Any]

IDS = ("a", "b", "c")


@dataclass
class Model:
    """One wheel: what is pending by id, what is remembered of ended ids, and its account."""

    memory_ms: int | None
    pending: dict[str, Row] = field(default_factory=dict)
    ended: dict[str, tuple[tuple[int, int], int, bool]] = field(default_factory=dict)
    """Of an id: its version, when it ended, and whether it is a CANCEL that waits for its schedule."""
    fired: list[Row] = field(default_factory=list)
    beaten: list[Row] = field(default_factory=list)
    account: dict[str, int] = field(default_factory=dict)

    def batch(self, commands: list[Row], clock_ms: int) -> None:
        here: set[str] = set()
        for command in sorted(commands, key=lambda row: (row["schedule_id"], _version(row))):
            self._apply(command, clock_ms, here)
            here.add(command["schedule_id"])
        heap = [(row["deliver_at_ms"], name) for name, row in self.pending.items()]
        heapq.heapify(heap)
        while heap and heap[0][0] <= clock_ms:
            name = heapq.heappop(heap)[1]
            row = self.pending.pop(name)
            self.ended[name] = (_version(row), clock_ms, False)
            self._count("fired")
            self.fired.append(_fired(row, clock_ms))

    def _apply(self, command: Row, clock_ms: int, here: set[str]) -> None:
        name, version, is_cancel = command["schedule_id"], _version(command), command["op"] == "CANCEL"
        entry, ended = self.pending.get(name), self.ended.get(name)
        if (
            ended
            and name not in here
            and self.memory_ms is not None
            and clock_ms - ended[1] >= self.memory_ms
        ):
            ended = None
        known = _version(entry) if entry else ended[0] if ended else None
        waits = entry is None and ended is not None and ended[2]
        if known and version <= known:
            if version == known:
                self._count("cancel_duplicate" if is_cancel else "duplicate")
            elif is_cancel:
                self._count("cancel_superseded")
            elif waits and ended:
                self.ended[name] = (ended[0], ended[1], False)
                self._count("cancelled", "applied", waiting=-1)
                self.beaten.append(command | {"beaten_ms": clock_ms})
            else:
                self._count("superseded")
                self.beaten.append(command | {"beaten_ms": clock_ms})
            return
        if entry:
            self._count("cancelled" if is_cancel else "superseded")
            self.beaten.append(entry | {"beaten_ms": clock_ms})
            del self.pending[name]
        if not is_cancel:
            self.pending[name] = command
            self.ended.pop(name, None)
        else:
            self._count("applied" if entry else "late" if ended else "waiting")
            self.ended[name] = (version, clock_ms, entry is None and (ended is None or waits))

    def _count(self, *names: str, waiting: int = 0) -> None:
        for name in names:
            self.account[name] = self.account.get(name, 0) + 1
        self.account["waiting"] = self.account.get("waiting", 0) + waiting


def _version(row: Row) -> tuple[int, int]:
    return row["seq"], int(row["op"] == "CANCEL")


def _fired(row: Row, clock_ms: int) -> Row:
    figures = {"fired_at_ms": clock_ms, "lateness_ms": clock_ms - row["deliver_at_ms"]}
    fire_id = f"{row['schedule_id']}/{row['seq']}/{row['deliver_at_ms']}"
    return (
        {name: row[name] for name in ("schedule_id", "seq", "deliver_at_ms", "destination")}
        | figures
        | {"fire_id": fire_id}
    )


@dataclass
class Run:
    """A run of the model, with everything that a checker can be told."""

    commands: list[Row]
    model: Model
    until_ms: int

    @property
    def pending(self) -> list[Row]:
        return list(self.model.pending.values())

    @property
    def account(self) -> dict[str, int]:
        return self.model.account | {"pending": len(self.model.pending)}


batches = st.lists(
    st.tuples(
        st.sampled_from((1, 7, 40, 160)),
        st.lists(
            st.tuples(st.sampled_from(IDS), st.integers(1, 4), st.booleans(), st.sampled_from((-30, 0, 5, 50, 300))), max_size=3
        ),
    ),
    min_size=1,
    max_size=10,
)  # fmt: skip
memories = st.sampled_from((None, 0, 1, 50, 200))


def run_of(plan: list[tuple[int, list[tuple[str, int, bool, int]]]], memory_ms: int | None) -> Run:
    """Runs a plan: batches of (id, seq, whether it is a SCHEDULE, due time after the clock); the same version is the
    same command.
    """
    model, clock_ms = Model(memory_ms), 1_000
    said: dict[tuple[str, int, bool], Row] = {}
    commands = []
    for number, (step_ms, drafts) in enumerate(plan):
        clock_ms += step_ms
        batch = []
        for name, seq, is_schedule, delay_ms in drafts:
            row = {"schedule_id": name, "seq": seq, "op": "SCHEDULE" if is_schedule else "CANCEL"}
            row |= {"deliver_at_ms": clock_ms + delay_ms, "destination": "out"} if is_schedule else {}
            batch.append(
                said.setdefault((name, seq, is_schedule), row) | {"read_ms": clock_ms, "batch": number}
            )
        model.batch(batch, clock_ms)
        commands += batch
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
    memory_ms=memories,
    known=st.sampled_from(("exact", "bounds", "order", "nothing")),
    make=st.randoms(use_true_random=False),
)
def test_a_right_run_is_never_accused_whatever_is_known_of_it(
    plan: list[tuple[int, list[tuple[str, int, bool, int]]]], memory_ms: int | None, known: str, make: Random
) -> None:
    run = run_of(plan, memory_ms)
    rules = Rules(
        until_ms=run.until_ms, memory_ms=memory_ms, in_order=known == "order", clock_rises=make.random() < 0.5, fires_within_ms=160
    )  # fmt: skip
    report = check(
        told(run.commands, known, make), run.model.fired, rules=rules, account=run.account,
        pending=run.pending if make.random() < 0.5 else None,
    )  # fmt: skip
    report.require()


@given(plan=batches, make=st.randoms(use_true_random=False))
def test_each_planted_fault_is_found_in_a_run_of_which_all_is_known(
    plan: list[tuple[int, list[tuple[str, int, bool, int]]]], make: Random
) -> None:
    run = run_of(plan, None)
    rules = Rules(until_ms=run.until_ms, memory_ms=None, clock_rises=True)
    faults = planted(run, make)
    for kind, rows in faults.items():
        report = check(told(run.commands, "exact", make), rows, rules=rules, account=run.account)
        assert kind in report.counts, report


def planted(run: Run, make: Random) -> dict[str, list[Row]]:
    """The rows of a run with one fault each, by the kind of finding."""
    fired, found = run.model.fired, {}
    if fired:
        at = make.randrange(len(fired))
        rest, row = fired[:at] + fired[at + 1 :], fired[at]
        found = {
            "account": rest,
            "twice": [*fired, row],
            "early": [*rest, row | {"fired_at_ms": row["deliver_at_ms"] - 1, "lateness_ms": -1}],
            "altered": [*rest, row | {"deliver_at_ms": row["deliver_at_ms"] + 1}],
            "no_command": [*rest, row | {"schedule_id": "z"}],
            "wrong_version": [*rest, row | {"seq": 9}],
        }
    if run.model.beaten:
        row = make.choice(run.model.beaten)
        # Its release is due, and comes a batch after the one that has beaten it.
        late = _fired(row, max(row["deliver_at_ms"], row["beaten_ms"]) + 1)
        versions = {(each["schedule_id"], each["seq"]) for each in fired}
        higher = [
            each
            for each in run.commands
            if each["schedule_id"] == row["schedule_id"] and _version(each) > _version(row)
        ]
        if (row["schedule_id"], row["seq"]) not in versions:
            ops = {each["op"] for each in higher}
            for op, kind in (("CANCEL", "after_cancel"), ("SCHEDULE", "superseded")):
                if ops == {op}:
                    found[kind] = [*fired, late]
    return found
