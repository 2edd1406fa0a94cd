"""Pictures of the notebooks: each function draws one figure and returns it as an image.

Colours are those of Okabe and Ito, which readers with colour-blindness can tell apart; markers differ as well. Text is
large enough to read at half size. Instants and durations come in milliseconds; axes show the unit that the labels
name.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from IPython.display import Image
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from wheel_udf import Wheel
from wheel_udf.common import geometry

BLUE, VERMILION, GREEN, ORANGE, SKY, PURPLE, GREY = (
    *("#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7"),
    "#6b6b6b",
)
LEVEL_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION)
_STYLE = {"size": 13}
_DPI = 80


def _figure(width: float = 11, height: float = 4.2) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), dpi=_DPI, layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=12)
    return figure, axes


def _labelled(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", fontsize=14, pad=12)
    axes.set_xlabel(x, fontsize=13)
    axes.set_ylabel(y, fontsize=13)


def _finished(figure: Figure, axes: Axes, title: str, x: str, y: str, alt: str) -> Image:
    """Labels the axes and returns the figure as a PNG that is the same in every run."""
    _labelled(axes, title, x, y)
    return _image(figure, alt)


def _image(figure: Figure, alt: str) -> Image:
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    return Image(data=file.getvalue(), alt=alt, width=int(figure.get_figwidth() * _DPI))


# ---- the wheel -----------------------------------------------------------------------------------


def levels_and_slots(wheel: Wheel, clock_ms: int = 0) -> Image:
    """The slots of each level on a logarithmic axis of time after the clock."""
    figure, axes = _figure()
    for level in range(1, wheel.levels + 1):
        tick_ms, colour = wheel.tick_of(level), LEVEL_COLOURS[level - 1]
        below_ms = wheel.interval_of(level - 1) if level > 1 else 0
        for slot in range(wheel.size):
            start_ms, end_ms = slot * tick_ms, (slot + 1) * tick_ms
            used = start_ms >= below_ms
            left_ms = max(start_ms, wheel.tick_ms * 0.5)
            axes.add_patch(
                Rectangle(
                    (left_ms, level - 0.3), end_ms - left_ms, 0.6,
                    facecolor=colour if used else "white", alpha=0.85 if slot % 2 else 0.55,
                    edgecolor="white" if used else colour, linewidth=0.8, linestyle="-" if used else ":",
                )
            )  # fmt: skip
        label = f"{wheel.size} slots of {tick_ms:,} ms, interval {wheel.interval_of(level):,} ms"
        axes.text(wheel.tick_ms * 0.55, level + 0.36, label, fontsize=13, color="black")
    axes.set_xscale("log")
    axes.set_xlim(wheel.tick_ms * 0.5, wheel.interval_of(wheel.levels) * 1.1)
    axes.set_ylim(0.5, wheel.levels + 0.75)
    axes.set_yticks(range(1, wheel.levels + 1), [f"level {level}" for level in range(1, wheel.levels + 1)])
    axes.xaxis.set_major_formatter("{x:,.0f}")
    return _finished(
        figure, axes, "Three levels of slots; a level uses only what the level below does not span",
        f"due time minus clock (ms, logarithmic; the clock stands at {clock_ms:,} ms)", "",
        "Slots of three levels: 20 of 1 ms, 20 of 20 ms, 20 of 400 ms",
    )  # fmt: skip


def occupancy(wheel: Wheel, due_ms: np.ndarray[Any, Any], clock_ms: int) -> Image:
    """Where entries lie: a heat map of level by slot on the ring, with the position of each level's clock."""
    levels = geometry.levels_of(wheel, due_ms, clock_ms)
    rings = geometry.slots_of(wheel, levels, due_ms) % wheel.size
    counts = np.zeros((wheel.levels, wheel.size))
    np.add.at(counts, (levels - 1, rings), 1)
    figure, axes = _figure(11, 0.9 + 0.75 * wheel.levels)
    shown = np.ma.masked_equal(counts, 0)
    mesh = axes.pcolormesh(shown, cmap="cividis_r", vmin=0, edgecolors="white", linewidth=1.5)
    for level in range(1, wheel.levels + 1):
        ring = (clock_ms // wheel.tick_of(level)) % wheel.size
        axes.add_patch(Rectangle((ring, level - 1), 1, 1, fill=False, edgecolor=VERMILION, linewidth=3))
        for slot in range(wheel.size):
            if count := int(counts[level - 1, slot]):
                dark = count > counts.max() * 0.55
                axes.text(
                    slot + 0.5, level - 0.5, f"{count}", ha="center", va="center", fontsize=11,
                    color="white" if dark else "black",
                )  # fmt: skip
    names = [f"level {k}  ({_span(wheel.tick_of(k))} a slot)" for k in range(1, wheel.levels + 1)]
    axes.set_yticks([k - 0.5 for k in range(1, wheel.levels + 1)], names)
    axes.set_xticks([slot + 0.5 for slot in range(wheel.size)], [str(slot) for slot in range(wheel.size)])
    axes.spines[:].set_visible(False)
    figure.colorbar(mesh, ax=axes, label="entries", pad=0.01).ax.tick_params(labelsize=11)
    title = f"{len(due_ms):,} entries, clock at {_span(clock_ms)} (outlined: the slot of each level's clock)"
    return _finished(figure, axes, title, "slot on the ring (slot mod size)", "", title)


def way_down(wheel: Wheel, deliver_at_ms: int, clock_ms: int) -> Image:
    """The buckets of one entry, from where it is put to level 1."""
    steps = geometry.path_of(wheel, deliver_at_ms, clock_ms)
    figure, axes = _figure(11, 1.6 + 0.75 * len(steps))
    first_ms, last_ms = geometry.bucket_interval(wheel, *steps[0][:2])
    for row, (level, slot, at_ms) in enumerate(steps):
        start_ms, end_ms = geometry.bucket_interval(wheel, level, slot)
        colour = LEVEL_COLOURS[level - 1]
        axes.barh(
            row, end_ms - start_ms, left=start_ms, height=0.5, color=colour, edgecolor=colour, linewidth=3
        )
        label = f"clock {at_ms:,} ms: level {level}, bucket [{start_ms:,}, {end_ms:,})"
        axes.text(end_ms + (last_ms - first_ms) * 0.03, row, label, va="center", fontsize=13)
    axes.plot([deliver_at_ms] * 2, [-0.5, len(steps) - 0.5], color=VERMILION, linewidth=2, linestyle="--")
    axes.text(deliver_at_ms, -0.55, f"due {deliver_at_ms:,} ms", color=VERMILION, ha="center", fontsize=13)
    axes.set_ylim(len(steps) - 0.5, -1.2)
    axes.set_yticks([])
    axes.set_xlim(first_ms - (last_ms - first_ms) * 0.05, last_ms + (last_ms - first_ms) * 0.75)
    axes.set_xticks(np.linspace(first_ms, last_ms, 5))
    return _finished(
        figure, axes, "The cascade: a bucket that the clock reaches empties into a narrower one", "time (ms)", "",
        f"The buckets of an entry due at {deliver_at_ms} ms",
    )  # fmt: skip


def trace(moves: pd.DataFrame) -> Image:
    """The life of each entry of a trace: in which level it waits when, and when it fires.

    Args:
        moves: Columns entry (text), due_s, at_s, level (None where it fires), in order.
    """
    figure, axes = _figure(11, 5.4)
    entries = list(dict.fromkeys(moves["entry"]))
    labelled: set[int] = set()
    for row, entry in enumerate(entries):
        steps = moves[moves["entry"] == entry]
        for (_, step), end_s in zip(steps.iterrows(), [*steps["at_s"][1:], None], strict=True):
            if pd.isna(step["level"]):
                axes.plot(step["at_s"], row, marker="o", color="black", markersize=8, linestyle="none",
                          label="fires" if row == 0 else None)  # fmt: skip
                continue
            level = int(step["level"])
            width_s = (end_s if end_s is not None else step["due_s"]) - step["at_s"]
            axes.barh(row, width_s, left=step["at_s"], height=0.62, color=LEVEL_COLOURS[level - 1],
                      label=None if level in labelled else f"waits on level {level}")  # fmt: skip
            labelled.add(level)
    axes.set_xscale("symlog", linthresh=20, linscale=0.8)
    ticks = [0, 10, 20, 40, 80, 160, 320, 640]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlim(0, 1000)
    axes.set_yticks(range(len(entries)), [f"due {entry} s" for entry in entries])
    axes.invert_yaxis()
    axes.grid(axis="x", color="#dddddd")
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=12, loc="upper right")
    title = "Twelve entries on a wheel of 10 s x 8: each comes down a level at a time"
    return _finished(figure, axes, title, "clock (s, logarithmic beyond 20 s)", "", title)


