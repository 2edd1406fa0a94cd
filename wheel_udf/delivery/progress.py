"""Texts about a batch for people: :func:`progress_line`, :func:`next_line`, and the durations in them."""

from __future__ import annotations

from wheel_udf.common.instants import instant_text
from wheel_udf.delivery.report import BatchReport


def progress_line(report: BatchReport) -> str:
    """Formats one aligned line about a batch (with a slot store, ``pending`` is ``near`` and ``far``).

    Example::

        batch    7 | in    1,000 | fired      250 | pending    12,000 | lateness p50  400 ms p99   1.0 s | clock ...

    Under an event or simulated clock lateness is labelled ``data time after due``. Unusual counts (rejected, missed,
    undeliverable rows, a backlog over the limit) are added only if they are not 0, and the use of limits, the entries
    of delay levels and those in flight only where there are any.
    """
    span = "data time after due" if report.in_data_time else "lateness"
    parts = [
        f"batch {report.batch_id:>5}",
        f"in {report.received:>8,}",
        f"ended {report.decided:>8,}" if report.purgatory else f"fired {report.fired:>8,}",
        " ".join(f"{word} {count:>9,}" for word, count in report.waiting.items()),
        f"{span} p50 {span_text(report.lateness.quantile(0.5)):>7} p99 {span_text(report.lateness.quantile(0.99)):>7}",
        f"clock {instant_text(report.clock_ms):<20}",
        f"watermark {instant_text(report.watermark_ms):<20}",
    ]
    unusual = {
        "rejected": report.rejected,
        "missed": report.missed,
        "undeliverable": report.undeliverable,
        "come back": report.returned,
        "dead letters": report.dead,
        "ids over several partitions": report.spread,
        "ambiguous, give seq": report.ambiguous,
        "refused over the limits": report.refused,
    }
    if report.in_flight is not None:
        parts.append(f"in flight {report.in_flight:,}")
    parts += [f"{noun} {count:,}" for noun, count in unusual.items() if count]
    if report.backlog and (report.fired or report.missed):
        parts.append("backlog over the limit")
    if resting := sorted(name for name, state in report.breakers.items() if state != "closed"):
        parts.append(f"resting {', '.join(resting)}")
    if report.levels:
        parts.append("levels " + " ".join(f"{name} {count:,}" for name, count in report.levels.items()))
    if report.full:
        parts.append("full " + " ".join(f"{bound} {part:.0%}" for bound, part in sorted(report.full.items())))
    if report.paused:
        parts.append("intake paused")
    return " | ".join(parts).rstrip()


def next_line(report: BatchReport, now_ms: int) -> str:
    """What a job on the wall clock waits for after a batch, as a sentence: ``4 pending, the next one is due at
    2026-01-01T10:31:20Z, in 1.6 min``.

    Args:
        report: The batch.
        now_ms: The wall clock (UTC epoch ms).
    """
    if report.next_due_ms is None:
        # Far entries of a store and paused series have no due time here.
        return f"{report.pending:,} pending, none of them near" if report.pending else "nothing is pending"
    wait_ms = report.next_due_ms - now_ms
    when = "now" if wait_ms <= 0 else f"at {instant_text(report.next_due_ms)}, in {duration_text(wait_ms)}"
    # Of what is in a store no single entry is known.
    which = "the next near one" if report.far else "the next one"
    return f"{report.pending:,} pending, {which} is due {when}"


def span_text(span_ms: int | None) -> str:
    """Formats a duration as :func:`duration_text`; ``-`` for None."""
    return "-" if span_ms is None else duration_text(span_ms)


def duration_text(span_ms: int) -> str:
    """Formats a duration in the largest readable unit: ``400 ms``, ``1.5 s``, ``2.0 h``, ``730.0 d``, ``2,029 y``."""
    if span_ms < 1000:
        return f"{span_ms} ms"
    for unit, unit_ms, upper_ms in (
        ("s", 1_000, 60_000),
        ("min", 60_000, 3_600_000),
        ("h", 3_600_000, 86_400_000),
        ("d", 86_400_000, 1_000 * 86_400_000),
    ):
        if span_ms < upper_ms:
            return f"{span_ms / unit_ms:.1f} {unit}"
    years = span_ms / (365.25 * 86_400_000)
    return f"{years:,.1f} y" if years < 1000 else f"{years:,.0f} y"
