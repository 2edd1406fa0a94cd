"""Whether the output of a mode is right: for the wheel by the ledger checker, for the purgatory by the times of its
rows.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.soak.reading import input_of, queries_of, read_by
from tests.soak.runs import Ended
from wheel_udf.testing import ledger


def verify(ended: Ended, samples: Path, memory_s: float) -> tuple[bool, str]:
    """Whether a mode was right, and the lines that say so."""
    queries = queries_of(samples, ended.mode)

    def by(written_ms: int) -> int | None:
        return read_by(written_ms, queries)

    return _outcomes(ended, by) if ended.mode == "purgatory" else _ledger(ended, by, memory_s)


def _ledger(ended: Ended, by: Callable[[int], int | None], memory_s: float) -> tuple[bool, str]:
    rules = ledger.Rules(until_ms=ended.until_ms, memory_ms=int(memory_s * 1_000), in_order=True)
    report = ledger.check(
        input_of(ended.folder, "commands", by),
        ledger.read_delta(ended.folder / "tables"),
        ledger.read_delta(ended.folder / "rejects"),
        rules=rules,
        pending=[],
        account=ended.report.counts | {"pending": ended.report.pending},
    )
    return report.ok, str(report)


def _outcomes(ended: Ended, by: Callable[[int], int | None]) -> tuple[bool, str]:
    folder = ended.folder
    asked, said = (input_of(folder, name, by).to_pylist() for name in ("operations", "events"))
    found = ledger.read_delta(folder / "tables").to_pylist()
    rejects = ledger.read_delta(folder / "rejects").num_rows
    faults = outcome_faults(asked, said, found)
    bad = sum(row["op_id"] is None for row in asked)
    if rejects != bad:
        faults.append(f"rejects: {rejects:,} of {bad:,} bad operations")
    faults += _account_faults(len(asked), len(said), ended.report.counts, ended.report.pending)
    ends = Counter(row["outcome"] for row in found)
    lines = [
        "every operation has its outcome, once"
        if not faults
        else f"outcomes are NOT right: {len(faults):,} faults",
        f"  operations {len(asked):,}, events {len(said):,}, rejects {rejects:,}",
        "  outcomes   " + ", ".join(f"{name} {count:,}" for name, count in sorted(ends.items())),
        *(f"  {fault}" for fault in faults[:10]),
    ]
    return not faults, "\n".join(lines)


def _account_faults(operations: int, events: int, counts: Mapping[str, int], pending: int) -> list[str]:
    names = ("completed", "expired", "cancelled", "duplicate", "rejected")
    told = pending + sum(counts.get(name, 0) for name in names)
    faults = [f"account: {told:,} of {operations:,} operations"] if told != operations else []
    if counts.get("events", 0) != events:
        faults.append(f"account: {counts.get('events', 0):,} of {events:,} events")
    return faults


def outcome_faults(
    asked: Iterable[Mapping[str, Any]],
    said: Iterable[Mapping[str, Any]],
    found: Iterable[Mapping[str, Any]],
) -> list[str]:
    """What is wrong with the outcomes of operations that wait for all of their keys, each of which has one event at most.

    An event after the deadline does not count. One before it counts if it is read before the clock has passed the
    deadline; where that cannot be known, both outcomes are right.

    Args:
        asked: The operations; `deadline` is ``"<n> ms"``.
        said: The events and cancels, with `read_by_ms` (None: not known); no operation has both.
        found: The outcomes.

    Returns:
        One line for each fault.
    """
    spoken = {row["key"]: (_ms(row["event_time"]), row["read_by_ms"] or math.inf) for row in said}
    outcomes: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in found:
        outcomes[row["op_id"]].append(row)
    faults = []
    for row in asked:
        name = row["op_id"]
        if name is None:
            continue
        ends = outcomes.pop(name, [])
        if len(ends) != 1:
            faults.append(f"{name}: {len(ends)} outcomes")
            continue
        faults += [f"{name}: {fault}" for fault in _faults_of(row, spoken, ends[0])]
    return faults + [f"{name}: an outcome of no operation" for name in outcomes]


def _faults_of(
    asked: Mapping[str, Any], spoken: Mapping[str, tuple[int, float]], end: Mapping[str, Any]
) -> list[str]:
    deadline_ms = _ms(asked["event_time"]) + int(asked["deadline"].removesuffix(" ms"))
    never = (deadline_ms + 1, math.inf)
    ways = {"completed": asked["keys"], "cancelled": [asked["op_id"]]}
    told = {name: [spoken.get(key, never) for key in keys] for name, keys in ways.items()}
    right = {name for name, rows in told.items() if all(at_ms <= deadline_ms for at_ms, _ in rows)}
    if all(read_ms > deadline_ms for name in right for _, read_ms in [max(told[name], key=_read)]):
        right.add("expired")
    faults = [] if end["outcome"] in right else [f"{end['outcome']} instead of {' or '.join(sorted(right))}"]
    if end["outcome"] == "expired" and _ms(end["decided_at"]) <= deadline_ms:
        faults.append("expired before its deadline had passed")
    return faults


def _read(row: tuple[int, float]) -> float:
    return row[1]


def _ms(instant: Any) -> int:
    return int(instant.timestamp() * 1_000 + 0.5)
