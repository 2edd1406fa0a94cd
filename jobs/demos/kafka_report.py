"""The account of the Kafka demo for people: a table, a histogram in text, and the same as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jobs.demos.kafka_account import Account, quantile

_WIDEST_BAR = 50
_MOST_BINS = 24
_WIDTHS_MS = (50, 100, 200, 250, 500, 1_000, 2_000, 2_500, 5_000, 10_000, 30_000, 60_000)


def render(account: Account) -> str:
    """The counts as text; what has to be 0 and is not is marked."""
    faults = account.faults
    rows = [
        ("commands sent", account.commands, ""),
        ("  cancels", account.cancelled, ""),
        ("  replaces", account.replaced, ""),
        ("records received", account.records, ""),
        ("delivered", account.delivered, f"of {account.expected:,}"),
        ("missing", account.missing, "must be 0"),
        ("early", account.early, "must be 0"),
        (
            "duplicates with the same fire id",
            account.repeated_same_fire_id,
            "at least once: a consumer drops them",
        ),
        ("duplicates with another fire id", account.repeated_other_fire_id, "must be 0"),
        ("cancelled, delivered anyway", account.cancelled_anyway, "must be 0"),
        ("replaced, delivered anyway", account.replaced_anyway, "must be 0"),
        ("altered", account.altered, "must be 0: key, value, headers, topic, due time"),
        ("never sent", account.unknown, "must be 0"),
        ("rejects", account.rejects, "must be 0"),
    ]
    if account.undecided:
        rows.append(
            (
                "undecided",
                account.undecided,
                "cancelled or replaced too close to the due time: either outcome is right",
            )
        )
    if account.unsent:
        rows.append(("refused by the broker", account.unsent, "must be 0"))
    rows.append(
        (
            "mixed runs in a batch and partition",
            account.longest_fall,
            f"at most {account.shards}, one per shard",
        )
    )
    marked = faults | ({"mixed runs in a batch and partition": 1} if "out of order" in faults else {})
    return "\n".join(
        f"  {label:<36} {count:>7,}  {note}{'   <-- WRONG' if label.strip() in marked else ''}".rstrip()
        for label, count, note in rows
    )


def lateness_line(lateness_ms: Sequence[int]) -> str:
    """p50, p99, max and min of latenesses in ms, in seconds."""
    if not lateness_ms:
        return "lateness: nothing was delivered"
    p50, p99 = quantile(lateness_ms, 0.5), quantile(lateness_ms, 0.99)
    parts = {"p50": p50, "p99": p99, "max": max(lateness_ms), "min": min(lateness_ms)}
    return "lateness: " + "  ".join(f"{name} {ms / 1000:.2f} s" for name, ms in parts.items())


def bins(lateness_ms: Sequence[int]) -> tuple[int, list[int]]:
    """The width of a bin in ms and the count of each, from 0 up; a negative lateness counts in the first."""
    longest = max(lateness_ms, default=0)
    width_ms = next(
        (width for width in _WIDTHS_MS if longest < width * _MOST_BINS), longest // _MOST_BINS + 1
    )
    counts = [0] * (max(longest, 0) // width_ms + 1)
    for ms in lateness_ms:
        counts[max(0, ms) // width_ms] += 1
    return width_ms, counts


def histogram(lateness_ms: Sequence[int]) -> str:
    """A line for each bin; a bin that holds anything has a bar."""
    width_ms, counts = bins(lateness_ms)
    highest = max(counts) or 1
    return "\n".join(
        f"  {number * width_ms / 1000:>6.2f} s  {count:>7,}  {'#' * -(-count * _WIDEST_BAR // highest)}".rstrip()
        for number, count in enumerate(counts)
    )


def draw(lateness_ms: Sequence[int], path: Path) -> Path:
    """Draws the histogram with p50 and p99 into a PNG, and returns its path."""
    from matplotlib.figure import Figure  # no pyplot: no display, no global state

    width_ms, counts = bins(lateness_ms)
    figure = Figure(figsize=(10, 5.2), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    starts_s = [number * width_ms / 1000 for number in range(len(counts))]
    axes.bar(starts_s, counts, width=width_ms / 1000 * 0.95, align="edge", color="#0072B2")
    for share, colour in ((0.5, "#009E73"), (0.99, "#D55E00")):
        mark_s = quantile(lateness_ms, share) / 1000
        axes.axvline(mark_s, color=colour, linewidth=2, label=f"p{share * 100:.0f}  {mark_s:.2f} s")
    axes.set_title(
        f"{len(lateness_ms):,} deliveries: how long after its due time a consumer had each",
        loc="left",
        pad=12,
    )
    axes.set_xlabel("lateness in seconds (consumer's receipt minus due time)")
    axes.set_ylabel("deliveries")
    axes.set_xlim(left=min(0.0, min(lateness_ms, default=0) / 1000))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="y", color="#dddddd")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    # Above the plot: inside it would hide what lies late.
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight", pad_inches=0.2)
    return path
