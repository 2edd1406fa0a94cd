"""The table and the picture of a soak."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.soak.analysis import CHANCE, Trend, trend
from tests.soak.plan import Plan

FIGURES = {
    "batch": ("ms", 20),
    "intake batch": ("ms", 20),
    "pending": ("", 20),
    "state rows": ("", 0),
    "state memory": ("MiB", 4),
    "state files": ("MiB", 2),
    "checkpoint files": ("", 30),
    "scratch files": ("", 200),
    "store files": ("", 10),
    "driver memory": ("MiB", 4),
    "worker memory": ("MiB", 20),
    "JVM memory": ("MiB", 20),
    "JVM heap": ("MiB", 10),
    "driver handles": ("", 4),
    "worker handles": ("", 10),
    "JVM handles": ("", 10),
    "JVM threads": ("", 10),
}
"""The figures in the order of the table: unit, and the largest rise that never counts: a buffer of RocksDB, a worker
more, a snapshot of the state, files of shuffles between two collections."""

PANELS = {
    "batch time, ms": ("batch", "intake batch"),
    "pending entries": ("pending",),
    "rows of state": ("state rows",),
    "state, MiB": ("state memory", "state files"),
    "number of files": ("checkpoint files", "scratch files", "store files"),
    "memory, MiB": ("JVM memory", "JVM heap", "worker memory", "driver memory"),
    "handles, threads": ("JVM handles", "JVM threads", "worker handles", "driver handles"),
}

Series = tuple[list[float], list[float]]


class Growing(NamedTuple):
    """A figure of a mode that grows."""

    mode: str
    figure: str


@dataclass(frozen=True)
class Result:
    """One figure of one mode.

    Attributes:
        mode: Which.
        figure: Which.
        trend: Its line; None with too few samples.
        grows: Whether it grows.
        undecided: Why this soak is too short for it; empty if it is not.
    """

    mode: str
    figure: str
    trend: Trend | None
    grows: bool
    undecided: str = ""

    @property
    def lacks_samples(self) -> bool:
        """Whether it should be decided and cannot be."""
        return self.trend is None and not self.undecided


def read_samples(file: Path) -> dict[tuple[str, str], Series]:
    """The series of each mode and figure: seconds and values."""
    found: dict[tuple[str, str], Series] = defaultdict(lambda: ([], []))
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            sample = json.loads(line)
            mode, second = sample.pop("mode"), sample.pop("s")
            for figure, value in sample.items():
                times, values = found[mode, figure]
                times.append(second)
                values.append(value)
    return found


def results_of(samples: dict[tuple[str, str], Series], plan: Plan, modes: Sequence[str]) -> list[Result]:
    """The trend of each figure over what is measured, by mode and in the order of :data:`FIGURES`."""
    found = []
    for mode in modes:
        for figure, (_, least) in FIGURES.items():
            if (mode, figure) in samples:
                line, why = trend(*between(samples[mode, figure], plan.warm_s, plan.feed_s)), plan.undecided
                grows = line is not None and figure not in why and line.grows(plan.share, least)
                found.append(Result(mode, figure, line, grows, why.get(figure, "")))
    return found


def growing(results: Iterable[Result]) -> list[Growing]:
    """What grows."""
    return [Growing(each.mode, each.figure) for each in results if each.grows]


def names(found: Iterable[Growing]) -> str:
    """As text, in the order given."""
    return ", ".join(f"{mode} {figure}" for mode, figure in found)


def between(series: Series, from_s: float, to_s: float) -> Series:
    """The part of a series between two instants."""
    kept = [(at, value) for at, value in zip(*series, strict=True) if from_s <= at <= to_s]
    return [at for at, _ in kept], [value for _, value in kept]


def table(results: Iterable[Result], share: float) -> str:
    """The table, a line a figure."""
    head = f"{'mode':<10}{'figure':<24}{'samples':>8}{'mean':>11}{'slope per hour':>16}{'+- error':>11}{'rise':>8}  verdict"
    lines = [head, "-" * len(head)]
    lines += [_line(result) for result in results]
    lines.append(
        f"grows: slope - {min(CHANCE.values()):.0f} to {max(CHANCE.values()):.0f} errors > 0, by the number of samples, the line rises by more than {share:.0%} of the mean and a least amount, and from each quarter to the next"
    )
    return "\n".join(lines)


def _line(result: Result) -> str:
    unit, _ = FIGURES[result.figure]
    name = f"{result.mode:<10}{result.figure + (f', {unit}' if unit else ''):<24}"
    if result.trend is None:
        return f"{name}{'too few samples':>19}"
    line = result.trend
    figures = (
        f"{line.samples:>8,}{line.mean:>11,.1f}{line.slope:>+16,.1f}{line.error:>11,.1f}{line.rise:>+8.1%}"
    )
    return f"{name}{figures}  {result.undecided or _verdict(result.grows, line)}"


def _verdict(grows: bool, line: Trend) -> str:
    if grows:
        return "GROWS"
    if line.slope + line.errors * line.error < 0:
        return "falls"
    return "level" if not line.is_rising else "rises, too little to count"


def draw(
    file: Path,
    samples: dict[tuple[str, str], Series],
    results: Sequence[Result],
    modes: Sequence[str],
    plan: Plan,
) -> None:
    """The picture: a column for each mode, a row for each kind of figure, the fitted lines over what was measured."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 13, "axes.titlesize": 16})
    size = (6.2 * len(modes) + 1, 3.1 * len(PANELS))
    figure, grid = plt.subplots(len(PANELS), len(modes), figsize=size, sharex="col", squeeze=False)
    lines = {(each.mode, each.figure): each for each in results}
    for column, mode in enumerate(modes):
        grid[0][column].set_title(mode)
        for row, (label, figures) in enumerate(PANELS.items()):
            axes = grid[row][column]
            for number, name in enumerate(figures):
                if (mode, name) in samples:
                    _draw_series(axes, samples[mode, name], lines[mode, name], f"C{number}", plan)
            axes.axvspan(0, plan.warm_s, color="0.92", zorder=0)
            axes.set_ylim(0, 1.45 * _highest(samples, mode, figures, plan))
            axes.margins(x=0.01)
            axes.grid(visible=True, color="0.88")
            if axes.lines:
                axes.legend(loc="upper left", ncol=2, fontsize=11, framealpha=0.85)
            if column == 0:
                axes.set_ylabel(label)
        grid[-1][column].set_xlabel("seconds of feeding (grey: warm-up)")
    figure.align_ylabels()
    figure.tight_layout()
    figure.savefig(file, dpi=80)
    plt.close(figure)


def _highest(samples: dict[tuple[str, str], Series], mode: str, figures: Sequence[str], plan: Plan) -> float:
    """The largest value that is measured: the first batches of a warm-up would make all others flat."""
    measured = [between(samples.get((mode, name), ([], [])), plan.warm_s, plan.feed_s)[1] for name in figures]
    return max((max(values) for values in measured if values), default=0) or 1


def _draw_series(axes: Any, series: Series, result: Result, colour: str, plan: Plan) -> None:
    times, values = between(series, 0, plan.feed_s)
    name = f"{result.figure}{': GROWS' if result.grows else ''}"
    marker = "." if len(times) < 400 else None
    axes.plot(times, values, color=colour, linewidth=1, marker=marker, markersize=4, alpha=0.55, label=name)
    line, (measured, _) = result.trend, between(series, plan.warm_s, plan.feed_s)
    if line is not None:
        middle = sum(measured) / len(measured)
        ends = [measured[0], measured[-1]]
        axes.plot(
            ends, [line.mean + line.slope / 3_600 * (at - middle) for at in ends], color=colour, linewidth=2.5
        )
