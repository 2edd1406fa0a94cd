"""One version of a series: whether its rows are a chain of the rule's occurrences, without a hole and without a double.

::

    every 15 minutes from 10:00     1      2      3      4      5      6
    occurrences                   10:15  10:30  10:45  11:00  11:15  11:30    until_ms 11:20
    rows                          ##1##                ######4#######
                                  1, 0                 4, 2                   (occurrence, missed_before)
    covered                       [ 1 ]  [ 2      3      4 ]    ?
                                                              5 is due, in no sink: ``lost``

A row covers its occurrence and the ``missed_before`` ones before it. Rows that overlap, a number that is not that of
the nominal time, a nominal time that the rule does not have or that is beyond ``count`` or ``until``:
``wrong_occurrence``. A hole is ``lost``, or undecided while attempts may go on.

What is known decides how much is checked::

    no lower series of the id       all: the chain begins with the first occurrence
    a lower one (it hands over)     the chain begins with the first row; before it, only what its number says
    acts on the series              each row by itself; whether anything is left out is undecided
    read again after its end        likewise
    no column missed_before         (a row of a further attempt, a dead letter) a hole before it is undecided
    a higher version                may have ended it from when it may have been read
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from wheel_udf.common.instants import instant_text_ms
from wheel_udf.testing.ledger.attempts import doubles, may_be_redriven
from wheel_udf.testing.ledger.fires import may_have_moved
from wheel_udf.testing.ledger.lives import Lives
from wheel_udf.testing.ledger.report import About, Report
from wheel_udf.testing.ledger.rows import ANY_TIME, DEAD, FIRED, MISSED, UNDELIVERABLE, Command, Release
from wheel_udf.testing.ledger.rules import Rules
from wheel_udf.testing.ledger.terms import Terms


@dataclass(frozen=True)
class Waiting:
    """A pending entry.

    Attributes:
        due_ms: Its ``deliver_at``; None if that is not known.
        is_again: Whether it waits for a further attempt.
    """

    due_ms: int | None
    is_again: bool


@dataclass(frozen=True)
class Series:
    """A version of a series, and what is known of it.

    Attributes:
        copies: Its commands.
        rows: Its rows, and those that came of it in another way.
        lower: The commands of the id's lower series.
        released: The nominal times of their rows.
        kept: Those of the series right before it, if that has no end of its own, with the time of release: they must
            not come again.
        fires: The FIRE_NOWs of the id.
        waiting: Its pending entries; None if these are not known.
        has_acts: Whether the input has acts on it.
        is_given_back: Whether a consumer has given rows back.
        lives: The versions of the id.
        rules: Of the check.
    """

    copies: Sequence[Command]
    rows: Sequence[Release]
    lower: Sequence[Command]
    released: frozenset[int | None]
    kept: Mapping[int | None, int]
    fires: Sequence[Command]
    waiting: Sequence[Waiting] | None
    has_acts: bool
    is_given_back: bool
    lives: Lives
    rules: Rules

    @property
    def spread_ms(self) -> int:
        """How much later than its nominal time an occurrence may be released."""
        return max(each.spread_ms for each in self.copies)

    @property
    def may_restart(self) -> bool:
        """Whether a copy may have been read after the end of the series was forgotten."""
        ends = any(
            each.terms and (each.terms.until_ms, each.terms.most) != (None, None) for each in self.copies
        )
        forgets = self.rules.memory_ms is not None
        return len(self.copies) > 1 and forgets and (ends or self.lives.has_versions)

    def terms(self) -> list[Terms]:
        """What it can have been: a period without a beginning of its own keeps the phase of the series before it."""
        own = list(dict.fromkeys(each.terms for each in self.copies if each.terms is not None))
        before = [each.terms for each in self.lower if each.terms is not None]
        kept = [
            replace(each, anchor_ms=other.anchor_ms)
            for each in own
            for other in before
            if each.rule is other.rule and each.rule.is_anchored and not each.has_beginning
        ]
        return list(dict.fromkeys([*own, *kept]))


def check_series(series: Series, report: Report) -> None:
    """Checks a version of a series; of several readings of its terms the one counts that the rows fit best."""
    if series.may_restart and len(series.rows) > 1:
        for row in series.rows:  # each time it may have begun in another phase
            check_series(replace(series, rows=[row]), report)
        return
    walks = []
    for terms in series.terms():
        walk = _Walk(series, terms)
        walk.go()
        walks.append(walk)
    if not walks or any(each.terms is None for each in series.copies):
        report.leave_open(series.copies[0], "a series whose rule cannot be read here")
        return
    best = min(walks, key=lambda walk: len(walk.faults))
    if best.faults and any(walk.is_unknown for walk in walks):
        best = next(walk for walk in walks if walk.is_unknown)
    for kind, about, detail in best.faults:
        report.add(kind, about, detail)
    for about, detail in best.left_open:
        report.leave_open(about, detail)


@dataclass
class _Walk:
    """The walk along the occurrences of one reading of the terms."""

    series: Series
    terms: Terms
    faults: list[tuple[str, About, str]] = field(default_factory=list)
    left_open: list[tuple[About, str]] = field(default_factory=list)
    is_unknown: bool = False
    covered: int | None = None
    shift: int | None = None
    head: tuple[int, int | None] | None = None

    def __post_init__(self) -> None:
        self.is_exact = not self.series.lower
        self.is_loose = self.series.has_acts or self.series.may_restart

    def go(self) -> None:
        """Checks the rows, and what is behind the last one."""
        rows = sorted(
            (row for row in self.series.rows if row.due_ms is not None),
            key=lambda row: (row.due_ms, row.at_ms),
        )
        try:
            times = self._times(rows)
        except (OverflowError, ValueError):
            times = None
        if times is None:
            self.is_unknown = True
            self.left_open.append((self.series.copies[0], "a series with too many occurrences to be checked"))
            return
        place = {at: number for number, at in enumerate(times)}
        self.shift = self.terms.before_begin() if self.is_exact else None
        self.covered = -1 if self.is_exact else None
        for due_ms, same in groupby(rows, key=lambda row: row.due_ms):
            self._check_nominal(due_ms or 0, list(same), place, times)
        if self.series.rules.until_ms is not None and not self.is_loose:
            self._check_tail(times, self.series.rules.until_ms, has_rows=bool(rows))
        self._check_pending(times)

    def _times(self, rows: Sequence[Release]) -> list[int] | None:
        """The occurrences from the first one on; with a lower series, from the first row on if that is earlier."""
        ends = [each for row in rows for each in (row.at_ms, row.due_ms) if each is not None]
        until_ms = self.series.rules.until_ms
        end_ms = max([*ends, self.terms.begin_ms if until_ms is None else until_ms])
        if self.is_exact:
            return self.terms.occurrences(end_ms)
        dues = [row.due_ms - 1 for row in rows[:1] if row.due_ms is not None and not self.terms.has_beginning]
        return self.terms.occurrences(end_ms, min([self.terms.begin_ms, *dues]))

    # --- rows -------------------------------------------------------------------------------------

    def _check_nominal(
        self, due_ms: int, rows: list[Release], place: dict[int, int], times: Sequence[int]
    ) -> None:
        """Checks the rows of one nominal time."""
        at = place.get(due_ms)
        if at is None:
            self._wrong(rows[0], f"{instant_text_ms(due_ms)} is no occurrence of it")
            return
        if not self.series.may_restart:
            self._check_doubles(rows)
        if due_ms in self.series.released:
            self._check_handed_over(due_ms, rows[0])
        if self.head is None:
            known = [row.missed_before for row in rows if row.missed_before is not None]
            self.head = at, max(known, default=None)
        if not self.is_loose:
            self._check_number(at, rows)
            self._check_hole(at, rows, times)
        has_next = at + 1 < len(times) and self._is_counted(at + 1)
        for row in rows:
            if row.how != DEAD:
                self._check_instants(row, times[at + 1] if has_next else None)
        self.covered = at

    def _check_doubles(self, rows: Sequence[Release]) -> None:
        in_time = sorted(rows, key=lambda row: row.at_ms)
        for one, other in doubles(in_time, is_given_back=self.series.is_given_back):
            text = (
                f"{one.how} and {other.how} at {_both(one, other)}, of {instant_text_ms(other.due_ms or 0)}"
            )
            self.faults.append(("twice", other, text))
        if any(may_be_redriven(in_time[0], row) for row in in_time[1:]):
            self.left_open.append((rows[0], "a dead letter that may have been sent again"))

    def _check_handed_over(self, due_ms: int, row: Release) -> None:
        """Checks an occurrence that a lower series has released, too; right if that had ended before."""
        text = f"{instant_text_ms(due_ms)} was released by a lower version, too"
        if self.series.kept.get(due_ms, row.at_ms + 1) <= row.at_ms:
            self.faults.append(("twice", row, text))
        else:
            self.left_open.append((row, text))

    def _check_number(self, at: int, rows: Sequence[Release]) -> None:
        for row in rows:
            if row.occurrence is None:
                continue
            if self.shift is None:
                if self.terms.rule.starts_ms is not None:
                    continue  # how many of R5/<start>/... were over, only the rule says
                self.shift = row.occurrence - at - 1
                self._check_head(row)
            if row.occurrence != at + 1 + self.shift:
                self._wrong(row, f"occurrence = {row.occurrence}; it is number {at + 1 + self.shift}")
            elif self.terms.most is not None and row.occurrence > self.terms.most:
                self._wrong(row, f"occurrence = {row.occurrence}; the count is {self.terms.most}")

    def _check_head(self, row: Release) -> None:
        """Checks, by the first number that a row has, that nothing is left out before the first row."""
        assert self.head is not None, "there is a first row"
        assert self.shift is not None, "there is a number"
        first, before = self.head
        left_out = first + self.shift - (before or 0)
        text = f"{left_out} occurrences in no sink, before the first row; that of {instant_text_ms(row.due_ms or 0)}"
        text += f" is number {row.occurrence}"
        if left_out > 0 and before is not None:
            self.faults.append(("lost", row, text))
        elif left_out > 0:
            self.left_open.append((row, text))

    def _is_counted(self, at: int) -> bool:
        """Whether an occurrence is certainly within the `count`; behind a lower series the numbers of rows say that."""
        if self.is_exact or self.terms.most is None:
            return True
        return self.shift is not None and at + 1 + self.shift <= self.terms.most

    def _check_hole(self, at: int, rows: Sequence[Release], times: Sequence[int]) -> None:
        """Checks that the rows begin where the ones before them end."""
        if self.covered is None:
            return
        known = [row.missed_before for row in rows if row.missed_before is not None]
        before = max(known, default=0)
        room = at - self.covered - 1
        if before > room:
            row = next(row for row in rows if row.missed_before == before)
            self._wrong(row, f"missed_before = {before}; {room} were left")
        hole = [
            each for each in times[self.covered + 1 : max(at - before, 0)] if not self._is_tried_again(each)
        ]
        if not hole:
            return
        text = f"{_some(hole)} in no sink, before {instant_text_ms(times[at])}"
        may_wait = self.series.rules.until_ms is None and any(
            row.attempt is not None for row in self.series.rows
        )
        if not known or may_wait:
            self.left_open.append((rows[0], text))
        else:
            self.faults.append(("lost", rows[0], text))

    def _check_instants(self, row: Release, next_ms: int | None) -> None:
        due_ms, spread_ms, rules = row.due_ms or 0, self.series.spread_ms, self.series.rules
        if self.series.has_acts:
            return
        if not may_have_moved(row.seq, row.at_ms, self.series.fires) and not self._check_figures(row, due_ms):
            return
        if row.is_again or row.how == UNDELIVERABLE:
            return
        bound_ms = max(due_ms + spread_ms, *(each.read_by_ms for each in self.series.copies))
        if rules.fires_within_ms is not None and row.at_ms > bound_ms + rules.fires_within_ms:
            over_ms = row.at_ms - bound_ms - rules.fires_within_ms
            self.faults.append(("late", row, f"{row.how} {over_ms:.0f} ms beyond fires_within_ms"))
        is_over = next_ms is not None and next_ms + spread_ms <= row.at_ms
        if is_over and row.how == FIRED and self.terms.on_missed != "all":
            text = f"that of {instant_text_ms(next_ms or 0)} was due, on_missed: {self.terms.on_missed}"
            self._wrong(row, f"{instant_text_ms(due_ms)} at {instant_text_ms(row.at_ms)}, when {text}")

    def _check_figures(self, row: Release, due_ms: int) -> bool:
        """Checks when a row was released that no FIRE_NOW has moved; returns False for one that was early."""
        first_ms = row.at_ms if row.delivered_ms is None else min(row.at_ms, row.delivered_ms)
        if first_ms < due_ms:
            text = f"due {instant_text_ms(due_ms)}, {row.how} at {instant_text_ms(first_ms)}"
            self.faults.append(("early", row, text))
            return False
        moved_ms = _moved_by(row)
        if moved_ms is not None and not 0 <= moved_ms <= self.series.spread_ms:
            text = f"{row.how} at {instant_text_ms(row.at_ms)}; lateness_ms = {row.lateness_ms}"
            self.faults.append(("bad_figures", row, text))
        self._check_lateness(row, row.at_ms - due_ms, self.series.spread_ms if moved_ms is None else moved_ms)
        return True

    def _check_lateness(self, row: Release, late_ms: int, moved_ms: int) -> None:
        bounds = [each.max_lateness_ms for each in self.series.copies]
        text = f"{late_ms} ms late; max_lateness {bounds[0]} ms"
        if row.how == FIRED and all(bound is not None and late_ms - moved_ms > bound for bound in bounds):
            self.faults.append(("not_missed", row, text))
        by_policy = self.terms.on_missed == "all" or (
            self.terms.on_missed == "none" and row.missed_before != 0
        )
        if row.how == MISSED and not by_policy and not any(b is not None and late_ms > b for b in bounds):
            self.faults.append(("missed_wrongly", row, text))

    def _wrong(self, row: Release, detail: str) -> None:
        self.faults.append(("wrong_occurrence", row, detail))

    def _is_tried_again(self, due_ms: int) -> bool:
        return any(each.is_again and each.due_ms in (due_ms, None) for each in self.series.waiting or ())

    # --- behind the last row ----------------------------------------------------------------------

    def _check_tail(self, times: Sequence[int], until_ms: int, *, has_rows: bool) -> None:
        """Checks that everything that was due is covered, as long as no higher version can have ended the series."""
        copies, lives, spread_ms = self.series.copies, self.series.lives, self.series.spread_ms
        # A lower series that waits hands over no earlier than it has begun, or released something.
        handed = [each.terms.begin_ms if each.terms else ANY_TIME for each in self.series.lower]
        begin_ms = max(self.terms.begin_ms, *handed, *(each or 0 for each in self.series.released), 0)
        missing = []
        first = 0 if self.covered is None else self.covered + 1
        for at, due_ms in enumerate(times[first:], start=first):
            if due_ms + spread_ms > until_ms or lives.beaten_by(copies, due_ms, ANY_TIME):
                break
            if not self._is_counted(at):
                if self.shift is None:
                    self.left_open.append(
                        (copies[0], f"{instant_text_ms(due_ms)} in no sink; or beyond its count")
                    )
                break
            if self._is_tried_again(due_ms) or (not self.is_exact and due_ms <= begin_ms):
                continue
            if not lives.must_be_out_at(copies, due_ms + spread_ms):
                text = f"{instant_text_ms(due_ms)} in no sink; a higher version may have been read before it was due"
                self.left_open.append((copies[0], text))
                break
            missing.append(due_ms)
        if not missing:
            return
        if len(self.series.terms()) > 1 and not has_rows:
            self.left_open.append((copies[0], f"{_some(missing)} in no sink; its phase is not known"))
        elif any(not each.is_again for each in self.series.waiting or ()):
            self.faults.append(
                ("overdue", copies[0], f"{_some(missing)} in no sink, the series is still pending")
            )
        else:
            self.faults.append(("lost", copies[0], f"{_some(missing)} in no sink"))

    def _check_pending(self, times: Sequence[int]) -> None:
        """Checks that the series is pending as long as it goes on, and no longer."""
        waiting, until_ms, copies = self.series.waiting, self.series.rules.until_ms, self.series.copies
        if waiting is None or until_ms is None or self.is_loose:
            return
        is_there = any(not each.is_again for each in waiting)
        if is_there and self.series.lives.beaten_by(copies, until_ms, ANY_TIME):
            self.faults.append(("not_pending", copies[0], "was cancelled or replaced"))
        is_lost = any(kind == "lost" for kind, _, _ in self.faults)
        goes_on = not is_lost and bool(times) and times[-1] > until_ms and self.covered != len(times) - 1
        if self.is_exact and goes_on and not is_there and self.series.lives.must_be_out_at(copies, ANY_TIME):
            self.faults.append(("lost", copies[0], f"next due {instant_text_ms(times[-1])}, not pending"))


def _moved_by(row: Release) -> int | None:
    """How much later than its nominal time an occurrence was to be released; None if the row does not say."""
    if row.scheduled_ms is not None and row.due_ms is not None:
        return row.scheduled_ms - row.due_ms
    if row.lateness_ms is None or row.due_ms is None:
        return None
    return row.at_ms - row.due_ms - row.lateness_ms


def _some(times: Sequence[int]) -> str:
    first = instant_text_ms(times[0])
    return first if len(times) == 1 else f"{len(times):,} occurrences from {first} on"


def _both(one: Release, other: Release) -> str:
    return f"{instant_text_ms(one.at_ms)} and {instant_text_ms(other.at_ms)}"
