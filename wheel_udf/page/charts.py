"""The content of charts: cells, bars, ticks. The templates lay them out as SVG, the style sheet colours them.

Horizontal places are percent of the width, so that text keeps its size on a narrow screen; vertical ones are pixels.
Each chart also has its numbers as a table, for readers who cannot see it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from wheel_udf.common.geometry import Wheel
from wheel_udf.page.shard_sums import EDGES_MS
from wheel_udf.page.words import count_text, short_count, span_text, when_text

PLOT_PX: Final = 200
"""Height of a plot."""

SHADES: Final = 8
"""Shades of the heat map."""

_MOST_CELLS: Final = 32
_MOST_SERIES: Final = 6
_SPANS_MS: Final = (
    *(n * 10**k for k in range(3) for n in (1, 2, 5)),
    1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 900_000,
    1_800_000, 3_600_000, 7_200_000, 10_800_000, 21_600_000, 43_200_000,
    *(n * 86_400_000 * 10**k for k in range(5) for n in (1, 2, 5)),
)  # fmt: skip


# ---- the wheel -----------------------------------------------------------------------------------


def heat_map(
    geometry: Wheel, clock_ms: int, cells: Iterable[Sequence[int]], stored: Iterable[Sequence[int]] = ()
) -> dict[str, Any]:
    """Lays out the wheel: a row for each level, a cell for each slot from the clock on.

    Args:
        geometry: The wheel.
        clock_ms: Its clock.
        cells: Entries in the state: level, absolute slot, rows.
        stored: Rows in the store's windows: level, start and end (UTC epoch ms), rows.

    Returns:
        ``rows`` (the lowest level first) of ``cells``, ``columns`` and ``most``; ``group``, the slots of a cell, of
        which there are at most 32. The last cell is for later slots.
    """
    group = -(-geometry.size // _MOST_CELLS)
    columns = -(-geometry.size // group)
    totals: dict[int, list[int]] = {level: [0] * (columns + 1) for level in range(1, geometry.levels + 1)}
    in_store: dict[int, int] = {}
    for level, slot, rows in cells:
        totals[level][_column(geometry, level, slot, clock_ms, group)] += rows
    for level, start_ms, _, rows in stored:
        slot = start_ms // geometry.tick_of(level)
        totals[level][_column(geometry, level, slot, clock_ms, group)] += rows
        in_store[level] = in_store.get(level, 0) + rows
    most = max((max(row) for row in totals.values()), default=0)
    return {
        "rows": [
            _level_row(geometry, level, row, clock_ms, group, most, in_store.get(level, 0))
            for level, row in totals.items()
        ],
        "group": group,
        "most": most,
        "columns": columns + 1,
    }


def _column(geometry: Wheel, level: int, slot: int, clock_ms: int, group: int) -> int:
    """The column of a slot: 0 for slots that the clock has reached, one beyond the last for slots outside the ring."""
    ahead = slot - clock_ms // geometry.tick_of(level)
    return min(max(ahead, 0) // group, -(-geometry.size // group))


def _level_row(
    geometry: Wheel, level: int, counts: Sequence[int], clock_ms: int, group: int, most: int, stored: int
) -> dict[str, Any]:
    tick_ms = geometry.tick_of(level)
    first = clock_ms // tick_ms
    cells = []
    for column, rows in enumerate(counts):
        start_ms = (first + column * group) * tick_ms
        is_later = column == len(counts) - 1
        end = "and later" if is_later else f"to {when_text(start_ms + group * tick_ms)}"
        tip = f"level {level}, due {when_text(start_ms)} {end} UTC: {count_text(rows)}"
        cells.append({"rows": rows, "shade": shade(rows, most), "tip": tip})
    return {
        "level": level,
        "tick": span_text(tick_ms),
        "reach": span_text(tick_ms * geometry.size),
        "total": sum(counts),
        "stored": stored,
        "cells": cells,
    }


def shade(rows: int, most: int) -> int:
    """The shade of a cell: 0 for none, 1 to 8 by the logarithm of its count."""
    if rows <= 0:
        return 0
    return 1 + min(int((SHADES - 1) * math.log1p(rows) / math.log1p(max(most, 8))), SHADES - 1)


# ---- the forecast --------------------------------------------------------------------------------


def step_name(step: int) -> str:
    """The step of a forecast in words: ``due``, ``to 1 s``, ``beyond 3,650 d``."""
    if step <= 0:
        return "due"
    if step >= len(EDGES_MS):
        return f"beyond {_edge(len(EDGES_MS) - 1)}"
    return f"≤ {_edge(step)}"


def _edge(step: int) -> str:
    days = EDGES_MS[step] / 86_400_000
    return f"{days / 365:.0f} y" if days >= 365 else span_text(EDGES_MS[step])


def spread(windows: Iterable[Sequence[int]], clock_ms: int) -> dict[int, int]:
    """Divides rows of store windows (level, start, end, rows) among forecast steps, in proportion to their spans."""
    steps: dict[int, float] = {}
    for _, start_ms, end_ms, rows in windows:
        start, end = start_ms - clock_ms, end_ms - clock_ms
        bounds = [start, *(edge for edge in EDGES_MS if start < edge < end), end]
        for left, right in pairwise(bounds):
            step = sum(edge < (left + right) / 2 for edge in EDGES_MS)
            steps[step] = steps.get(step, 0) + rows * (right - left) / (end - start)
    return {step: round(rows) for step, rows in steps.items() if round(rows)}


def largest_series(series: Mapping[str, Mapping[int, int]]) -> dict[str, dict[int, int]]:
    """The series with the most rows, the largest first, and the rest together as ``others``."""
    ordered = sorted(series, key=lambda name: (-sum(series[name].values()), name))
    kept = {name: dict(series[name]) for name in ordered[:_MOST_SERIES]}
    rest = sum((Counter(series[name]) for name in ordered[_MOST_SERIES:]), Counter[int]())
    return kept | ({f"{len(ordered) - _MOST_SERIES} others": rest} if rest else {})


def forecast(series: Mapping[str, Mapping[int, int]], clock_ms: int) -> dict[str, Any]:
    """Lays out the forecast: a bar for each step from the first to the last that holds rows, stacked by series.

    Args:
        series: Rows by name and step; a step below 0 has no due time and is left out.
        clock_ms: The wheel's clock.

    Returns:
        ``bars``, ``axis`` of the counts, ``names`` of the series, ``total``; no bars if nothing is pending. A part of
        a bar stands on so many rows (``below``).
    """
    kept = largest_series(series)
    filled = {step for counts in kept.values() for step, rows in counts.items() if rows and step >= 0}
    bars: list[dict[str, Any]] = []
    for step in range(min(filled), max(filled) + 1) if filled else ():
        parts: list[dict[str, Any]] = []
        below = 0
        for number, (name, counts) in enumerate(kept.items()):
            if rows := counts.get(step, 0):
                parts.append({"series": number, "name": name, "rows": rows, "below": below})
                below += rows
        until = "" if not 0 < step < len(EDGES_MS) else f", by {when_text(clock_ms + EDGES_MS[step])} UTC"
        tip = "; ".join(f"{part['name']} {count_text(part['rows'])}" for part in parts)
        tip = f"{step_name(step)}{until}: {count_text(below)}" + (f" ({tip})" if tip else "")
        bars.append({"name": step_name(step), "rows": below, "parts": parts, "tip": tip})
    return {
        "bars": bars,
        "axis": count_axis(max((bar["rows"] for bar in bars), default=0)),
        "names": list(kept) if bars else [],
        "total": sum(bar["rows"] for bar in bars),
    }


# ---- lines and axes ------------------------------------------------------------------------------


def line_path(values: Sequence[int | None], top: int) -> str:
    """The path of a line that holds each value for its minute, in a box of 60 by 200; a gap where there is none."""
    parts, pen_is_down = [], False
    for place, value in enumerate(values):
        if value is not None:
            y = PLOT_PX - PLOT_PX * min(value / top, 1)
            parts.append(f"{'V' if pen_is_down else f'M{place} '}{y:.1f}H{place + 1}")
        pen_is_down = value is not None
    return "".join(parts)


def count_axis(most: int) -> dict[str, Any]:
    """An axis of counts: ``ticks``, the texts of up to five round numbers from 0 on, and ``top``, the last of them."""
    step = next(n * 10**k for k in range(19) for n in (1, 2, 5) if n * 10**k * 4 >= most)
    return _axis(step, most, short_count)


def span_axis(most_ms: int) -> dict[str, Any]:
    """An axis of spans in ms, likewise."""
    step = next((span for span in _SPANS_MS if span * 4 >= most_ms), most_ms)
    return _axis(step, most_ms, span_text)


def _axis(step: int, most: int, text: Callable[[int], str]) -> dict[str, Any]:
    count = max(1, -(-most // step))
    return {"ticks": [text(n * step) for n in range(count + 1)], "top": count * step}
