"""The figures of a job: takes reports and progress, and gives the samples of all metrics at an instant. Needs no
Prometheus.

::

    BatchReport, Progress --> Figures --samples(now)--> (name, labels, value) ...

Ages are computed for each request, not at the end of a batch: they grow while a job stands still.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from wheel_udf.common.outcomes import BREAKER_STATES, RETRIED
from wheel_udf.delivery.report import BatchReport
from wheel_udf.metrics.health import age_ms
from wheel_udf.metrics.lines import WHEEL, Progress
from wheel_udf.shard.holdings import OTHERS
from wheel_udf.wheel.lateness import LatenessHistogram

OTHER_DESTINATIONS = "(other)"
"""The label of all destinations but the largest; no destination can have this name."""


@dataclass(frozen=True, slots=True)
class Spent:
    """A summary: a number of durations, and their sum.

    Attributes:
        count: How many.
        seconds: Their sum.
    """

    count: int = 0
    seconds: float = 0.0

    def __add__(self, more: float) -> Spent:
        return Spent(self.count + 1, self.seconds + more)


Value = float | Spent | LatenessHistogram
Sample = tuple[str, tuple[str, ...], Value]
"""(name of a metric of ``metrics.toml``, values of its labels, value)."""


class Figures:
    """The figures of a job. One thread at a time: the meter locks.

    Args:
        info: Values of the labels of ``wheel_info``.
    """

    def __init__(self, info: tuple[str, ...]) -> None:
        self._info = info
        self._report: BatchReport | None = None
        self._account: BatchReport | None = None
        self._sums: Counter[str] = Counter()
        self._codes: Counter[str] = Counter(
            missed=0
        )  # there from the beginning, so that the first one is an increase
        self._batches: Counter[str] = Counter()
        self._newest = -1
        self._ended_s: dict[str, float] = {}
        self._lateness = LatenessHistogram()
        self._whole: dict[str, Spent] = {}
        self._phases: dict[tuple[str, str], Spent] = {}
        self._due_since_ms: int | None = None

    def add_report(self, report: BatchReport, at_ms: int) -> None:
        """Takes the report of a batch that ended at an instant of the wall clock."""
        self._due_since_ms = self._due_since(report, at_ms)
        self._report = report
        if report.complete:
            self._account = report
        if report.batch_id > self._newest:  # a repetition of a batch counts once
            self._newest = report.batch_id
            self._count(report)
            self._end(WHEEL, at_ms)

    def _count(self, report: BatchReport) -> None:
        for name in ("received", "fired", "undeliverable", "returned", "dead"):
            self._sums[name] += getattr(report, name)
        self._codes.update(report.codes)
        self._lateness = self._lateness.merge(report.lateness)

    def add_progress(self, progress: Progress, at_ms: int) -> None:
        """Takes Spark's progress of a batch."""
        query = progress.query
        if query != WHEEL:
            self._end(query, at_ms)
        if progress.seconds is not None:
            self._whole[query] = self._whole.get(query, Spent()) + progress.seconds
        for phase, seconds in progress.phases.items():
            self._phases[query, phase] = self._phases.get((query, phase), Spent()) + seconds

    @property
    def oldest_due_since_ms(self) -> int | None:
        """Wall clock since when the oldest pending entry is, or will be, due; None if nothing is pending, or it is not
        known.
        """
        return self._due_since_ms

    def _end(self, query: str, at_ms: int) -> None:
        self._batches[query] += 1
        self._ended_s[query] = at_ms / 1_000

    def _due_since(self, report: BatchReport, at_ms: int) -> int | None:
        if not report.in_data_time:
            return report.next_due_ms
        if not report.backlog:
            return None
        before = self._report
        is_same = before is not None and before.next_due_ms == report.next_due_ms
        return self._due_since_ms if is_same and self._due_since_ms is not None else at_ms

    # ---- samples -------------------------------------------------------------------------------------

    def samples(self, now_ms: int) -> Iterator[Sample]:
        """Yields the samples at an instant of the wall clock."""
        yield "wheel_info", self._info, 1
        yield from _each("wheel_batches_total", self._batches)
        yield from _each("wheel_last_batch_timestamp_seconds", self._ended_s)
        yield from _each("wheel_batch_seconds", self._whole)
        yield from (("wheel_batch_phase_seconds", labels, spent) for labels, spent in self._phases.items())
        yield "wheel_received_total", (), self._sums["received"]
        yield "wheel_fired_total", (), self._sums["fired"]
        yield "wheel_undeliverable_total", (), self._sums["undeliverable"]
        yield "wheel_returned_total", (), self._sums["returned"]
        yield "wheel_dead_letters_total", (), self._sums["dead"]
        yield from _each("wheel_rejected_total", self._codes)
        yield "wheel_lateness_seconds", (), self._lateness
        if self._account is not None:
            yield from _account(self._account)
        if self._report is not None:
            yield from _now(self._report, now_ms)
            yield from _held(self._report)
            yield "wheel_oldest_due_age_seconds", (), age_ms(self._due_since_ms, now_ms) / 1_000


