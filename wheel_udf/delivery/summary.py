"""The account of a run: :class:`Summary` adds up the reports of its batches and checks that every command is accounted
for.

::

    summary of 12 batches
      schedules   10 = 2 pending + 5 fired + 0 missed + 1 cancelled + 1 superseded + 0 duplicate + 1 rejected
      cancels     1 = 1 applied + 0 waiting + 0 late + 0 superseded + 0 duplicate + 0 rejected
      this run    in 11, fired 5, missed 0, rejected 1, undeliverable 0
      lateness    p50 0 ms, p99 1.0 s, max 1.2 s
      clock       2026-01-01T10:00:00Z, next due 2026-01-01T10:05:00Z
      identities  every command accounted for: yes; cancelled = applied: yes

With FIRE_NOW there is a line ``fires  3 = 2 applied + 1 late + 0 rejected``. With series there is a line ``occurrences
12 = 9 fired + 3 missed + 0 skipped``, and among the schedules the number of series that have ended; with retries, how
many entries came back, and dead letters. In the tiered mode ``2 near + 5 far`` stands for ``7 pending``. Under an event
or simulated clock, whose batches span any amount of the data's time, the line about lateness reads::

    released    within 13.6 d of data time after due (p50 6.0 d, p99 12.6 d); one batch spans up to 13.6 d of data

:attr:`Summary.lost` is set by the caller: how many offsets of the source are known to be lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from wheel_udf.common.instants import instant_text
from wheel_udf.common.outcomes import RETRIED
from wheel_udf.delivery.progress import span_text
from wheel_udf.delivery.report import BatchReport
from wheel_udf.wheel.lateness import LatenessHistogram

_SUMMED = ("received", "fired", "missed", "rejected", "undeliverable", "spread", "ambiguous")


class Summary:
    """Adds up the reports of a run and renders its account.

    The outcomes are totals since the checkpoint began, from the last report; received, fired and batches are those of
    this run. Two identities are checked:

    * commands: every command received is pending or has exactly one outcome. A run that continues a checkpoint checks
      the commands received after its first complete report;
    * cancels: the number of cancelled entries equals the number of applied cancels.
    """

    def __init__(self) -> None:
        self.batches = 0
        self.totals: Counter[str] = Counter()
        self.lost = 0
        self.lateness = LatenessHistogram()
        self.last: BatchReport | None = None
        self._widest_span_ms: int | None = None
        self._accounted_before: int | None = None
        self._highest_batch_id = -1

    def add(self, report: BatchReport) -> None:
        """Adds a batch. A batch that is reported twice (a replay within the run) counts once."""
        if report.batch_id <= self._highest_batch_id:
            return
        self._highest_batch_id = report.batch_id
        if report.batch_id == 0:
            self._accounted_before = 0
        self.batches += 1
        self.totals.update({name: getattr(report, name) for name in _SUMMED})
        self.lateness = self.lateness.merge(report.lateness)
        self._note_span(report)
        self.last = report
        if self._accounted_before is None and report.complete:
            # A run that does not begin with batch 0 continues the account of earlier runs.
            self._accounted_before = _accounted(report) - self.totals["received"]

    def _note_span(self, report: BatchReport) -> None:
        """Notes how far a batch that released rows has moved the clock."""
        before_ms = self.last.clock_ms if self.last is not None else None
        # An event clock stands at 0 until there is a watermark: its first move is not a span of data.
        if report.fired and report.clock_ms is not None and before_ms:
            self._widest_span_ms = max(self._widest_span_ms or 0, report.clock_ms - before_ms)

    @property
    def commands_close(self) -> bool:
        """Whether every command received is accounted for."""
        if self.last is None or self._accounted_before is None:
            return True
        return _accounted(self.last) - self._accounted_before == self.totals["received"]

    @property
    def cancels_close(self) -> bool:
        """Whether as many entries were cancelled as cancels were applied; True for a purgatory (one cancels many)."""
        if self.last is None or self.last.purgatory:
            return True
        return self._count("cancelled") == self._count("applied")

    def render(self) -> str:
        """Returns the account as several lines, without a trailing line end."""
        if self.last is None:
            return "summary: no batch ran"
        total = self.totals
        left = (
            f"delivered {total['fired']:,}"
            if self.last.purgatory
            else f"fired {total['fired']:,}, missed {total['missed']:,}"
        )
        done = f"in {total['received']:,}, {left}, rejected {total['rejected']:,}"
        done += f", undeliverable {total['undeliverable']:,}"
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
            self._lateness(in_data_time=self.last.in_data_time),
            f"  clock       {instant_text(self.last.clock_ms)}, next due {instant_text(self.last.next_due_ms)}",
            f"  identities  {identities}",
        ]
        if total["spread"]:
            what = f"{total['spread']:,} ids came over several partitions without a seq: their order is not known"
            lines.append(f"  warning     {what}; key them by id, or give a seq")
        if total["ambiguous"]:
            what = "ambiguous: no seq, and the id and event time of another command, which was kept"
            lines.append(f"  warning     {total['ambiguous']:,} {what}; give a seq")
        if self.lost:
            lines.append(
                f"  warning     {self.lost:,} offsets of the source are lost: failOnDataLoss is false"
            )
        return "\n".join(lines)

    def _lateness(self, *, in_data_time: bool) -> str:
        """The line about the time from due to release."""
        if in_data_time and not self.lateness.count:
            return "  released    nothing"
        values = (self.lateness.quantile(0.5), self.lateness.quantile(0.99), self.lateness.maximum_ms)
        p50, p99, longest = map(span_text, values)
        if not in_data_time:
            return f"  lateness    p50 {p50}, p99 {p99}, max {longest}"
        widest_ms = self._widest_span_ms
        span = "" if widest_ms is None else f"; one batch spans up to {span_text(widest_ms)} of data"
        return f"  released    within {longest} of data time after due (p50 {p50}, p99 {p99}){span}"

    def _accounts(self, report: BatchReport) -> list[str]:
        lines: list[str] = []
        for title, outcomes in report.accounts.items():
            # The counts of cancels are named without the prefix that distinguishes them from those of schedules.
            counted = {key.removeprefix(f"{title[:-1]}_"): self._count(key) for key in outcomes}
            if title in _NAMED_IF_ANY and not any(counted.values()):
                continue
            waiting = {} if lines else report.waiting
            lines.append(_account(title, waiting | counted))
        if more := self._count("generations"):
            lines.append(f"  {more:,} of these outcomes are of a further generation of a join or heartbeat")
        if back := self._count(RETRIED):
            lines.append(
                f"  {back:,} of the schedules are entries that came back, because they could not be delivered"
            )
        if any(report.occurrences.values()):
            lines.append(_account("occurrences", report.occurrences))
        return lines

    def _count(self, key: str) -> int:
        return self.last.counts.get(key, 0) if self.last else 0


def _accounted(report: BatchReport) -> int:
    ended = sum(report.counts.get(key, 0) for outcomes in report.accounts.values() for key in outcomes)
    return report.pending + ended - report.counts.get("generations", 0) - report.counts.get(RETRIED, 0)


def _account(title: str, outcomes: Mapping[str, int]) -> str:
    total = sum(outcomes.values())
    outcomes = {name: count for name, count in outcomes.items() if count or name not in _NAMED_IF_ANY}
    terms = " + ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items())
    return f"  {title:<10}  {total:,} = {terms}"


_NAMED_IF_ANY = ("ended", "dead", "fires")
_CLOSES = {True: "yes", False: "NO"}
