"""What ``wheel-udf top`` shows, as lines of text, from two looks at a job's status (:mod:`wheel_udf.metrics.meter`).

::

    status now, status some seconds before --> rates      in 1,980/s, out 2,010/s
    status now                             --> panels     pending, lateness, what is held back, ...
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from wheel_udf.common.instants import instant_text
from wheel_udf.common.outcomes import BREAKER_STATES
from wheel_udf.delivery.progress import duration_text

_BAR: Final = 24
_MOST_LINES: Final = 8
_LOST: Final = {
    "undeliverable": "wheel_undeliverable_total",
    "came back": "wheel_returned_total",
    "dead letters": "wheel_dead_letters_total",
}


@dataclass(frozen=True)
class Panel:
    """Some lines under a title."""

    title: str
    lines: Sequence[str]


class Status:
    """A look at a job.

    Args:
        found: What ``GET /v1/status`` has returned.
    """

    def __init__(self, found: Mapping[str, Any]) -> None:
        self.at_ms: int = found["at_ms"]
        self.unhealthy: str | None = found["unhealthy"]
        self.last: Mapping[str, Any] = found["last"] or {}
        self._values: dict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
        for name, labels, value in found["samples"]:
            self._values[name][tuple(labels)] = value

    def one(self, name: str, *labels: str) -> float | None:
        """A sample; None if the job has not reported it yet."""
        return self._values[name].get(labels)

    def each(self, name: str) -> dict[str, float]:
        """The samples of a metric by their last label."""
        return {labels[-1]: value for labels, value in self._values[name].items()}

    def labels(self, name: str) -> tuple[str, ...]:
        """The labels of a metric with one sample."""
        return next(iter(self._values[name]), ())


def headline(now: Status) -> str:
    """What the job is, and how it is."""
    name, mode, clock, version = now.labels("wheel_info") or ("", "", "", "")
    health = "healthy" if now.unhealthy is None else f"NOT HEALTHY: {now.unhealthy}"
    return f"{name}  {mode}, {clock} clock, wheel-udf {version}  {health}"


def panels(now: Status, before: Status, acts: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """The panels of a screen.

    Args:
        now: The last look.
        before: An earlier one, from which rates are computed; the same one: there are none.
        acts: The acts so far, in order.
    """
    return [
        Panel("rates", _rates(now, before)),
        Panel("lateness", _lateness(now)),
        Panel("pending", _pending(now)),
        Panel("by level", _by_level(now)),
        Panel("held back", _held_back(now)),
        Panel("rejects", _rejects(now)),
        Panel("last acts", [_act_line(act) for act in acts[-5:][::-1]] or ["none"]),
    ]


def _rates(now: Status, before: Status) -> list[str]:
    seconds = (now.at_ms - before.at_ms) / 1_000
    found = []
    for title, metric in (("in", "wheel_received_total"), ("out", "wheel_fired_total")):
        count, earlier = now.one(metric), before.one(metric)
        if count is not None and earlier is not None:
            rate = "-" if seconds <= 0 else f"{(count - earlier) / seconds:,.0f}/s"
            found.append(f"{title:<4}{rate:>12}   {count:,.0f} in this run")
    seconds_of_batch = now.last.get("seconds")
    if seconds_of_batch is not None:
        phases = sorted((now.last.get("phases") or {}).items(), key=lambda each: -each[1])
        longest = ", ".join(f"{name} {spent:.2f}" for name, spent in phases[:2])
        found.append(f"batch {now.last['batch_id']} took {seconds_of_batch:.2f} s ({longest})")
    return found or ["no batch has ended yet"]


def _lateness(now: Status) -> list[str]:
    late = now.last.get("lateness")
    found = []
    if late is not None:
        spans = ", ".join(f"{name} {duration_text(late[f'{name}_ms'])}" for name in ("p50", "p99", "max"))
        of = (
            "data time after due"
            if now.labels("wheel_info")[2:3] in (("event",), ("simulated",))
            else "last batch"
        )
        found.append(f"{of}  {spans}, of {late['count']:,}")
    oldest_s = now.one("wheel_oldest_due_age_seconds")
    if oldest_s:
        found.append(f"the oldest due entry waits for {duration_text(round(oldest_s * 1_000))}")
    lag_s = now.one("wheel_clock_lag_seconds")
    if lag_s is not None:
        found.append(f"the clock is {duration_text(round(max(lag_s, 0) * 1_000))} behind now")
    return found or ["nothing has been released yet"]


def _pending(now: Status) -> list[str]:
    found = [f"{place:<7}{rows:>14,.0f}" for place, rows in now.each("wheel_pending").items()]
    next_ms = now.last.get("next_due_ms")
    if next_ms is not None:
        wait_ms = next_ms - now.at_ms
        when = "now" if wait_ms <= 0 else f"in {duration_text(wait_ms)}"
        found.append(f"next due {instant_text(next_ms)}, {when}")
    soon = ", ".join(f"{name} {rows:,.0f}" for name, rows in now.each("wheel_due_within").items())
    return [*found, *([f"due within {soon}"] if soon else [])] or ["nothing"]


def _by_level(now: Status) -> list[str]:
    rows = {level: count for level, count in now.each("wheel_pending_by_level").items() if count}
    most = max(rows.values(), default=1)
    return [
        f"{level:>2} {'█' * max(1, round(count / most * _BAR)):<{_BAR}} {count:,.0f}"
        for level, count in sorted(rows.items(), key=lambda each: int(each[0]))
    ] or ["no entries"]


def _held_back(now: Status) -> list[str]:
    found = []
    if now.one("wheel_backlog"):
        found.append("due entries wait: more than fired_per_batch")
    if now.one("wheel_intake_paused"):
        found.append("the intake is paused: a limit is reached")
    in_flight = now.one("wheel_in_flight")
    if in_flight is not None:
        found.append(f"in flight {in_flight:,.0f}")
    breakers, held = now.each("wheel_breaker_state"), now.each("wheel_held_rows")
    found += [f"{name}: breaker {BREAKER_STATES[int(state)]}" for name, state in breakers.items() if state]
    found += [f"{name}: {rows:,.0f} wait for their turn" for name, rows in held.items() if rows]
    full = now.each("wheel_limit_used_ratio")
    found += [f"limit {name}: {ratio:.0%} used" for name, ratio in full.items()]
    return found[:_MOST_LINES] or ["nothing"]


def _rejects(now: Status) -> list[str]:
    found = [f"{code:<22}{rows:>10,.0f}" for code, rows in now.each("wheel_rejected_total").items() if rows]
    found += [f"{title:<22}{rows:>10,.0f}" for title, name in _LOST.items() if (rows := now.one(name))]
    return found[:_MOST_LINES] or ["none"]


def _act_line(act: Mapping[str, Any]) -> str:
    what = " ".join(str(act[name]) for name in ("act", "change", "picked") if act.get(name))
    rows = f"{act['rows']:,}" if act.get("rows") is not None else "?"
    return f"{str(act.get('at', ''))[:19]}  {what}: {rows}, by {act.get('by', '?')}"