def _each(metric: str, values: Mapping[str, Value]) -> Iterator[Sample]:
    return ((metric, (label,), value) for label, value in values.items())


def _account(report: BatchReport) -> Iterator[Sample]:
    """The outcomes of the commands, since the checkpoint began."""
    prefixes = {"cancels": "cancel_", "events": "event_", "fires": "fire_"}
    for title, outcomes in report.accounts.items():
        counts = {name.removeprefix(prefixes.get(title, "")): report.counts.get(name, 0) for name in outcomes}
        if title == "events":
            counts["used"] = counts.pop("events")
        if title in ("schedules", "operations"):
            # Outcomes that are not of further commands.
            more = report.counts.get("generations", 0) + report.counts.get(RETRIED, 0)
            yield "wheel_scheduled_total", (), report.pending + sum(counts.values()) - more
        yield from _each(f"wheel_{title}_total", counts)
    yield from _each("wheel_occurrences_total", report.occurrences)


def _now(report: BatchReport, now_ms: int) -> Iterator[Sample]:
    """The state of the job after its last batch."""
    instants = {
        "wheel_clock_lag_seconds": report.clock_ms,
        "wheel_watermark_lag_seconds": report.watermark_ms,
    }
    for metric, at_ms in instants.items():
        if at_ms is not None:
            yield metric, (), (now_ms - at_ms) / 1_000
    yield "wheel_backlog", (), int(report.backlog)
    yield "wheel_intake_paused", (), int(report.paused)
    yield from _each("wheel_limit_used_ratio", report.full)
    yield from _each(
        "wheel_breaker_state", {name: BREAKER_STATES.index(state) for name, state in report.breakers.items()}
    )


def _held(report: BatchReport) -> Iterator[Sample]:
    """Pending entries, by place."""
    held, store = report.held, report.store
    near = report.pending - (report.far or 0)
    yield "wheel_pending", ("state",), near
    yield from (
        ("wheel_pending_by_level", ("state", str(level)), rows) for level, rows in held.by_level.items()
    )
    yield from _each("wheel_pending_by_delay_level", report.levels)
    if held.last_due_ms is not None:
        yield "wheel_last_due_timestamp_seconds", (), held.last_due_ms / 1_000
    for name, rows in report.held_by.items():
        yield "wheel_held_rows", (OTHER_DESTINATIONS if name == OTHERS else name,), rows
    if report.in_flight is not None:
        yield "wheel_in_flight", (), report.in_flight
    for name, rows in report.by_destination.items():
        yield "wheel_pending_by_destination", (OTHER_DESTINATIONS if name == OTHERS else name,), rows
    soon = {} if store is None else store.due_within
    for within, rows in held.due_within.items():
        yield "wheel_due_within", (within,), rows + soon.get(within, 0)
    yield "wheel_state_rows", ("pending",), near
    yield "wheel_state_rows", ("remembered",), held.remembered
    yield "wheel_state_bytes", (), held.bytes
    if store is not None:
        yield "wheel_pending", ("store",), report.far or 0
        yield from (
            ("wheel_pending_by_level", ("store", level), rows) for level, rows in store.by_level.items()
        )
        yield from _each("wheel_handed_over_total", store.handed_over)
        yield "wheel_store_files", (), store.files
        yield "wheel_store_bytes", (), store.bytes
