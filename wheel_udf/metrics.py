"""What a batch did, told in one line, and what a run did, told in one account.

Three layers, from the executor up:

* :class:`LatenessHistogram` counts latenesses in geometric bins, so that the quantiles of any number of deliveries fit
  into a few hundred bytes, merge by addition and are off by at most 1 %. Pure numpy: it runs where the rows are.
* :class:`BatchReport` is the record of one micro-batch.
* :func:`progress_line` renders a report for a person, :class:`Summary` adds reports up and renders the final account.

Bins (the mapping of DDSketch, Masson, Rim and Lee, VLDB 2019): with the relative error e = 1 % and g = (1 + e) / (1 - e),
bin 0 holds the value 0 and bin i >= 1 holds ``(g^(i-2), g^(i-1)]`` ms; its representative ``2 g^(i-1) / (g + 1)`` is
within e of every value of the bin::

    ms      0   1   2    10    100    60_000   2^63-1
    bin     0   1   36   117   232    552      2185        (all int64 values fit: no cap, no overflow)

Minimum, maximum and count are kept exactly, and a quantile is never outside ``[minimum, maximum]``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

RELATIVE_ERROR = 0.01
_GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_LOG_GAMMA = math.log(_GAMMA)

SCHEDULE_OUTCOMES = ("fired", "missed", "cancelled", "superseded", "duplicate", "rejected")
"""How a schedule or replace ends; the seventh way, pending, is a gauge and not a count."""
CANCEL_OUTCOMES = ("applied", "waiting", "late", "cancel_superseded", "cancel_duplicate", "cancel_rejected")
"""How a cancel ends."""
OPERATION_OUTCOMES = ("completed", "expired", "cancelled", "duplicate", "rejected")
"""How an operation of the purgatory ends."""
EVENT_COUNTS = ("events", "event_rejected")
"""What is counted of its events."""


@dataclass(frozen=True, slots=True)
class LatenessHistogram:
    """Latenesses in milliseconds, counted in bins of 1 % relative width.

    Attributes:
        count: How many values were added.
        minimum_ms: The smallest of them, exactly; None if there is none.
        maximum_ms: The largest of them, exactly; None if there is none.
        bins: Bin number to count, only bins that hold something.
    """

    count: int = 0
    minimum_ms: int | None = None
    maximum_ms: int | None = None
    bins: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, lateness_ms: npt.ArrayLike) -> LatenessHistogram:
        """Counts latenesses.

        Args:
            lateness_ms: int64[n] in ms. The wheel never fires early, so a negative value is counted as 0.

        Returns:
            Their histogram; the empty one for n = 0.
        """
        values = np.maximum(np.asarray(lateness_ms, dtype=np.int64).ravel(), 0)
        if values.size == 0:
            return cls()
        numbers, counts = np.unique(_bins_of(values), return_counts=True)
        bins = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
        return cls(int(values.size), int(values.min()), int(values.max()), bins)

    def merge(self, other: LatenessHistogram) -> LatenessHistogram:
        """The histogram of both sets of values together."""
        if not other.count:
            return self
        if not self.count:
            return other
        bins = dict(self.bins)
        for number, count in other.bins.items():
            bins[number] = bins.get(number, 0) + count
        lowest, highest = self._range()
        other_lowest, other_highest = other._range()
        return LatenessHistogram(
            self.count + other.count,
            min(lowest, other_lowest),
            max(highest, other_highest),
            bins,
        )

    def quantile(self, q: float) -> int | None:
        """The q-quantile by nearest rank, within 1 %.

        Args:
            q: Between 0 (the minimum) and 1 (the maximum).

        Returns:
            Milliseconds, rounded; None if nothing was added.

        Raises:
            ValueError: If q is outside [0, 1].
        """
        if not 0 <= q <= 1:
            raise ValueError(f"a quantile is asked with q between 0 and 1, not {q}")
        if not self.count:
            return None
        lowest, highest = self._range()
        rank = max(1, math.ceil(q * self.count))
        if rank == 1:
            return lowest
        if rank == self.count:
            return highest
        seen = 0
        for number in sorted(self.bins):
            seen += self.bins[number]
            if seen >= rank:
                return min(max(_representative_ms(number), lowest), highest)
        raise AssertionError("the bins hold fewer values than the count says")

    def _range(self) -> tuple[int, int]:
        assert self.minimum_ms is not None
        assert self.maximum_ms is not None
        return self.minimum_ms, self.maximum_ms

    def to_json(self) -> str:
        """A compact text for a status row: ``{"n":3,"min":0,"max":90,"bins":[[0,2],[227,1]]}``."""
        return json.dumps(
            {
                "n": self.count,
                "min": self.minimum_ms,
                "max": self.maximum_ms,
                "bins": sorted(self.bins.items()),
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> LatenessHistogram:
        """The histogram that :meth:`to_json` wrote."""
        record = json.loads(text)
        return cls(record["n"], record["min"], record["max"], dict(record["bins"]))


def _bins_of(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    logs = np.log(np.maximum(values, 1).astype(np.float64)) / _LOG_GAMMA
    return np.where(values == 0, 0, np.ceil(logs).astype(np.int64) + 1)


def _representative_ms(number: int) -> int:
    if number == 0:
        return 0
    return round(2 * math.exp((number - 1) * _LOG_GAMMA) / (_GAMMA + 1))


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What one micro-batch did.

    Attributes:
        batch_id: Spark's number of the batch.
        received: Commands read by this batch, good and bad.
        fired: Rows released to their destinations by this batch, undeliverable ones included.
        missed: Rows released past their ``max_lateness``: they went to the rejects.
        rejected: Commands this batch refused.
        undeliverable: Fired rows that a sink refused: they went to the rejects.
        pending: Entries that wait in the wheel after this batch, over all shards. In the tiered mode far ones too; of these a replaced or
            cancelled one counts until the store has ended it.
        next_due_ms: Due time of the earliest of them (UTC epoch ms); None if nothing is pending.
        clock_ms: The wheel's clock after this batch (UTC epoch ms); None while it has none.
        watermark_ms: The event-time watermark this batch ran with (UTC epoch ms); None without one.
        lateness: Lateness of this batch's fired rows.
        counts: Outcomes since the checkpoint began, over all shards: the keys are :data:`SCHEDULE_OUTCOMES` and
            :data:`CANCEL_OUTCOMES`, of a purgatory :data:`OPERATION_OUTCOMES`, :data:`EVENT_COUNTS` and ``generations`` (of joins and
            heartbeats, those after their first); a missing key counts 0.
        held_input: Whether the batch read commands.
        backlog: Whether entries that are due had to stay because of the limit.
        complete: Whether every shard has told its counts since the query started; if not, ``pending`` and ``counts`` are
            those of the shards heard so far.
        spread: Ids whose versions were offsets of several partitions: which of them is the latest is not known.
        refused: Of the rejected, how many found no room under the limits.
        full: How much of each limit is used (1 is all), by its name: of the slots and destinations to which entries came last, the fullest.
        paused: Whether the intake rests because a limit is reached.
        levels: Of the pending entries, how many have which delay level, by its name (``30s``), shortest first; levels of none are left out.
        purgatory: Whether what waits are operations of a purgatory, and ``fired`` counts outcomes that were delivered.
        decided: Operations, or generations of them, that this batch has ended, whether that was delivered or only counted; of a wheel 0.
    """

    batch_id: int
    received: int
    fired: int
    missed: int
    rejected: int
    undeliverable: int
    pending: int
    next_due_ms: int | None
    clock_ms: int | None
    watermark_ms: int | None
    lateness: LatenessHistogram
    counts: dict[str, int]
    held_input: bool
    backlog: bool
    complete: bool = True
    spread: int = 0
    refused: int = 0
    full: Mapping[str, float] = field(default_factory=dict)
    paused: bool = False
    levels: Mapping[str, int] = field(default_factory=dict)
    purgatory: bool = False
    decided: int = 0

    @property
    def accounts(self) -> dict[str, tuple[str, ...]]:
        """What is accounted for, and as what it ends (beside what is pending)."""
        if self.purgatory:
            return {"operations": OPERATION_OUTCOMES, "events": EVENT_COUNTS}
        return {"schedules": SCHEDULE_OUTCOMES, "cancels": CANCEL_OUTCOMES}


