"""The values for the templates: figures in words, numbers and charts, as plain dictionaries.

In: the latest figures (:class:`~wheel_udf.page.reader.Figure`) and the wall clock. Out: one dictionary for each card,
drawn by the template of its name. Each has a ``source``: how old its figures are, what they cost, and whether they are
exact or from metadata. The tiles: :mod:`wheel_udf.page.tiles`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from wheel_udf.common.outcomes import (
    CANCEL_OUTCOMES,
    EVENT_COUNTS,
    FIRE_OUTCOMES,
    OCCURRENCE_COUNTS,
    OPERATION_OUTCOMES,
    RETRIED,
    SCHEDULE_OUTCOMES,
)
from wheel_udf.page import charts
from wheel_udf.page.hour import MINUTE_MS
from wheel_udf.page.subject import Subject
from wheel_udf.page.tiles import Figures, clock_ms, source, state, tiles, value_of
from wheel_udf.page.words import bytes_text, count_text, until_text, when_text

_MOST_DESTINATIONS: Final = 12
_STORE_COUNTS: Final = "from metadata: replaced and cancelled entries count until their window is handed over"


def overview(subject: Subject, figures: Figures, now_ms: int) -> dict[str, Any]:
    """All cards of the first page."""
    return {
        "state": state(subject, figures, now_ms),
        "tiles": tiles(subject, figures, now_ms),
        "wheel": wheel(subject, figures, now_ms),
        "forecast": forecast(subject, figures, now_ms),
        "next_due": next_due(subject, figures, now_ms),
        "destinations": destinations(subject, figures, now_ms),
        "hour": hour(subject, figures, now_ms),
        "rejects": rejects(figures, now_ms),
        "account": account(subject, figures, now_ms),
    }


def wheel(subject: Subject, figures: Figures, now_ms: int) -> dict[str, Any]:
    """The heat map of levels and slots."""
    found, store = value_of(figures, "wheel"), value_of(figures, "store")
    kind = "state exact, store from metadata" if subject.is_tiered else "exact"
    card: dict[str, Any] = {"source": source(figures["wheel"], now_ms, kind), "map": None, "notes": []}
    if found is None:
        return card
    if found["clock_ms"] is not None or (store and store["windows"]):
        windows = store["windows"] if store else ()
        now = clock_ms(subject, found, now_ms)
        card["map"] = charts.heat_map(subject.geometry, now, found["cells"], windows)
    if store is not None:
        card["notes"].append(
            f"store: {count_text(store['rows'])} rows in {count_text(store['files'])} files, "
            f"{bytes_text(store['bytes'])}, {_STORE_COUNTS}"
        )
        if store["inbox"]:
            card["notes"].append(
                f"{count_text(store['inbox'])} rows are in the store's inbox, not in a slot yet"
            )
    if found["resting"] or found["held"]:
        resting, held = count_text(found["resting"]), count_text(found["held"])
        card["notes"].append(f"outside the wheel: {resting} resting between two generations, {held} held")
    if found["paused"]:
        card["notes"].append(f"outside the wheel: {count_text(found['paused'])} paused series")
    return card


def _series(
    subject: Subject, figures: Figures, now_ms: int
) -> tuple[dict[str, dict[int, int]] | None, dict[str, Any]]:
    """Pending by destination and step, and the source of it; None before the first reading."""
    found, exact, store = (value_of(figures, name) for name in ("wheel", "exact", "store"))
    if found is None:
        return None, source(figures["wheel"], now_ms)
    if exact is not None:
        return _named(exact), source(figures["exact"], now_ms)
    near = _named(found)
    if not subject.is_tiered:
        return near, source(figures["wheel"], now_ms)
    if store is None or found["clock_ms"] is None or not store["windows"]:
        return near, source(figures["wheel"], now_ms, "near entries only; the store is being counted")
    far = charts.spread(store["windows"], found["clock_ms"])
    series = near | {"in the store (all destinations)": far}
    return series, source(figures["wheel"], now_ms, _STORE_COUNTS)


def _named(found: Mapping[str, Any]) -> dict[str, dict[int, int]]:
    return {name or "(none)": counts for name, counts in found["steps"].items()}


def forecast(subject: Subject, figures: Figures, now_ms: int) -> dict[str, Any]:
    """The forecast: rows by due time."""
    series, about = _series(subject, figures, now_ms)
    if series is None:
        return {"source": about, "chart": None}
    base = value_of(figures, "exact") or value_of(figures, "wheel") or {}
    return {"source": about, "chart": charts.forecast(series, base.get("clock_ms") or now_ms)}


def next_due(subject: Subject, figures: Figures, now_ms: int) -> dict[str, Any]:
    """The entries that are due next. In the tiered mode those of the state that are due before the store's cursor: what
    is in the store is due after it.
    """
    found, store = value_of(figures, "wheel"), value_of(figures, "store")
    kind = "exact, of the near entries" if subject.is_tiered else "exact"
    card: dict[str, Any] = {"source": source(figures["wheel"], now_ms, kind), "rows": None, "note": None}
    if found is None:
        return card
    rows = found["next"]
    if store is not None and store["rows"] and store["cursor_ms"] is not None:
        rows = [row for row in rows if row["due_ms"] < store["cursor_ms"]]
        far, since = count_text(store["rows"]), when_text(store["cursor_ms"])
        card["note"] = f"in the store: {far} rows, due at {since} UTC or later; not in this list"
    now = clock_ms(subject, found, now_ms)
    return card | {"rows": [row | {"in": until_text(row["due_ms"], now)} for row in rows]}


def destinations(subject: Subject, figures: Figures, now_ms: int) -> dict[str, Any]:
    """Pending by destination, the most first."""
    series, about = _series(subject, figures, now_ms)
    if series is None:
        return {"source": about, "rows": None}
    totals = [(name, sum(counts.values())) for name, counts in series.items()]
    rows = sorted(((name, rows) for name, rows in totals if rows), key=lambda each: (-each[1], each[0]))
    return {
        "source": about,
        "rows": rows[:_MOST_DESTINATIONS],
        "more": max(len(rows) - _MOST_DESTINATIONS, 0),
    }


def hour(subject: Subject, figures: Figures, now_ms: int) -> dict[str, Any]:
    """Throughput and lateness of the last hour."""
    found = value_of(figures, "batches")
    card: dict[str, Any] = {"source": source(figures["batches"], now_ms), "is_empty": found is not None}
    if found is None or not found["batches"]:
        return card
    minutes = [
        minute | {"name": when_text(found["from_ms"] + place * MINUTE_MS)[11:16]}
        for place, minute in enumerate(found["minutes"])
    ]
    card |= {
        "is_empty": False,
        "minutes": minutes,
        "rows": charts.count_axis(max(max(minute["fired"], minute["received"]) for minute in minutes)),
    }
    if found["p99_ms"] is None:
        return card
    spans = charts.span_axis(max(minute["max_ms"] or 0 for minute in minutes))
    return card | {
        "spans": spans,
        "lines": {
            name: charts.line_path([minute[f"{name}_ms"] for minute in minutes], spans["top"])
            for name in ("p50", "p99", "max")
        },
        "in_data_time": subject.clock_kind != "processing",
    }


def account(subject: Subject, figures: Figures, now_ms: int) -> dict[str, Any]:
    """The outcomes of all commands since the checkpoint began."""
    found = value_of(figures, "wheel")
    card: dict[str, Any] = {"source": source(figures["wheel"], now_ms), "groups": None}
    if found is None:
        return card
    waits, counts = ("pending", found["pending"] + found["far"]), found["counts"]
    outcomes: dict[str, tuple[str, ...]] = {"schedules": SCHEDULE_OUTCOMES, "cancels": CANCEL_OUTCOMES}
    if subject.is_purgatory:
        outcomes = {"operations": OPERATION_OUTCOMES, "events": EVENT_COUNTS}
    groups = {name: [(word, counts[word]) for word in words] for name, words in outcomes.items()}
    first = next(iter(groups))
    if any(counts.get(name) for name in FIRE_OUTCOMES):
        groups["fires"] = [(name.removeprefix("fire_"), counts[name]) for name in FIRE_OUTCOMES]
    if any(counts.get(name) for name in OCCURRENCE_COUNTS):
        groups["occurrences"] = [
            (name.removeprefix("occurrences_"), counts[name]) for name in OCCURRENCE_COUNTS
        ]
    more = {
        "are of a further generation of a join or heartbeat": counts.get("generations", 0),
        "are of entries that came back, because they could not be delivered": counts.get(RETRIED, 0),
    }
    notes = [f"{count_text(count)} of these outcomes {what}." for what, count in more.items() if count]
    return card | {"groups": groups | {first: [waits, *groups[first]]}, "notes": notes}


# ---- the other pages -----------------------------------------------------------------------------


def rejects(figures: Figures, now_ms: int) -> dict[str, Any]:
    """Rejects by code, with samples."""
    none_yet = {"source": source(figures["rejects"], now_ms), "codes": None}
    return none_yet | (value_of(figures, "rejects") or {})


def audit(figures: Figures, now_ms: int) -> dict[str, Any]:
    """The acts, the latest first."""
    return {"source": source(figures["acts"], now_ms), "acts": None} | (value_of(figures, "acts") or {})
