"""Whether the output of a mode is right: for the wheel by the ledger checker, for the purgatory by the times of its rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.soak.runs import Ended
from wheel_udf.testing import ledger


def verify(ended: Ended, memory_s: float) -> tuple[bool, str]:
    """Whether a mode was right, and the lines that say so."""
    return _outcomes(ended) if ended.mode == "purgatory" else _ledger(ended, memory_s)


def gathered(folder: Path, name: str) -> Path:
    """The folder with all input files of a source: Spark archives each below the path that it had."""
    place = folder / "input" / name
    place.mkdir(parents=True)
    for file in [
        *(folder / "archive").rglob(f"in/{name}/*.parquet"),
        *(folder / "in" / name).glob("*.parquet"),
    ]:
        if not file.name.startswith("."):
            file.rename(place / file.name)
    return place


def _ledger(ended: Ended, memory_s: float) -> tuple[bool, str]:
    rules = ledger.Rules(
        until_ms=ended.until_ms,
        memory_ms=int(memory_s * 1_000),
        read_within_ms=ended.read_within_ms,
        in_order=True,
    )
    report = ledger.check(
        ledger.read_files(gathered(ended.folder, "commands")),
        ledger.read_delta(ended.folder / "tables"),
        ledger.read_delta(ended.folder / "rejects"),
        rules=rules,
        pending=[],
        account=ended.report.counts | {"pending": ended.report.pending},
    )
    return report.ok, str(report)


def _outcomes(ended: Ended) -> tuple[bool, str]:
    folder = ended.folder
    asked = ledger.read_files(gathered(folder, "operations")).to_pylist()
    said = ledger.read_files(gathered(folder, "events")).to_pylist()
    found = ledger.read_delta(folder / "tables").to_pylist()
    rejects = ledger.read_delta(folder / "rejects").num_rows
    faults = outcome_faults(asked, said, found, ended.read_within_ms)
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
    read_within_ms: int,
) -> list[str]:
    """What is wrong with the outcomes of operations that wait for all of their keys, each of which has one event at most.

    An event after the deadline does not count. One before it counts if it is read before the clock has passed the deadline; where that cannot be
    known, both outcomes are right.

    Args:
        asked: The operations; `deadline` is ``"<n> ms"``.
        said: The events and cancels; no operation has both.
        found: The outcomes.
        read_within_ms: Longest time from an event time to the clock of the batch that has read it.

    Returns:
        One line for each fault.
    """
    spoken: dict[str, list[int]] = defaultdict(list)
    for row in said:
        spoken[row["key"]].append(_ms(row["event_time"]))
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
        faults += [f"{name}: {fault}" for fault in _faults_of(row, spoken, ends[0], read_within_ms)]
    return faults + [f"{name}: an outcome of no operation" for name in outcomes]


def _faults_of(
    asked: Mapping[str, Any], spoken: Mapping[str, list[int]], end: Mapping[str, Any], read_within_ms: int
) -> list[str]:
    deadline_ms = _ms(asked["event_time"]) + int(asked["deadline"].removesuffix(" ms"))
    keys = [min(spoken.get(key, [deadline_ms + 1])) for key in asked["keys"]]
    ended_at = {"completed": max(keys), "cancelled": min(spoken.get(asked["op_id"], [deadline_ms + 1]))}
    right = {name for name, at_ms in ended_at.items() if at_ms <= deadline_ms}
    if all(ended_at[name] + read_within_ms > deadline_ms for name in right):
        right.add("expired")
    faults = [] if end["outcome"] in right else [f"{end['outcome']} instead of {' or '.join(sorted(right))}"]
    if end["outcome"] == "expired" and _ms(end["decided_at"]) <= deadline_ms:
        faults.append("expired before its deadline had passed")
    return faults


def _ms(instant: Any) -> int:
    return int(instant.timestamp() * 1_000 + 0.5)
