"""The ids of a run, one after the other: their rows, their versions, what is lost, what is still pending.

::

    commands of an id --- SCHEDULE, CANCEL --> versions    rows of a one-shot: here;  of a series: series
                      --- FIRE_NOW ----------> fires       which versions may be out before they are due
                      --- RETRY -------------> attempts    which versions may be out more than once
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

from wheel_udf.common.instants import instant_text_ms
from wheel_udf.testing.ledger import fires
from wheel_udf.testing.ledger.account import Ended
from wheel_udf.testing.ledger.attempts import given_back, is_one, may_be_redriven
from wheel_udf.testing.ledger.lives import Lives
from wheel_udf.testing.ledger.match import copies_of
from wheel_udf.testing.ledger.offshoots import Offshoots
from wheel_udf.testing.ledger.refusals import explain
from wheel_udf.testing.ledger.report import Entry, Report
from wheel_udf.testing.ledger.rows import (
    DEAD,
    FIRE_NOW,
    FIRED,
    GOOD,
    MISSED,
    OPEN,
    REFUSED,
    UNDELIVERABLE,
    Command,
    Refusal,
    Release,
    Version,
)
from wheel_udf.testing.ledger.rules import Rules
from wheel_udf.testing.ledger.series import Series, Waiting, check_series

Matched = tuple[Release, Version, list[Command]]
"""A row, its version, and the commands of that version that it can come from."""


class Book:
    """Goes through the ids of a run and fills the report.

    Args:
        rules: Of the check.
        report: To be filled.
        waiting: The pending entries; None if they are not known.
        offshoots: The ids of occurrences that acts deliver again.

    Attributes:
        ended: What the rows say of how versions have ended.
    """

    def __init__(
        self,
        rules: Rules,
        report: Report,
        waiting: Mapping[Entry, Collection[Waiting]] | None,
        offshoots: Offshoots,
    ) -> None:
        self._rules, self._report, self._waiting, self._offshoots = rules, report, waiting, offshoots
        self.ended = Ended()

    def go_through(self, commands: list[Command], rows: list[Release], refusals: Sequence[Refusal]) -> None:
        """Checks one id."""
        now = [each for each in commands if each.op == FIRE_NOW]
        refusals = fires.split_refusals(now, refusals)
        explain([each for each in commands if each.state != REFUSED], refusals, self._report)
        rows = self._without_repetitions(rows)
        versions = [each for each in commands if each.is_schedule or each.is_cancel]
        if not versions:
            self._check_unasked(rows)
            return
        accepted = [each for each in versions if each.state in (GOOD, OPEN)]
        applied = fires.accepted(commands)
        fires.mark(accepted, applied, self._rules)
        found = [(row, copies_of(row, versions, applied, self._rules, self._report)) for row in rows]
        if any(each.version is None for each in accepted):
            self._check_repeats(rows, len(accepted))
            return
        lives = Lives(accepted, self._rules)
        # The lowest version that a row can come from is the weakest evidence against others.
        of_rows = [[each.version for each in copies if each.version is not None] for _, copies in found]
        matched = [(row, min(of), copies) for (row, copies), of in zip(found, of_rows, strict=True) if of]
        back = given_back(commands)
        repeating = {each.seq for each in accepted if each.is_schedule and each.repeats}
        for row, version, _ in matched:
            if row.seq not in repeating or not (row.is_again or row.how == DEAD):
                lives.note(version, row.at_ms)  # an occurrence that is tried again outlives its series
        self._check_order(matched, lives, back, repeating)
        once = [each for each in matched if each[0].seq not in repeating]
        for one, other in self._repeated(once, lives, back) if len(once) > 1 else ():
            at = f"{instant_text_ms(one.at_ms)} and {instant_text_ms(other.at_ms)}"
            self._report.add("twice", other, f"{one.how} and {other.how} at {at}")
        released = {each.version for _, copies in found for each in copies}
        dues = {row.due_ms for row in rows}
        self._check_missing([each for each in accepted if not each.repeats], released, dues, lives)
        for seq in sorted(each for each in repeating if each is not None):
            self._check_series(seq, accepted, matched, applied, lives, is_given_back=seq in back)
        self._count_occurrences([row for row in rows if row.seq in repeating])

    def _check_unasked(self, rows: Sequence[Release]) -> None:
        """Checks the rows of an id that has no version in the input."""
        for row in rows:
            if not self._offshoots.explain(row, self._report):
                self._report.add("no_command", row, f"{row.how} at {instant_text_ms(row.at_ms)}")
            elif row.how == FIRED:
                self.ended.added += 1

    def _check_series(
        self,
        seq: int,
        accepted: Sequence[Command],
        matched: Sequence[Matched],
        applied: Sequence[Command],
        lives: Lives,
        *,
        is_given_back: bool,
    ) -> None:
        """Checks a version of a series."""
        mine = [each for each in accepted if each.is_schedule and each.seq == seq]
        others = [each for each in accepted if each.is_schedule and each.repeats and (each.seq or 0) < seq]
        own = [each for each in mine if each.version and not each.version.amend]
        if not own or not all(each.repeats for each in own):
            self._report.leave_open(mine[0], "a version of which some commands are a series and some are not")
            return
        waiting = None
        if self._waiting is not None:
            waiting = list(self._waiting.get(Entry(own[0].schedule_id, seq), ()))
        before = _still_there(seq, accepted, self._rules)
        series = Series(
            copies=own,
            rows=[row for row, _, _ in matched if row.seq == seq],
            lower=others,
            released=_nominal_times(matched, {each.seq for each in others}),
            kept={row.due_ms: row.at_ms for row, _, _ in matched if row.seq in before},
            fires=applied,
            waiting=waiting,
            has_acts=len(own) < len(mine),
            is_given_back=is_given_back,
            lives=lives,
            rules=self._rules,
        )
        check_series(series, self._report)

    def _without_repetitions(self, rows: list[Release]) -> list[Release]:
        """The rows in order of time, without those that an at-least-once sink repeats."""
        if len(rows) < 2:
            self.ended.rows.update(row.how for row in rows)
            return rows
        kept: dict[object, Release] = {}
        for number, row in enumerate(sorted(rows, key=lambda row: row.at_ms)):
            about = (row.seq, row.fire_id or row.at_ms, row.how, row.attempt)
            again = about if row.repeatable else number
            self._report.repetitions += again in kept
            kept.setdefault(again, row)
        self.ended.rows.update(row.how for row in kept.values())
        return list(kept.values())

    def _count_occurrences(self, rows: Sequence[Release]) -> None:
        """Counts what rows of series stand for; a further attempt is no occurrence."""
        for row in rows:
            if row.is_again or row.how not in (FIRED, UNDELIVERABLE, MISSED):
                continue
            if row.how == MISSED and row.missed_before is None:
                continue  # an occurrence that came back
            self.ended.of_series[row.how] += 1
            self.ended.unknown |= row.missed_before is None
            self.ended.occurrences["occurrences_missed"] += (row.missed_before or 0) + (row.how == MISSED)
            self.ended.occurrences["occurrences_fired"] += row.how != MISSED

    def _check_repeats(self, rows: Sequence[Release], commands: int) -> None:
        """Checks an id with unknown versions: each fire id occurs at most as often as there are commands."""
        times = Counter((row.fire_id, row.attempt) for row in rows if row.fire_id is not None)
        for row in rows:
            if row.fire_id is not None and times.pop((row.fire_id, row.attempt), 0) > commands:
                self._report.add("twice", row, f"fire_id {row.fire_id}")

    def _check_order(
        self,
        matched: Sequence[Matched],
        lives: Lives,
        back: Collection[int | None],
        repeating: Collection[int | None],
    ) -> None:
        """Checks that no row was released although a higher version was read before."""
        for row, _, copies in matched if lives.has_versions else ():
            if row.how not in (FIRED, MISSED, UNDELIVERABLE) or (row.is_again and row.seq in repeating):
                continue  # a dead letter is no delivery; an occurrence is tried again whatever becomes of its series
            if by := lives.beaten_by(copies, self._left_ms(row, copies), row.at_ms):
                kind = "after_cancel" if by.startswith("CANCEL") else "superseded"
                text = f"{row.how} at {instant_text_ms(row.at_ms)} although {by} was read before"
                if row.is_again and row.seq in back:
                    self._report.leave_open(
                        row, f"{text}; a RETRY may have been read when that was forgotten"
                    )
                else:
                    self._report.add(kind, row, text)
            elif lives.is_open(copies, row.at_ms):
                text = f"{row.how}; a higher version was read at about the same time"
                self._report.leave_open(row, text)

    def _left_ms(self, row: Release, copies: Sequence[Command]) -> float:
        """When a row can have left the wheel at the earliest: with punctual delivery before it was sent."""
        if not self._rules.ahead_ms:
            return row.at_ms
        due = [copy.release_ms for copy in copies if copy.release_ms is not None]
        return min([row.at_ms, *due]) - self._rules.ahead_ms

    def _repeated(
        self, matched: Sequence[Matched], lives: Lives, back: Collection[int | None]
    ) -> Iterator[tuple[Release, Release]]:
        """Pairs of rows of which only one can be right: of one version, or of a retry without ``seq``."""
        by_version: dict[Version, list[Matched]] = defaultdict(list)
        for each in matched:
            by_version[each[1]].append(each)
        for version, group in by_version.items():
            copies = lives.copies(version)
            for number, ((one, _, _), (other, _, _)) in enumerate(pairwise(group), start=1):
                if is_one(one, other, is_given_back=version.seq in back):
                    if may_be_redriven(one, other):
                        self._report.leave_open(other, "a dead letter that may have been sent again")
                    continue
                if number >= len(copies) or not lives.may_start_again(copies, one.at_ms, other.at_ms):
                    yield one, other
        yield from self._repeated_versions(matched, by_version, lives)

    @staticmethod
    def _repeated_versions(
        matched: Sequence[Matched], by_version: Collection[Version], lives: Lives
    ) -> Iterator[tuple[Release, Release]]:
        """Pairs of rows of different versions of which only one can be right."""
        for (one, version, _), (other, other_version, copies) in pairwise(matched):
            if (
                version.seq == other_version.seq
                and version != other_version
                and one.how == other.how == FIRED
            ):
                # An act changes what is pending: it starts nothing anew.
                said = [each for each in by_version if each.seq == version.seq and not each.amend]
                if len([copy for each in said for copy in lives.copies(each)]) < 2:
                    yield one, other
                    continue
            # A FIRE_NOW gives it another due time, and then a repetition is new.
            is_same = version < other_version and one.how == FIRED and one.due_ms == other.due_ms
            is_repeat = is_same and lives.is_retry(copies)
            if is_repeat and not lives.may_start_again(copies, one.at_ms, other.at_ms):
                yield one, other

    def _check_missing(
        self, accepted: Sequence[Command], released: set[Version | None], dues: set[int | None], lives: Lives
    ) -> None:
        until_ms = self._rules.until_ms
        if until_ms is None:
            return
        for version in {each.version for each in accepted if each.is_schedule and each.version is not None}:
            copies = lives.copies(version)
            waiting = (self._waiting or {}).get(Entry(copies[0].schedule_id, version.seq), ())
            if waiting:
                is_again = any(each.is_again for each in waiting)
                is_out = version in released
                self._check_waiting(version, copies, until_ms, lives, is_out=is_out, is_again=is_again)
            elif version not in released and not (lives.may_be_retry(copies) and copies[0].due_ms in dues):
                self._check_absent(version, copies, until_ms, lives)

    def _check_waiting(
        self,
        version: Version,
        copies: Sequence[Command],
        until_ms: int,
        lives: Lives,
        *,
        is_out: bool,
        is_again: bool,
    ) -> None:
        """Checks a pending version; `is_again`: it waits for a further attempt."""
        if is_again:
            return
        if is_out and len(copies) == 1 and not lives.has_acts_on(version):
            self._report.add("not_pending", copies[0], "was released")
        elif lives.must_not_be_out(version):
            self._report.add("not_pending", copies[0], "was cancelled or replaced")
        elif all(each.state == GOOD and _is_due(each, until_ms) for each in copies):
            self._report.add("overdue", copies[0], f"due {_due_text(copies)}, still pending")

    def _check_absent(self, version: Version, copies: Sequence[Command], until_ms: int, lives: Lives) -> None:
        is_due = all(_is_due(each, until_ms) for each in copies)
        may_be_out = any(each.soonest_ms is not None and each.soonest_ms <= until_ms for each in copies)
        if not is_due and may_be_out and not lives.must_not_be_out(version):
            self._report.leave_open(copies[0], "in no sink; a FIRE_NOW may have been read")
        if not is_due and (self._waiting is None or any(_is_due(each, until_ms) for each in copies)):
            return
        if lives.may_be_late_act(version):
            return
        where = "in no sink" if is_due else "not pending"
        if lives.must_be_out(version):
            text = f"due {_due_text(copies)}, {where}"
            self._report.add("lost", copies[0], text)
        elif any(each.state == GOOD for each in copies) and not lives.must_not_be_out(version):
            text = f"{where}; a higher version may have been read before it was due"
            self._report.leave_open(copies[0], text)


def _is_due(command: Command, until_ms: int) -> bool:
    return command.latest_ms is not None and command.latest_ms <= until_ms


def _due_text(copies: Sequence[Command]) -> str:
    dues = sorted({each.latest_ms for each in copies if each.latest_ms is not None})
    return " or ".join(instant_text_ms(int(each)) for each in dues)


def _nominal_times(matched: Sequence[Matched], seqs: Collection[int | None]) -> frozenset[int | None]:
    """The nominal times that rows of some versions have, dead letters and further attempts included."""
    return frozenset(row.due_ms for row, _, _ in matched if row.seq in seqs)


def _still_there(seq: int, accepted: Sequence[Command], rules: Rules) -> set[int | None]:
    """The version right below a series, if it is a series that was still pending when this one was read."""
    lower = max((each.seq for each in accepted if each.seq is not None and each.seq < seq), default=None)
    last = [each for each in accepted if each.seq == lower]
    has_end = any(
        each.terms is None or (each.terms.until_ms, each.terms.most) != (None, None) for each in last
    )
    is_alone = all(each.version and not each.version.amend for each in last)
    # Else another version may have ended it, and have been forgotten.
    above = [each for each in accepted if (each.seq or 0) >= seq]
    is_top = len(last) == 1 and all(each.is_schedule and each.seq == seq for each in above)
    return {lower} if last and is_alone and not has_end and (rules.memory_ms is None or is_top) else set()
