"""Ids of occurrences that an act delivers again: ``<id>@<nominal time>``, such as ``report-7@2026-11-01T09:00:00Z``.

``backfill`` and ``redrive`` add such entries; the input does not have them. That one was asked for cannot be decided
here; that it belongs to a series of the input, and to the nominal time in its id, can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wheel_udf.common.instants import instant_text_ms
from wheel_udf.testing.ledger import texts
from wheel_udf.testing.ledger.report import About, Report
from wheel_udf.testing.ledger.rows import Command, Release
from wheel_udf.testing.ledger.terms import Terms


class Offshoots:
    """Finds the series that an id belongs to.

    Args:
        commands: Those of the input, by id.
    """

    def __init__(self, commands: Mapping[str | None, Sequence[Command]]) -> None:
        self._commands = commands

    def of(self, about: About) -> tuple[Sequence[Command], int] | None:
        """The commands of the series, of this version, and the nominal time; None if there is no such series."""
        name, joint, at = (about.schedule_id or "").rpartition("@")
        nominal_ms = texts.instant_ms(at, up=False) if joint else None
        found = [each for each in self._commands.get(name, ()) if each.repeats and each.seq == about.seq]
        return None if nominal_ms is None or not found else (found, nominal_ms)

    def explain(self, row: Release, report: Report) -> bool:
        """Checks a row of such an id; returns False if it is of no such id."""
        found = self.of(row)
        if found is None:
            return False
        commands, nominal_ms = found
        if row.due_ms is not None and row.due_ms != nominal_ms:
            report.add("wrong_occurrence", row, f"deliver_at = {instant_text_ms(row.due_ms)}")
        elif not any(each.terms is None or _has(each.terms, nominal_ms) for each in commands):
            report.add(
                "wrong_occurrence", row, f"{instant_text_ms(nominal_ms)} is no occurrence of the series"
            )
        else:
            report.leave_open(row, "an occurrence that an act has delivered again")
        return True


def _has(terms: Terms, at_ms: int) -> bool:
    """Whether a rule has an occurrence at an instant; of a cron rule, also before the series began."""
    first_ms = next(iter(terms.rule.after(at_ms - 1, terms.anchor_ms)), None)
    return first_ms == at_ms and (terms.until_ms is None or at_ms <= terms.until_ms)
