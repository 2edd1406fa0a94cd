"""What the bench of the peers makes of what it has seen: arrivals from lines, figures from arrivals, the table from
figures. Pure: nothing runs here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tests.bench import report

Figures = Mapping[str, float]
"""Of one case of one peer: by the names of :data:`ROWS`."""


@dataclass(frozen=True)
class Chunk:
    """A piece of what ``drain`` has written, as it was read.

    Attributes:
        read_ms: When, UTC epoch ms.
        data: Lines, or parts of lines.
    """

    read_ms: float
    data: bytes


@dataclass(frozen=True)
class Arrival:
    """An entry that was released.

    Attributes:
        identity: Its id.
        at_ms: When its line was complete.
    """

    identity: str
    at_ms: float


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        case: Its case.
        figure: Name of the figure.
        unit: Its unit; empty: a number of entries.
    """

    case: str
    figure: str
    unit: str = ""


ROWS = (
    Row("steady", "lateness p50", "ms"),
    Row("steady", "lateness p99", "ms"),
    Row("steady", "early"),
    Row("steady", "earliest", "ms"),
    Row("steady", "missing"),
    Row("steady", "duplicates"),
    Row("steady", "CPU per 100,000", "s"),
    Row("steady", "CPU of both ends", "s"),
    Row("burst", "until the last is out", "s"),
    Row("burst", "throughput", "/s"),
    Row("burst", "early"),
    Row("burst", "missing"),
    Row("kill", "lost"),
    Row("kill", "duplicates"),
    Row("kill", "early"),
    Row("kill", "until the next delivery", "s"),
    Row("kill", "latest", "s"),
    Row("pending", "entries"),
    Row("pending", "taken in within", "s"),
    Row("pending", "disk per entry", "bytes"),
    Row("pending", "memory per entry", "bytes"),
)


def arrivals_of(drains: Iterable[Sequence[Chunk]]) -> list[Arrival]:
    """The arrivals of one ``drain`` after the other, in order of time.

    A line belongs to the chunk that ends it. A last line without an end is left out: its writer was killed.
    """
    found = []
    for chunks in drains:
        rest = b""
        for chunk in chunks:
            *lines, rest = (rest + chunk.data).split(b"\n")
            found += [Arrival(line.decode(), chunk.read_ms) for line in lines if line]
    return sorted(found, key=lambda arrival: arrival.at_ms)


def steady_figures(due_ms: Mapping[str, int], arrivals: Sequence[Arrival]) -> dict[str, float]:
    """Lateness, and what is early, missing, or there twice. An entry that came twice is late by its first time."""
    late = _lateness_ms(due_ms, arrivals)
    if not len(late):
        raise ValueError("nothing has arrived")
    return {
        "lateness p50": float(np.percentile(late, 50)),
        "lateness p99": float(np.percentile(late, 99)),
        "early": float(np.count_nonzero(late < 0)),
        "earliest": float(late.min()),
        "missing": float(len(due_ms) - len(late)),
        "duplicates": float(_duplicates(due_ms, arrivals)),
    }


def burst_figures(due_ms: Mapping[str, int], arrivals: Sequence[Arrival]) -> dict[str, float]:
    """How long a burst takes from its due time on."""
    late = _lateness_ms(due_ms, arrivals)
    if not len(late):
        raise ValueError("nothing has arrived")
    last_s = float(late.max()) / 1_000
    return {
        "until the last is out": last_s,
        "throughput": len(late) / last_s if last_s > 0 else 0.0,
        "early": float(np.count_nonzero(late < 0)),
        "missing": float(len(due_ms) - len(late)),
    }


def kill_figures(
    due_ms: Mapping[str, int], arrivals: Sequence[Arrival], *, killed_ms: float, again_ms: float
) -> dict[str, float]:
    """What a kill costs.

    Args:
        due_ms: Of all entries that were confirmed.
        arrivals: What has come.
        killed_ms: When it was killed.
        again_ms: When it was started again. What comes before was on its way to the consumer.
    """
    late = _lateness_ms(due_ms, arrivals)
    after = [each.at_ms for each in arrivals if each.at_ms >= again_ms]
    figures = {
        "lost": float(len(due_ms) - len(late)),
        "duplicates": float(_duplicates(due_ms, arrivals)),
        "early": float(np.count_nonzero(late < 0)),
    }
    if after:
        figures["until the next delivery"] = (after[0] - killed_ms) / 1_000
    if len(late):
        figures["latest"] = float(late.max()) / 1_000
    return figures


def table(found: Mapping[str, Mapping[str, Figures]]) -> str:
    """The figures, a row for each and a column for each peer; "-" where there is none.

    Args:
        found: By heading and case.
    """
    cases = {case for of_cases in found.values() for case in of_cases}
    rows = [("case", "what", "", *found)]
    for row in ROWS:
        if row.case in cases:
            values = [of_cases.get(row.case, {}).get(row.figure) for of_cases in found.values()]
            cells = ["-" if value is None else report.number(value) for value in values]
            rows.append((row.case, row.figure, row.unit, *cells))
    return report.aligned(rows, frozenset(range(3, 3 + len(found))))


def _lateness_ms(
    due_ms: Mapping[str, int], arrivals: Sequence[Arrival]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Of each entry that came, when it came first."""
    first: dict[str, float] = {}
    for each in arrivals:
        if each.identity in due_ms:
            first.setdefault(each.identity, each.at_ms)
    return np.array([at_ms - due_ms[identity] for identity, at_ms in first.items()], np.float64)


def _duplicates(due_ms: Mapping[str, int], arrivals: Sequence[Arrival]) -> int:
    ours = [each.identity for each in arrivals if each.identity in due_ms]
    return len(ours) - len(set(ours))
