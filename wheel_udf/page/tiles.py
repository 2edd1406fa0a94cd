"""The top of the first page: state and key figures of the job; age and kind of figures, for all cards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from wheel_udf.page.reader import Figure
from wheel_udf.page.subject import Subject
from wheel_udf.page.words import count_text, span_text, until_text, when_text

Figures = Mapping[str, Figure]

_FRESH_MS: Final = 60_000


def source(figure: Figure, now_ms: int, kind: str = "exact") -> dict[str, Any]:
    """The age and quality of the figures of a card.

    Returns:
        ``kind``, ``age`` and ``took`` as text (None before the first reading), ``error`` as a sentence.
    """
    known = figure.at_ms is not None
    age = span_text(max(now_ms - (figure.at_ms or 0), 0) // 1_000 * 1_000) if known else None
    return {
        "kind": kind,
        "age": "just now" if age == "0 ms" else f"{age} ago" if age else None,
        "took": span_text(figure.took_ms) if known else None,
        "error": figure.error,
    }


def value_of(figures: Figures, name: str) -> dict[str, Any] | None:
    """The latest value of a reading; None before the first one, and if the job has no such reading."""
    return figures[name].value if name in figures else None


def state(subject: Subject, figures: Figures, now_ms: int) -> dict[str, Any]:
    """Whether the job runs, its clock, and what is wrong."""
    found, recent = value_of(figures, "wheel"), value_of(figures, "batches")
    word = "reading" if found is None else "running" if found["runs"] else "at rest"
    if found is None and figures["wheel"].error is not None:
        word = "not readable"
    if recent is not None and recent["paused"] and word == "running":
        word = "intake paused"
    return {
        "word": word,
        "clock": when_text(found["clock_ms"]) if found else "-",
        "now": when_text(now_ms),
        "kind": subject.clock_kind,
        "errors": sorted({figure.error for figure in figures.values() if figure.error is not None}),
    }


def clock_ms(subject: Subject, found: Mapping[str, Any], now_ms: int) -> int:
    """The clock from which due times are shown: the wall clock of a wheel that follows it, else the wheel's own."""
    own = found["clock_ms"]
    return now_ms if own is None or subject.clock_kind == "processing" else int(own)


def tiles(subject: Subject, figures: Figures, now_ms: int) -> list[dict[str, str]]:
    """The numbers at the top: label, value, note."""
    return [
        _pending_tile(subject, figures, now_ms),
        _next_tile(subject, figures, now_ms),
        *_hour_tiles(subject, figures),
        _rejects_tile(figures),
    ]


def _tile(label: str, value: str = "-", note: str = "") -> dict[str, str]:
    return {"label": label, "value": value, "note": note}


def _pending_tile(subject: Subject, figures: Figures, now_ms: int) -> dict[str, str]:
    found = value_of(figures, "wheel")
    if found is None:
        return _tile("pending")
    if not subject.is_tiered:
        outside = {name: found[name] for name in ("resting", "held", "paused")}
        note = ", ".join(f"{count_text(rows)} {name}" for name, rows in outside.items() if rows)
        return _tile("pending", count_text(found["pending"]), note or f"{subject.noun}, exact")
    near, store, exact = found["pending"], value_of(figures, "store"), figures["exact"]
    far = "-" if store is None else count_text(store["rows"])
    parts = f"near {count_text(near)} exact, store {far} from metadata"
    if exact.value is not None and now_ms - (exact.at_ms or 0) < _FRESH_MS:
        return _tile("pending", count_text(exact.value["rows"]), f"exact; {parts}")
    return _tile("pending", "-" if store is None else count_text(near + store["rows"]), parts)


def _next_tile(subject: Subject, figures: Figures, now_ms: int) -> dict[str, str]:
    found = value_of(figures, "wheel")
    if found is None:
        return _tile("next due")
    due_ms, store = found["next_due_ms"], value_of(figures, "store")
    since_ms = min((start_ms for _, start_ms, _, _ in store["windows"]), default=None) if store else None
    if since_ms is not None and (due_ms is None or since_ms < due_ms):
        at_ms = clock_ms(subject, found, now_ms)
        return _tile("next due", until_text(max(since_ms, at_ms), at_ms), "not before; in the store")
    if due_ms is None:
        is_empty = not found["pending"] and not (store and store["rows"])
        return _tile(
            "next due", "nothing" if is_empty else "-", "nothing is pending" if is_empty else "not known"
        )
    return _tile("next due", until_text(due_ms, clock_ms(subject, found, now_ms)), f"{when_text(due_ms)} UTC")


def _hour_tiles(subject: Subject, figures: Figures) -> list[dict[str, str]]:
    found = value_of(figures, "batches")
    if found is None:
        return [_tile("fired, last hour"), _tile("lateness p99, last hour")]
    note = f"in {count_text(found['batches'])} batches; {count_text(found['received'])} received"
    late = "-" if found["p99_ms"] is None else span_text(found["p99_ms"])
    time = "of the wall clock" if subject.clock_kind == "processing" else "of data time"
    return [
        _tile("fired, last hour", count_text(found["fired"]), note),
        _tile("lateness p99, last hour", late, f"the worst minute, {time}"),
    ]


def _rejects_tile(figures: Figures) -> dict[str, str]:
    found = value_of(figures, "rejects")
    if found is None:
        return _tile("rejects")
    if "elsewhere" in found:
        return _tile("rejects", "-", f"not in a table ({found['elsewhere']})")
    codes = found["codes"]
    note = f"most: {next(iter(codes))}" if codes else "all commands were usable"
    return _tile("rejects", count_text(sum(codes.values())), note)
