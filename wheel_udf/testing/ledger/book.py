"""The ids of a run, one after the other: their rows, their versions, what is lost, what is still pending."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from wheel_udf.common.instants import instant_text_ms
from wheel_udf.testing.ledger.lives import Lives
from wheel_udf.testing.ledger.match import copies_of
from wheel_udf.testing.ledger.refusals import explain
from wheel_udf.testing.ledger.report import Entry, Report
from wheel_udf.testing.ledger.rows import FIRED, GOOD, OPEN, Command, Refusal, Release, Version
from wheel_udf.testing.ledger.rules import Rules

Matched = tuple[Release, Version, list[Command]]
"""A row, its version, and the commands of that version that it can come from."""


class Book:
    """Goes through the ids of a run and fills the report.

    Args:
        rules: Of the check.
        report: To be filled.
        waiting: The pending entries; None if they are not known.

    Attributes:
        ended: Released rows by how they were released, without repetitions.
    """

    def __init__(self, rules: Rules, report: Report, waiting: Collection[Entry] | None) -> None:
        self._rules, self._report, self._waiting = rules, report, waiting
        self.ended: Counter[str] = Counter()

    def go_through(self, commands: list[Command], rows: list[Release], refusals: Sequence[Refusal]) -> None:
        """Checks one id."""
        explain(commands, refusals, self._report)
        rows = self._without_repetitions(rows)
        if not commands:
            for row in rows:
                self._report.add("no_command", row, f"{row.how} at {instant_text_ms(row.at_ms)}")
            return
        accepted = [each for each in commands if each.state in (GOOD, OPEN)]
        found = [(row, copies_of(row, commands, self._rules, self._report)) for row in rows]
        if any(each.version is None for each in accepted):
            self._check_repeats(rows, len(accepted))
            return
        lives = Lives(accepted, self._rules)
        # The lowest version that a row can come from is the weakest evidence against others.
        versions = [[each.version for each in copies if each.version is not None] for _, copies in found]
        matched = [(row, min(of), copies) for (row, copies), of in zip(found, versions, strict=True) if of]
        for row, version, _ in matched:
            lives.note(version, row.at_ms)
        self._check_versions(matched, lives)
        released = {each.version for _, copies in found for each in copies}
        dues = {row.due_ms for row in rows}
        self._check_missing(accepted, released, dues, lives)

    def _without_repetitions(self, rows: list[Release]) -> list[Release]:
        """The rows in order of time, without those that an at-least-once sink repeats."""
        if len(rows) < 2:
            self.ended.update(row.how for row in rows)
            return rows
        kept: dict[object, Release] = {}
        for number, row in enumerate(sorted(rows, key=lambda row: row.at_ms)):
            again = (row.seq, row.fire_id or row.at_ms, row.how) if row.repeatable else number
            self._report.repetitions += again in kept
            kept.setdefault(again, row)
        self.ended.update(row.how for row in kept.values())
        return list(kept.values())

    def _check_repeats(self, rows: Sequence[Release], commands: int) -> None:
        """Checks an id with unknown versions: each fire id occurs at most as often as there are commands."""
        times = Counter(row.fire_id for row in rows if row.fire_id is not None)
        for row in rows:
            if row.fire_id is not None and times.pop(row.fire_id, 0) > commands:
                self._report.add("twice", row, f"fire_id {row.fire_id}")

    def _check_versions(self, matched: Sequence[Matched], lives: Lives) -> None:
        for row, _, copies in matched if lives.has_versions else ():
            if by := lives.beaten_by(copies, row.at_ms):
                kind = "after_cancel" if by.startswith("CANCEL") else "superseded"
                at = instant_text_ms(row.at_ms)
                self._report.add(kind, row, f"{row.how} at {at} although {by} was read before")
            elif lives.is_open(copies, row.at_ms):
                text = f"{row.how}; a higher version was read at about the same time"
                self._report.leave_open(row, text)
        for one, other in self._repeated(matched, lives) if len(matched) > 1 else ():
            at = f"{instant_text_ms(one.at_ms)} and {instant_text_ms(other.at_ms)}"
            self._report.add("twice", other, f"{one.how} and {other.how} at {at}")

    def _repeated(self, matched: Sequence[Matched], lives: Lives) -> Iterator[tuple[Release, Release]]:
        """Pairs of rows of which only one can be right: of one version, or of a retry without ``seq``."""
        by_version: dict[Version, list[Matched]] = defaultdict(list)
        for each in matched:
            by_version[each[1]].append(each)
        for version, group in by_version.items():
            copies = lives.copies(version)
            for number, ((one, _, _), (other, _, _)) in enumerate(pairwise(group), start=1):
                if one.how != other.how and (one.repeatable or other.repeatable):
                    continue  # a batch was repeated, and the second time the topic refused the record
                if number >= len(copies) or not lives.may_start_again(copies, one.at_ms, other.at_ms):
                    yield one, other
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
            is_repeat = version < other_version and one.how == FIRED and lives.is_retry(copies)
            if is_repeat and not lives.may_start_again(copies, one.at_ms, other.at_ms):
                yield one, other

    def _check_missing(
        self, accepted: Sequence[Command], released: set[Version | None], dues: set[int | None], lives: Lives
    ) -> None:
        until_ms = self._rules.until_ms
        if until_ms is None:
            return
        for version in {each.version for each in accepted if not each.is_cancel and each.version is not None}:
            copies = lives.copies(version)
            if self._waiting is not None and Entry(copies[0].schedule_id, version.seq) in self._waiting:
                self._check_waiting(version, copies, until_ms, lives, is_out=version in released)
            elif version not in released and not (lives.may_be_retry(copies) and copies[0].due_ms in dues):
                self._check_absent(version, copies, until_ms, lives)

    def _check_waiting(
        self, version: Version, copies: Sequence[Command], until_ms: int, lives: Lives, *, is_out: bool
    ) -> None:
        if is_out and len(copies) == 1 and not lives.has_acts_on(version):
            self._report.add("not_pending", copies[0], "was released")
        elif lives.must_not_be_out(version):
            self._report.add("not_pending", copies[0], "was cancelled or replaced")
        elif all(each.state == GOOD and _is_due(each, until_ms) for each in copies):
            self._report.add("overdue", copies[0], f"due {_due_text(copies)}, still pending")

    def _check_absent(self, version: Version, copies: Sequence[Command], until_ms: int, lives: Lives) -> None:
        is_due = all(_is_due(each, until_ms) for each in copies)
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
    return command.release_ms is not None and command.release_ms <= until_ms


def _due_text(copies: Sequence[Command]) -> str:
    return " or ".join(
        sorted({instant_text_ms(each.release_ms) for each in copies if each.release_ms is not None})
    )