def progress_line(report: BatchReport) -> str:
    """One aligned line about a batch: in, fired, pending, lateness, clock and watermark.

    Example::

        batch    7 | in    1,000 | fired      250 | pending    12,000 | lateness p50  400 ms p99   1.0 s | clock … | watermark …

    What is unusual (rejected, missed, undeliverable rows, a backlog over the limit) is added only when there is some, and how full the limits
    are only where there are limits; so is the pending of each delay level.
    """
    parts = [
        f"batch {report.batch_id:>5}",
        f"in {report.received:>8,}",
        f"ended {report.decided:>8,}" if report.purgatory else f"fired {report.fired:>8,}",
        f"pending {report.pending:>9,}",
        f"lateness p50 {_span(report.lateness.quantile(0.5)):>7} p99 {_span(report.lateness.quantile(0.99)):>7}",
        f"clock {instant_text(report.clock_ms):<20}",
        f"watermark {instant_text(report.watermark_ms):<20}",
    ]
    unusual = {
        "rejected": report.rejected,
        "missed": report.missed,
        "undeliverable": report.undeliverable,
        "ids over several partitions": report.spread,
        "refused over the limits": report.refused,
    }
    parts += [f"{noun} {count:,}" for noun, count in unusual.items() if count]
    if report.backlog:
        parts.append("backlog over the limit")
    if report.levels:
        parts.append("levels " + " ".join(f"{name} {count:,}" for name, count in report.levels.items()))
    if report.full:
        parts.append("full " + " ".join(f"{bound} {part:.0%}" for bound, part in sorted(report.full.items())))
    if report.paused:
        parts.append("intake paused")
    return " | ".join(parts).rstrip()


