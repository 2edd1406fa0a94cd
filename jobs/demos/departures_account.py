"""The account of the departures demo and its picture: compares what was delivered with what must be delivered.

What must be delivered is computed from the flights alone (:func:`jobs.demos.departures_data.expected_reminders`). What
was delivered is known from two sources: the counts of the wheel in the summary that the job prints, and the rows of
the Delta tables, which are compared one by one. Any difference is a MISMATCH.

Pure pandas: frames in, lines of text and a PNG out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from jobs.demos import departures_data
from wheel_udf.common.outcomes import CANCEL_OUTCOMES, SCHEDULE_OUTCOMES
from wheel_udf.testing import ledger

TABLES = tuple(f"reminders_{airport}" for airport in departures_data.AIRPORTS)
FIRED_COLUMNS = (
    *("schedule_id", "seq", "destination", "key", "value"),
    *("deliver_at_ms", "fired_at_ms", "lateness_ms", "fire_id", "table"),
)

_SCHEDULES = (
    "pending",
    *(outcome for outcome in SCHEDULE_OUTCOMES if outcome not in ("ended", "dead")),
)  # there are no series
_CANCELS = tuple(outcome.removeprefix("cancel_") for outcome in CANCEL_OUTCOMES)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the account: the expected and the found number (None: unknown)."""

    label: str
    expected: int
    found: int | None

    @property
    def agrees(self) -> bool:
        """Whether both are the same."""
        return self.expected == self.found


def summary_counts(lines: Sequence[str]) -> dict[str, dict[str, int]]:
    """The wheel's own account, from the last summary in the job's output.

    Returns:
        `schedules` and `cancels`, each outcome to its count; empty where no summary was printed. With a slot store,
        what is near and what is far are added up as `pending`.
    """
    told = ledger.account_of_summary(lines)
    waiting = [told.pop(name) for name in ("pending", "near", "far") if name in told]
    cancels = {name.removeprefix("cancel_"): told.pop(name) for name in CANCEL_OUTCOMES if name in told}
    schedules = ({"pending": sum(waiting)} if waiting else {}) | told
    return {title: counts for title, counts in (("schedules", schedules), ("cancels", cancels)) if counts}


def take_account(
    flights: pd.DataFrame,
    commands: pd.DataFrame,
    fired: pd.DataFrame,
    rejects: int,
    told: Mapping[str, Mapping[str, int]],
) -> list[Line]:
    """Compares what came out with what the flights say must come out.

    Args:
        flights: Frame of :func:`jobs.demos.departures_data.read_flights`.
        commands: The prepared commands: schedule_id, op, seq, key, value.
        fired: Rows of the tables, columns :data:`FIRED_COLUMNS`; table is the one a row was found in.
        rejects: Number of rows of the rejects.
        told: The wheel's own counts, as :func:`summary_counts` gives them.

    Returns:
        The lines of the account, in reading order.
    """
    reminders = departures_data.expected_reminders(flights)
    must = departures_data.expected_outcomes(flights, reminders)
    cancels = must["applied"]
    schedules = must["fired"] + must["cancelled"] + must["superseded"]
    is_cancel = commands["op"] == "CANCEL"
    return [
        Line("commands in", schedules + cancels, len(commands)),
        Line("  schedules and replaces", schedules, int((~is_cancel).sum())),
        Line("  cancels", cancels, int(is_cancel.sum())),
        *_told_lines("schedules and replaces", schedules, must, _SCHEDULES, told.get("schedules")),
        *_told_lines("cancels", cancels, {"applied": cancels}, _CANCELS, told.get("cancels")),
        *_table_lines(reminders, commands, fired),
        Line("rows in the rejects", 0, rejects),
    ]


def _told_lines(
    title: str, total: int, must: Mapping[str, int], names: Sequence[str], told: Mapping[str, int] | None
) -> list[Line]:
    """What the wheel says became of the commands of one side."""
    counts = told or {}
    whole = Line(f"the wheel's account of {title}", total, sum(counts.values()) if told else None)
    return [whole, *(Line(f"  {name}", must.get(name, 0), counts.get(name)) for name in names)]


