"""The input of the crash matrix: seeded files, one for each micro-batch, and what has to come of them.

File number n is made at n * 600 s, which is the clock of the next batch. Every batch has rows for both destinations
and one for the rejects, so that each point of a batch can be reached in each of them. Versions, cancels and events
concern only what is due after their own file, so the ledger checker can decide all of them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Final

from tests.spark.streams import at, cancel, due
from tests.spark.watches import event, operation

STEP_S: Final = 600
ACT_ROWS: Final = 3
_TAIL_S: Final = 5_000
_NEW_ROWS: Final = 12


def end_s(count: int) -> int:
    """The instant up to which a run of so many files goes."""
    return count * STEP_S + _TAIL_S


# ---- commands ------------------------------------------------------------------------------------


def files(seed: int, count: int, where: tuple[str, str] = ("left", "right")) -> list[list[dict[str, Any]]]:
    """Files of commands: new ids, rows past due, higher, lower and equal versions, cancels, moves, a bad row each; in
    the first one rows for acts.
    """
    rng, pending = random.Random(seed), {}  # type: random.Random, dict[str, dict[str, Any]]
    made = [_file(rng, number, where, pending) for number in range(count)]
    # A reroute sends them to the first destination.
    made[0] += [
        due(f"act{act}-{row}", end_s(count) - 300 + row, 0, destination=where[1])
        for act in range(9)
        for row in range(ACT_ROWS)
    ]
    return made


def _file(
    rng: random.Random, number: int, where: tuple[str, str], pending: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    now_s = number * STEP_S
    for name in [name for name, row in pending.items() if row["deliver_at"] <= at(now_s + 1)]:
        del pending[name]
    rows = [_changed(rng, pending, name, now_s) for name in rng.sample(sorted(pending), len(pending) // 3)]
    for row in range(_NEW_ROWS):
        due_s = now_s + rng.choice([rng.randint(1, 700), rng.randint(700, 3_500)])
        new = due(f"new{number:02}-{row:02}", due_s, now_s, seq=5, destination=rng.choice(where), value=b"x")
        pending[new["schedule_id"]] = new
        rows.append(new)
    late = [due(f"late{number:02}-{place}", now_s - 5, now_s, destination=place) for place in where]
    return [*rows, *late, due(None, 1, now_s)]


def _changed(rng: random.Random, pending: dict[str, dict[str, Any]], name: str, now_s: int) -> dict[str, Any]:
    """One more command for an entry that is still pending after this file."""
    row = pending[name]
    kind = rng.choice(["later", "cancel", "older", "again"])
    if kind == "cancel":
        del pending[name]
        return cancel(name, now_s, seq=row["seq"] + 1)
    if kind == "later":
        due_at = at(now_s + rng.randint(2, 3_500))
        pending[name] = row | {"seq": row["seq"] + 1, "deliver_at": due_at, "event_time": at(now_s)}
        return pending[name]
    return row | {"seq": 4 if kind == "older" else row["seq"], "event_time": at(now_s)}


# ---- acts ----------------------------------------------------------------------------------------


def act_of(act: int, count: int) -> tuple[str, str | None]:
    """The name of an act and what it changes to."""
    kinds = [
        ("cancel", None),
        ("move", f"timestamp'{at(end_s(count) - 100):%Y-%m-%d %H:%M:%S}'"),
        ("reroute", "left"),
    ]
    return kinds[act % 3]


def commands_of_act(act: int, count: int, before: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The commands that an act comes to, for the ledger: the rows as it changed them."""
    name, to = act_of(act, count)
    said_s = count * STEP_S
    mine = [row for row in before if str(row["schedule_id"]).startswith(f"act{act}-")]
    if name == "cancel":
        return [cancel(row["schedule_id"], said_s) for row in mine]
    change = {"destination": to} if name == "reroute" else {"deliver_at": at(end_s(count) - 100)}
    return [row | change | {"amend": 1, "event_time": at(said_s)} for row in mine]


# ---- operations ----------------------------------------------------------------------------------


@dataclass
class Watched:
    """Pairs of files of operations and events, and what becomes of each operation: (id, outcome, destination)."""

    pairs: list[tuple[list[dict[str, Any]], list[dict[str, Any]]]] = field(default_factory=list)
    expected: set[tuple[str, str, str]] = field(default_factory=set)


def watched(seed: int, count: int, where: tuple[str, str] = ("left", "right")) -> Watched:
    """Operations that wait 700 to 2,500 s; of those of a file, one for each destination has its event in the next
    file.
    """
    rng, made = random.Random(seed), Watched()
    events: dict[int, list[dict[str, Any]]] = {number: [] for number in range(count + 9)}
    for number in range(count):
        now_s, rows = number * STEP_S, [operation(None, number * STEP_S, "k")]
        for row in range(_NEW_ROWS):
            name, place, group = f"op{number:02}-{row:02}", where[row % 2], f"g{row % 3}"
            wait_s = rng.randint(700, 2_500)
            last = min(number + (wait_s - 1) // STEP_S, count - 1)
            fate = "completed" if row < 2 else rng.choice(["completed", "cancelled", "expired"])
            fate = fate if last > number else "expired"
            if fate != "expired":
                seen = number + 1 if row < 2 else rng.randint(number + 1, last)
                said = {"group": group} | ({"op": "CANCEL_OPERATION"} if fate == "cancelled" else {})
                key = name if fate == "cancelled" else f"k{name}"
                events[seen].append(event(key, seen * STEP_S, **said))
            settings = {"group": group, "destination": place, "deadline": f"{wait_s} s"}
            rows.append(operation(name, now_s, f"k{name}", **settings))
            made.expected.add((name, fate, place))
        made.pairs.append((rows, [*events[number], event("nobody", now_s)]))
    return made