class Summary:
    """Adds the reports of a run up and renders its account.

    The outcomes are those of the checkpoint's whole life, as the last report tells them; received, fired and batches are this
    run's own. Two identities are checked (design: accounting):

    * commands: every command that came in is pending or has exactly one outcome. A run that goes on from a checkpoint checks what
      came in after its first complete report;
    * cancels: as many entries were cancelled as cancels were applied.
    """

    def __init__(self) -> None:
        self.batches = 0
        self.received = 0
        self.fired = 0
        self.missed = 0
        self.rejected = 0
        self.undeliverable = 0
        self.spread = 0
        self.lateness = LatenessHistogram()
        self.last: BatchReport | None = None
        self._accounted_before: int | None = None
        self._highest_batch_id = -1

    def add(self, report: BatchReport) -> None:
        """Adds a batch. A batch told twice (a replay within the run) counts once."""
        if report.batch_id <= self._highest_batch_id:
            return
        self._highest_batch_id = report.batch_id
        if report.batch_id == 0:
            self._accounted_before = 0
        self.batches += 1
        self.received += report.received
        self.fired += report.fired
        self.missed += report.missed
        self.rejected += report.rejected
        self.undeliverable += report.undeliverable
        self.spread += report.spread
        self.lateness = self.lateness.merge(report.lateness)
        self.last = report
        if self._accounted_before is None and report.complete:
            # A run that does not begin with batch 0 goes on from what earlier runs have accounted for.
            self._accounted_before = _accounted(report) - self.received

    @property
    def commands_close(self) -> bool:
        """Whether every command received is accounted for."""
        if self.last is None or self._accounted_before is None:
            return True
        return _accounted(self.last) - self._accounted_before == self.received

    @property
    def cancels_close(self) -> bool:
        """Whether as many entries were cancelled as cancels were applied; of a purgatory, where an event cancels what there is, always."""
        if self.last is None or self.last.purgatory:
            return True
        return self._count("cancelled") == self._count("applied")

    def render(self) -> str:
        """The final account, several lines, without a trailing line end."""
        if self.last is None:
            return "summary: no batch ran"
        left = (
            f"delivered {self.fired:,}"
            if self.last.purgatory
            else f"fired {self.fired:,}, missed {self.missed:,}"
        )
        done = (
            f"in {self.received:,}, {left}, rejected {self.rejected:,}, undeliverable {self.undeliverable:,}"
        )
        late = self.lateness
        lateness = (
            f"p50 {_span(late.quantile(0.5))}, p99 {_span(late.quantile(0.99))}, max {_span(late.maximum_ms)}"
        )
        identities = (
            f"every row accounted for: {_CLOSES[self.commands_close]}"
            if self.last.purgatory
            else f"every command accounted for: {_CLOSES[self.commands_close]}; "
            f"cancelled = applied: {_CLOSES[self.cancels_close]}"
        )
        lines = [
            f"summary of {self.batches:,} {'batch' if self.batches == 1 else 'batches'}",
            *self._accounts(self.last),
            f"  this run    {done}",
            f"  lateness    {lateness}",
            f"  clock       {instant_text(self.last.clock_ms)}, next due {instant_text(self.last.next_due_ms)}",
            f"  identities  {identities}",
        ]
        if self.spread:
            what = f"{self.spread:,} ids came over several partitions without a seq: their order is not known"
            lines.append(f"  warning     {what}; key them by id, or give a seq")
        return "\n".join(lines)

    def _accounts(self, report: BatchReport) -> list[str]:
        lines: list[str] = []
        for title, outcomes in report.accounts.items():
            # Of a cancelled command the outcomes are told without the word that tells them from those of schedules.
            counted = {key.removeprefix(f"{title[:-1]}_"): self._count(key) for key in outcomes}
            waiting = {} if lines else {"pending": report.pending}
            lines.append(_account(title, waiting | counted))
        if more := self._count("generations"):
            lines.append(f"  {more:,} of these outcomes are of a further generation of a join or heartbeat")
        return lines

    def _count(self, key: str) -> int:
        return self.last.counts.get(key, 0) if self.last else 0


def _accounted(report: BatchReport) -> int:
    ended = sum(report.counts.get(key, 0) for outcomes in report.accounts.values() for key in outcomes)
    return report.pending + ended - report.counts.get("generations", 0)


def _account(title: str, outcomes: Mapping[str, int]) -> str:
    total = sum(outcomes.values())
    terms = " + ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items())
    return f"  {title:<10}  {total:,} = {terms}"


_CLOSES = {True: "yes", False: "NO"}


def instant_text(instant_ms: int | None) -> str:
    """An instant (UTC epoch ms) in ISO form to the second; ``-`` for None, the number itself beyond year 1 to 9999."""
    if instant_ms is None:
        return "-"
    try:
        instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=instant_ms)
    except OverflowError:
        return f"{instant_ms} ms"
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ") if instant.year >= 1000 else instant.isoformat()


def _span(span_ms: int | None) -> str:
    return "-" if span_ms is None else duration_text(span_ms)


def duration_text(span_ms: int) -> str:
    """A duration in the largest unit that keeps it readable: ``400 ms``, ``1.5 s``, ``2.0 h``, ``730.0 d``, ``2,029 y``."""
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