# ---- deliveries ----------------------------------------------------------------------------------


def stacked_bars(
    table: pd.DataFrame, *, title: str, x: str, y: str, rotation: int = 0, height: float = 4.2
) -> Image:
    """A stacked bar for each row of a table, one colour a column."""
    figure, axes = _figure(11, height)
    bottom = np.zeros(len(table))
    places = np.arange(len(table))
    for column, colour in zip(table.columns, LEVEL_COLOURS, strict=False):
        values = table[column].to_numpy(dtype=float)
        axes.bar(places, values, bottom=bottom, color=colour, label=str(column), width=0.85)
        bottom += values
    align = {"rotation": rotation, "ha": "right", "rotation_mode": "anchor"} if rotation else {}
    axes.set_xticks(places, [str(name) for name in table.index], **align)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="y", color="#dddddd")
    axes.set_axisbelow(True)
    axes.margins(x=0.01)
    if len(table.columns) > 1:
        axes.legend(frameon=False, fontsize=12, title=table.columns.name, ncols=min(4, len(table.columns)),
                    loc="upper right" if rotation else "upper left")  # fmt: skip
        axes.set_ylim(top=bottom.max() * 1.22)
    return _finished(figure, axes, title, x, y, title)


def distribution(numbers: Sequence[float], *, title: str, x: str) -> Image:
    """How many deliveries were how late; p50 and p99 as lines."""
    figure, axes = _figure()
    values = np.asarray(numbers, dtype=float)
    axes.hist(values, bins=40, color=SKY, edgecolor="white")
    for share, colour, style in ((0.5, BLUE, "-"), (0.99, VERMILION, "--")):
        mark = float(np.quantile(values, share))
        axes.axvline(
            mark, color=colour, linewidth=2.5, linestyle=style, label=f"p{share * 100:.0f}: {mark:,.0f}"
        )
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.legend(frameon=False, fontsize=12, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    return _finished(figure, axes, title, x, "deliveries", title)


# ---- plans ---------------------------------------------------------------------------------------


def compare(table: pd.DataFrame, *, title: str) -> Image:
    """A panel for each column, a bar with its number for each row; NaN is a dash. Rows have the same place in all
    panels.
    """
    columns = list(table.columns)
    figure = Figure(figsize=(11, 1.3 + 0.52 * len(table)), dpi=_DPI, layout="constrained")
    panels = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    places = np.arange(len(table))
    for axes, column in zip(panels, columns, strict=True):
        values = table[column].to_numpy(dtype=float)
        known = np.nan_to_num(values)
        axes.barh(places, known, height=0.62, color=BLUE)
        largest = known.max() or 1.0
        digits = 0 if largest >= 100 or (known == known.round()).all() else 1
        for place, value in zip(places, values, strict=True):
            label = "-" if np.isnan(value) else f"{value:,.{digits}f}"
            axes.text(np.nan_to_num(value) + largest * 0.03, place, label, va="center", fontsize=12)
        axes.set_xlim(0, largest * 1.42)
        axes.set_xticks([])
        axes.set_title(column, fontsize=12, loc="left")
        axes.spines[["top", "right", "bottom"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
    panels[0].set_yticks(places, [textwrap.fill(str(name), 22) for name in table.index], fontsize=12)
    panels[0].invert_yaxis()
    figure.suptitle(title, x=0.01, ha="left", fontsize=14)
    return _image(figure, title)


# ---- the purgatory -------------------------------------------------------------------------------


def time_lines(
    waits: pd.DataFrame, marks: pd.DataFrame, *, title: str, x: str = "seconds after the start"
) -> Image:
    """A line for each operation from its start to its end, with what happened on it.

    Args:
        waits: Columns operation, start_s, end_s, outcome.
        marks: Columns operation, at_s, what (`event`, `cancel`, `deadline`) and, if wanted, label.
        title: Title of the figure.
        x: Label of the axis of time.
    """
    names = list(dict.fromkeys(waits["operation"]))
    figure, axes = _figure(11, 1.9 + 0.55 * len(names))
    colours = {"completed": GREEN, "expired": VERMILION, "cancelled": GREY, "pending": SKY}
    labelled: set[str] = set()
    for _, wait in waits.iterrows():
        row, outcome = names.index(wait["operation"]), wait["outcome"]
        axes.plot([wait["start_s"], wait["end_s"]], [row, row], color=colours[outcome], linewidth=7,
                  solid_capstyle="butt", label=None if outcome in labelled else outcome)  # fmt: skip
        labelled.add(outcome)
    styles = {"event": ("o", "black"), "cancel": ("X", "black"), "deadline": ("|", BLUE)}
    for what, (marker, colour) in styles.items():
        rows = marks[(marks["what"] == what) & marks["operation"].isin(names)]
        if len(rows):
            places = [names.index(name) for name in rows["operation"]]
            size = 16 if what == "deadline" else 10
            axes.plot(rows["at_s"], places, linestyle="none", marker=marker, color=colour, markersize=size,
                      markeredgewidth=2.5 if what == "deadline" else 1, label=what)  # fmt: skip
    if "label" in marks.columns:
        for _, mark in marks[marks["label"] != ""].iterrows():
            if mark["operation"] in names:
                axes.annotate(mark["label"], (mark["at_s"], names.index(mark["operation"])), xytext=(0, 11),
                              textcoords="offset points", ha="center", fontsize=12)  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.7)
    latest_s = max([*waits["end_s"], *marks["at_s"]])
    axes.set_xlim(0, latest_s * 1.04)
    axes.grid(axis="x", color="#dddddd")
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", frameon=False, fontsize=12, ncols=6)
    return _finished(figure, axes, title, x, "", title)


# ---- series and retries --------------------------------------------------------------------------


class Night(NamedTuple):
    """A night in which clocks change: its title, the time zone, the instant of the change, the ids to show."""

    title: str
    zone: str
    change: pd.Timestamp
    series: Sequence[str]


def week(mornings: pd.DataFrame, nights: Sequence[Night], at_night: pd.DataFrame) -> Image:
    """Daily reminders on axes of days and of the time of day in UTC; below them a panel for each night.

    Args:
        mornings: Columns schedule_id, deliver_at (UTC).
        nights: The nights to show.
        at_night: Deliveries of the nights, likewise.
    """
    figure = Figure(figsize=(11, 8.6), dpi=_DPI, layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(1.3, 1), hspace=0.06)
    _mornings(above.add_subplot(), mornings)
    for axes, night in zip(below.subplots(1, len(nights), squeeze=False)[0], nights, strict=True):
        _night(axes, night, at_night)
    return _image(figure, "Daily reminders over two changes of clocks: by day in UTC, and two nights")


def _mornings(axes: Axes, mornings: pd.DataFrame) -> None:
    for (name, rows), colour, marker in zip(
        mornings.groupby("schedule_id"), LEVEL_COLOURS, "osD", strict=False
    ):
        at = rows["deliver_at"].sort_values()
        hour = at.dt.hour + at.dt.minute / 60
        axes.plot(at.dt.floor("D"), hour, color=colour, marker=marker, markersize=8, linewidth=2)
        for place in (0, -1):
            axes.annotate(f"{at.iloc[place]:%H:%M}", (at.iloc[place].floor("D"), hour.iloc[place]),
                          xytext=(0, 10), textcoords="offset points", ha="center", fontsize=12,
                          color=colour)  # fmt: skip
        axes.annotate(str(name), (at.max().floor("D"), hour.iloc[-1]), xytext=(30, 0),
                      textcoords="offset points", va="center", fontsize=13, color=colour)  # fmt: skip
    days = pd.date_range(mornings["deliver_at"].min().floor("D"), mornings["deliver_at"].max().floor("D"))
    axes.set_xticks(days, [f"{day:%a} {day.day}" for day in days])
    axes.set_xlim(days[0] - pd.Timedelta(hours=9), days[-1] + pd.Timedelta(hours=44))
    axes.set_ylim(5, 25)
    axes.set_yticks(range(6, 25, 3), [f"{hour:02}:00" for hour in range(6, 25, 3)])
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=12)
    axes.grid(axis="y", color="#dddddd")
    axes.set_axisbelow(True)
    x = f"day (UTC), {days[0]:%B} to {days[-1]:%B %Y}"
    _labelled(axes, "Every day at nine, local time: the instant in UTC", x, "time of day (UTC)")


def _night(axes: Axes, night: Night, at_night: pd.DataFrame) -> None:
    around = pd.Timedelta(minutes=75)
    for row, name in enumerate(night.series):
        at = at_night.loc[at_night["schedule_id"] == name, "deliver_at"]
        shown = at[(at - night.change).abs() < around].sort_values()
        axes.plot(shown, [row] * len(shown), linestyle="none", marker="o", markersize=11, color=BLUE)
        for each in shown:
            axes.annotate(f"{each.tz_convert(night.zone):%H:%M}", (each, row), xytext=(9, 5),
                          textcoords="offset points", fontsize=12)  # fmt: skip
        if not len(shown):
            axes.text(night.change, row, "  nothing this night", va="center", fontsize=12, color=GREY)
    axes.axvline(night.change, color=VERMILION, linewidth=2, linestyle="--", zorder=0)
    ticks = [night.change + pd.Timedelta(minutes=30 * step) for step in range(-2, 3)]
    texts = [f"{each.tz_convert(night.zone):%H:%M}\n{each:%H:%M}" for each in ticks]
    axes.set_xticks(ticks, texts)
    axes.set_xlim(night.change - around, night.change + around)
    axes.set_yticks(range(len(night.series)), [textwrap.fill(name, 10) for name in night.series])
    axes.set_ylim(len(night.series) - 0.5, -0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=12)
    axes.grid(axis="x", color="#dddddd")
    axes.set_axisbelow(True)
    _labelled(axes, night.title, "local time, UTC below it (dashed: the change)", "")
    axes.title.set_fontsize(13)


def outage(
    rounds: pd.DataFrame,
    *,
    series: Sequence[str],
    due: pd.DatetimeIndex,
    down: tuple[pd.Timestamp, pd.Timestamp],
) -> Image:
    """The occurrences of some series at their nominal times: delivered on time, late, or missed.

    Args:
        rounds: Columns schedule_id, deliver_at, fired_at, missed_before.
        series: The ids, from above.
        due: All nominal times.
        down: From when to when the job was down.
    """
    figure, axes = _figure(11, 1.9 + 0.8 * len(series))
    axes.axvspan(*down, color="#eeeeee", zorder=0)
    axes.text(
        down[0] + (down[1] - down[0]) / 2, -0.72, "down", ha="center", va="center", fontsize=13, color=GREY
    )
    styles = {
        "delivered on time": ("o", BLUE, BLUE),
        "delivered after the start": ("D", ORANGE, ORANGE),
        "missed": ("X", "white", VERMILION),
    }
    for row, name in enumerate(series):
        mine = rounds[rounds["schedule_id"] == name]
        on_time = mine["fired_at"] == mine["deliver_at"]
        places = (
            mine.loc[on_time, "deliver_at"],
            mine.loc[~on_time, "deliver_at"],
            due.difference(pd.DatetimeIndex(mine["deliver_at"])),
        )
        for (marker, face, edge), at in zip(styles.values(), places, strict=True):
            axes.plot(at, [row] * len(at), linestyle="none", marker=marker, markersize=11, color=face,
                      markeredgecolor=edge, markeredgewidth=1.5)  # fmt: skip
        for _, late in mine[mine["missed_before"] > 0].iterrows():
            axes.annotate(f"missed_before: {late['missed_before']}", (late["deliver_at"], row), xytext=(0, 12),
                          textcoords="offset points", ha="right", fontsize=12)  # fmt: skip
    hours = due[due.minute == 0]
    axes.set_xticks(hours, [f"{hour:%H:%M}" for hour in hours])
    axes.set_yticks(range(len(series)), series, fontsize=13)
    axes.set_ylim(len(series) - 0.5, -1)
    axes.grid(axis="x", color="#dddddd")
    axes.set_axisbelow(True)
    keys = [
        Line2D([], [], linestyle="none", marker=marker, markersize=11, color=face, markeredgecolor=edge, label=label)
        for label, (marker, face, edge) in styles.items()
    ]  # fmt: skip
    figure.legend(handles=keys, loc="outside lower center", frameon=False, fontsize=12, ncols=3)
    return _finished(figure, axes, "An occurrence every half hour, and the job is down for four hours",
                     "nominal time (UTC)", "on_missed", "Occurrences of three series around an outage")  # fmt: skip


_OPEN, _HALF_OPEN = "#F3C9B0", "#FBEFD2"
_ANSWERS = {
    503: ("X", VERMILION, "503: again later"),
    410: ("s", "black", "410: no further attempt"),
    200: ("o", GREEN, "200: delivered"),
}


def attempts(
    requests: pd.DataFrame, due: Mapping[str, pd.Timestamp], breakers: pd.DataFrame, dead: Sequence[str]
) -> Image:
    """The requests of each row, with a panel for each destination, shaded where its breaker is not closed.

    Args:
        requests: Columns destination, schedule_id, at, status.
        due: The due time of each id, in the order in which they are shown.
        breakers: Columns destination, at, state, for each batch.
        dead: The ids that have ended as dead letters.
    """
    names = list(dict.fromkeys(requests["destination"]))
    ids = {name: set(requests.loc[requests["destination"] == name, "schedule_id"]) for name in names}
    figure = Figure(figsize=(11, 2.6 + 0.36 * len(due)), dpi=_DPI, layout="constrained")
    heights = [len(each) + 1.2 for each in ids.values()]
    panels = figure.subplots(len(ids), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axes, name in zip(panels, names, strict=True):
        _shade(axes, breakers[breakers["destination"] == name].sort_values("at"))
        shown = [each for each in due if each in ids[name]]
        for row, each in enumerate(shown):
            _attempts_of(
                axes, row, requests[requests["schedule_id"] == each], due[each], is_dead=each in dead
            )
        axes.set_yticks(range(len(shown)), shown)
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=12)
        _labelled(axes, name, "", "")
    minutes = pd.date_range(breakers["at"].min().floor("min"), breakers["at"].max(), freq="1min")
    panels[-1].set_xticks(minutes, [f"{minute:%H:%M}" for minute in minutes])
    panels[-1].set_xlabel("time (UTC)", fontsize=13)
    keys = [
        Line2D([], [], linestyle="none", marker="|", markersize=14, markeredgewidth=2.5, color=BLUE, label="due"),
        *(Line2D([], [], linestyle="none", marker=marker, markersize=10, color=colour, label=label)
          for marker, colour, label in _ANSWERS.values()),
        Patch(color=_OPEN, label="breaker open"),
        Patch(color=_HALF_OPEN, label="half-open"),
    ]  # fmt: skip
    figure.legend(handles=keys, loc="outside lower center", frameon=False, fontsize=12, ncols=6,
                  columnspacing=1.2, handletextpad=0.4)  # fmt: skip
    return _image(figure, "The attempts of each row at two webhooks, and when their breakers are open")


def _shade(axes: Axes, states: pd.DataFrame) -> None:
    colours = {"open": _OPEN, "half-open": _HALF_OPEN}
    for begin, end, state in zip(states["at"], states["at"].shift(-1), states["state"], strict=True):
        if state in colours and not pd.isna(end):
            axes.axvspan(begin, end, color=colours[state], linewidth=0, zorder=0)


def _attempts_of(axes: Axes, row: int, mine: pd.DataFrame, due: pd.Timestamp, *, is_dead: bool) -> None:
    axes.plot([due, mine["at"].max()], [row, row], color=GREY, linewidth=1.5, zorder=1)
    axes.plot(due, row, marker="|", markersize=14, markeredgewidth=2.5, color=BLUE, zorder=2)
    for status, (marker, colour, _) in _ANSWERS.items():
        at = mine.loc[mine["status"] == status, "at"]
        axes.plot(at, [row] * len(at), linestyle="none", marker=marker, markersize=10, color=colour)
    if is_dead:
        axes.annotate("dead letter", (mine["at"].max(), row), xytext=(11, 0), textcoords="offset points",
                      va="center", fontsize=12)  # fmt: skip


# ---- helpers -------------------------------------------------------------------------------------


def _span(span_ms: float) -> str:
    """A duration in the unit in which it is a round number: ``400 ms``, ``20 s``, ``2.2 h``."""
    units: Mapping[str, int] = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1_000}
    for unit, unit_ms in units.items():
        if span_ms >= unit_ms * 1.5 or span_ms == unit_ms:
            return f"{span_ms / unit_ms:,.1f}".removesuffix(".0") + f" {unit}"
    return f"{span_ms:,} ms"
