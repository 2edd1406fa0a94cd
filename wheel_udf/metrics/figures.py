"""The figures of a job: takes reports and progress, and gives the samples of all metrics at an instant. Needs no
Prometheus.

::

    BatchReport, Progress --> Figures --samples(now)--> (Metric, labels, value) ...

Ages are computed for each request, not at the end of a batch: they grow while a job stands still.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from wheel_udf.delivery.report import BatchReport
from wheel_udf.metrics import names
from wheel_udf.metrics.health import age_ms
from wheel_udf.metrics.lines import WHEEL, Progress
from wheel_udf.metrics.names import Metric
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
Sample = tuple[Metric, tuple[str, ...], Value]
"""(metric, values of its labels, value)."""


class Figures:
    """The figures of a job. One thread at a time: the meter locks.

    Args:
        info: Values of the labels of :data:`wheel_udf.metrics.names.INFO`.
    """

    def __init__(self, info: tuple[str, ...]) -> None:
        self._info = info
        self._report: BatchReport | None = None
        self._account: BatchReport | None = None
        self._sums: Counter[str] = Counter()
        self._codes: Counter[str] = Counter()
        self._batches: Counter[str] = Counter()
        self._newest = -1
        self._ended_ms: dict[str, int] = {}
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
        for name in ("received", "fired", "undeliverable"):
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
        """As :attr:`wheel_udf.metrics.health.Vitals.oldest_due_since_ms`."""
        return self._due_since_ms

    def _end(self, query: str, at_ms: int) -> None:
        self._batches[query] += 1
        self._ended_ms[query] = at_ms

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
        yield names.INFO, self._info, 1
        yield from _each(names.BATCHES, self._batches)
        yield from _each(names.LAST_BATCH, {name: at_ms / 1_000 for name, at_ms in self._ended_ms.items()})
        yield from _each(names.BATCH_SECONDS, self._whole)
        yield from ((names.PHASE_SECONDS, labels, spent) for labels, spent in self._phases.items())
        yield names.RECEIVED, (), self._sums["received"]
        yield names.FIRED, (), self._sums["fired"]
        yield names.UNDELIVERABLE, (), self._sums["undeliverable"]
        yield from _each(names.REJECTED, self._codes)
        yield names.LATENESS, (), self._lateness
        if self._account is not None:
            yield from _account(self._account)
        if self._report is not None:
            yield from _now(self._report, now_ms)
            yield from _held(self._report)
            yield names.OLDEST_DUE, (), age_ms(self._due_since_ms, now_ms) / 1_000


def _each(metric: Metric, values: Mapping[str, Value]) -> Iterator[Sample]:
    return ((metric, (label,), value) for label, value in values.items())


def _account(report: BatchReport) -> Iterator[Sample]:
    """The outcomes of the commands, since the checkpoint began."""
    metric_of = {
        "schedules": (names.SCHEDULES, ""),
        "cancels": (names.CANCELS, "cancel_"),
        "operations": (names.OPERATIONS, ""),
        "events": (names.EVENTS, "event_"),
    }
    for title, outcomes in report.accounts.items():
        metric, prefix = metric_of[title]
        counts = {name.removeprefix(prefix): report.counts.get(name, 0) for name in outcomes}
        if title == "events":
            counts["used"] = counts.pop("events")
        if metric in (names.SCHEDULES, names.OPERATIONS):
            more = report.counts.get("generations", 0)
            yield names.SCHEDULED, (), report.pending + sum(counts.values()) - more
        yield from _each(metric, counts)


def _now(report: BatchReport, now_ms: int) -> Iterator[Sample]:
    """The state of the job after its last batch."""
    instants = {names.CLOCK_LAG: report.clock_ms, names.WATERMARK_LAG: report.watermark_ms}
    for metric, at_ms in instants.items():
        if at_ms is not None:
            yield metric, (), (now_ms - at_ms) / 1_000
    yield names.BACKLOG, (), int(report.backlog)
    yield names.PAUSED, (), int(report.paused)
    yield from _each(names.LIMIT_USED, report.full)


def _held(report: BatchReport) -> Iterator[Sample]:
    """Pending entries, by place."""
    held, store = report.held, report.store
    near = report.pending - (report.far or 0)
    yield names.PENDING, ("state",), near
    yield from (
        (names.PENDING_BY_LEVEL, ("state", str(level)), rows) for level, rows in held.by_level.items()
    )
    yield from _each(names.PENDING_BY_DELAY_LEVEL, report.levels)
    if report.in_flight is not None:
        yield names.IN_FLIGHT, (), report.in_flight
    for name, rows in report.by_destination.items():
        yield names.PENDING_BY_DESTINATION, (OTHER_DESTINATIONS if name == OTHERS else name,), rows
    soon = {} if store is None else store.due_within
    for within, rows in held.due_within.items():
        yield names.DUE_WITHIN, (within,), rows + soon.get(within, 0)
    yield names.STATE_ROWS, ("pending",), near
    yield names.STATE_ROWS, ("remembered",), held.remembered
    yield names.STATE_BYTES, (), held.bytes
    if store is not None:
        yield names.PENDING, ("store",), report.far or 0
        yield from (
            (names.PENDING_BY_LEVEL, ("store", level), rows) for level, rows in store.by_level.items()
        )
        yield from _each(names.HANDED_OVER, store.handed_over)
        yield names.STORE_FILES, (), store.files
        yield names.STORE_BYTES, (), store.bytes
