"""What the bench says: comparisons with their ratios, as a table for people and as JSON for machines. Pure: nothing is
measured here.

A :class:`Line` sets two figures of one run beside each other; what counts is their ratio, the figures say where it
comes from. Absolute figures of a shared or unknown machine mean little by themselves, so no line has only one unless
there is nothing to compare it with.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

_HEADINGS = ("case", "what", "figure", "beside", "ratio", "target", "")
_ON_THE_RIGHT = frozenset({2, 4})


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a figure should be.

    Attributes:
        of: Whether it bounds the ratio or the figure itself.
        at_least: Lower bound; ``None`` for none.
        at_most: Upper bound; ``None`` for none.
    """

    of: Literal["ratio", "figure"] = "ratio"
    at_least: float | None = None
    at_most: float | None = None

    def is_met(self, value: float) -> bool:
        """Whether a value keeps the bounds."""
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )

    def text(self) -> str:
        """The bounds in words: ``>= 20x``."""
        unit = "x" if self.of == "ratio" else ""
        bounds = ((">=", self.at_least), ("<=", self.at_most))
        return ", ".join(f"{sign} {number(bound)}{unit}" for sign, bound in bounds if bound is not None)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One comparison.

    Attributes:
        case: Letter of the case.
        what: What was measured.
        figure: The wheel's figure.
        unit: Unit of both figures.
        beside: The other figure; ``None`` if there is none.
        beside_what: Whose it is.
        target: What it should come to; ``None`` where there is none, or where the sizes are too small to tell.
    """

    case: str
    what: str
    figure: float
    unit: str
    beside: float | None = None
    beside_what: str = ""
    target: Target | None = None

    @property
    def ratio(self) -> float | None:
        """The wheel's figure over the other; ``None`` without another, or where that is 0."""
        return self.figure / self.beside if self.beside else None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; ``None`` without one."""
        if self.target is None:
            return None
        value = self.figure if self.target.of == "figure" else self.ratio
        return value is not None and self.target.is_met(value)

    def record(self) -> dict[str, Any]:
        """The line for JSON, ratio and verdict included."""
        return asdict(self) | {"ratio": self.ratio, "met": self.met}


def slope_per_million(points: Mapping[int, float]) -> float:
    """Seconds per million pending: the straight line of least squares through batch times by number pending.

    Args:
        points: Number pending to seconds a batch, at least two numbers.

    Raises:
        ValueError: Fewer than two numbers.
    """
    if len(points) < 2:
        raise ValueError(f"a slope needs two sizes at least, not {len(points)}")
    mean_x = sum(points) / len(points)
    mean_y = sum(points.values()) / len(points)
    spread = sum((x - mean_x) ** 2 for x in points)
    return 1e6 * sum((x - mean_x) * (y - mean_y) for x, y in points.items()) / spread


def median(values: Sequence[float]) -> float:
    """The median; of an even number of values the mean of the middle two.

    Raises:
        ValueError: No values.
    """
    if not values:
        raise ValueError("a median needs a value at least")
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def table(lines: Sequence[Line]) -> str:
    """The comparisons, aligned, one a line."""
    return aligned([_HEADINGS, *(_cells(line) for line in lines)], _ON_THE_RIGHT)


def phases_table(profiles: Mapping[str, Mapping[str, float]]) -> str:
    """Where the time of a batch goes: a row for each run, a column for each phase, median ms."""
    names = list(dict.fromkeys(name for phases in profiles.values() for name in phases))
    rows = [("ms a batch (median)", *names)]
    rows += [
        (run, *(number(phases[name]) if name in phases else "-" for name in names))
        for run, phases in profiles.items()
    ]
    return aligned(rows, frozenset(range(1, len(names) + 1)))


def document(lines: Sequence[Line], details: Mapping[str, Any]) -> dict[str, Any]:
    """All of a run for JSON: the comparisons, and what they were made from."""
    return {"comparisons": [line.record() for line in lines], **details}


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Writes the document, its folder too if need be."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _cells(line: Line) -> tuple[str, ...]:
    beside = "" if line.beside is None else f"{number(line.beside)} {line.unit}, {line.beside_what}"
    ratio = "" if line.ratio is None else f"{number(line.ratio)}x"
    target = "" if line.target is None else line.target.text()
    verdict = {None: "", True: "met", False: "MISSED"}[line.met]
    return (line.case, line.what, f"{number(line.figure)} {line.unit}", beside, ratio, target, verdict)


def number(value: float) -> str:
    """Three significant digits, and whole numbers whole: 0.0123, 1.23, 12.3, 123, 12,345."""
    if value == int(value) or abs(value) >= 100:
        return f"{round(value):,}"
    return f"{value:#.3g}"


def aligned(rows: Sequence[Sequence[str]], on_the_right: frozenset[int]) -> str:
    """Rows as text: a heading, a rule, and columns; some of them end at the same place instead of beginning there."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.rjust(width) if at in on_the_right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])