def _table_lines(reminders: pd.DataFrame, commands: pd.DataFrame, fired: pd.DataFrame) -> list[Line]:
    """What the tables hold, as counts and row by row."""
    exact = ["schedule_id", "seq", "deliver_at_ms", "destination"]
    both = reminders.merge(fired[exact].drop_duplicates(), on=exact, how="outer", indicator=True)["_merge"]
    sent = fired.merge(commands, on=["schedule_id", "seq"], how="left", suffixes=("", "_sent"))
    changed = (sent["key"] != sent["key_sent"]) | (sent["value"] != sent["value_sent"])
    late_ms = fired["fired_at_ms"] - fired["deliver_at_ms"]
    counts = fired["table"].value_counts()
    other = int(counts.drop(list(TABLES), errors="ignore").sum())
    return [
        Line("reminders in the tables", len(reminders), len(fired)),
        *(Line(f"  {table}", _rows_for(reminders, table), int(counts.get(table, 0))) for table in TABLES),
        Line("  same id, seq, due time and destination", len(reminders), int((both == "both").sum())),
        Line("  missing", 0, int((both == "left_only").sum())),
        Line("  not expected", 0, int((both == "right_only").sum())),
        Line(
            "  in another table than they name",
            0,
            other + int((fired["table"] != fired["destination"]).sum()),
        ),
        Line("  early", 0, int((late_ms < 0).sum())),
        Line("  with a wrong lateness", 0, int((late_ms != fired["lateness_ms"]).sum())),
        Line(
            "  twice", 0, int(fired["schedule_id"].duplicated().sum() + fired["fire_id"].duplicated().sum())
        ),
        Line("  with another key or value than was sent", 0, int(changed.sum())),
    ]


def _rows_for(reminders: pd.DataFrame, table: str) -> int:
    return int((reminders["destination"] == table).sum())


def render(lines: Sequence[Line]) -> str:
    """The account as a table of text."""
    width = max(len(line.label) for line in lines)
    rows = [f"{'':{width}}  {'expected':>10}  {'found':>10}"]
    for line in lines:
        found = "unknown" if line.found is None else f"{line.found:,}"
        rows.append(
            f"{line.label:{width}}  {line.expected:>10,}  {found:>10}  {'ok' if line.agrees else 'MISMATCH'}"
        )
    return "\n".join(rows)


def per_hour(fired: pd.DataFrame) -> pd.DataFrame:
    """Reminders by the hour of day, local time of New York, in which they were due.

    Args:
        fired: Columns table and deliver_at_ms.

    Returns:
        One row per hour 0 to 23, one int64 column per airport.
    """
    hours = (
        pd.to_datetime(fired["deliver_at_ms"], unit="ms", utc=True)
        .dt.tz_convert(departures_data.LOCAL_ZONE)
        .dt.hour
    )
    counts = pd.crosstab(hours, fired["table"].str.removeprefix("reminders_"))
    return counts.reindex(index=range(24), columns=list(departures_data.AIRPORTS), fill_value=0).astype(
        "int64"
    )


def draw(counts: pd.DataFrame, path: Path) -> Path:
    """Draws the counts of :func:`per_hour` as a line per airport into a PNG, and returns its path."""
    from matplotlib.figure import Figure  # no pyplot: no display, no global state

    figure = Figure(figsize=(10, 5.6), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for airport, colour, mark in zip(
        counts.columns, ("#0072B2", "#D55E00", "#009E73"), ("o", "s", "^"), strict=True
    ):
        label = f"{airport}  ({counts[airport].sum():,})"
        axes.plot(
            counts.index, counts[airport], color=colour, marker=mark, markersize=5, linewidth=2, label=label
        )
    total = int(counts.to_numpy().sum())
    axes.set_title(
        f"{total:,} reminders, half an hour before each departure from New York in 2013", loc="left", pad=12
    )
    axes.set_xlabel("hour of day in which the reminder was due (local time of New York)")
    axes.set_ylabel("reminders in the year")
    axes.set_xticks(range(24), [f"{hour:02d}" for hour in range(24)])
    axes.set_xlim(-0.5, 23.5)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="y", color="#dddddd")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(title="airport (reminders)", frameon=False, loc="upper left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight", pad_inches=0.2)
    return path
