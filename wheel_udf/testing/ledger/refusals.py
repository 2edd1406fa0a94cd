"""The rejects of one id against its commands: which commands were refused, which should have been.

A row of the rejects names id and ``seq`` where it can. Commands that break the contract are explained first; what is
left refuses good commands (limits, allow-list, sizes), those of its ``seq`` if it has one. Where it cannot be told
which, all candidates are OPEN.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from wheel_udf.testing.ledger.report import Report
from wheel_udf.testing.ledger.rows import BAD, GOOD, OPEN, REFUSED, Command, Refusal


def explain(commands: Sequence[Command], refusals: Sequence[Refusal], report: Report) -> None:
    """Marks the refused commands of one id, and reports rejects that are missing or too many."""
    bad = [each for each in commands if each.state == BAD]
    for each in bad[len(refusals) :]:
        report.add("reject_missing", each, f"row {each.at:,} of the input breaks the contract")
    if not refusals:
        return
    extra = len(refusals) - len(commands)
    if extra > 0 and not (commands and any(each.repeatable for each in refusals)):
        for row in refusals[-extra:]:
            text = f"{row.code}; the id has {len(commands)} commands"
            report.add("reject_no_command", row, text)
    if len(refusals) > len(bad):
        _mark_good([each for each in commands if each.state != BAD], bad, refusals)


def _mark_good(good: Sequence[Command], bad: Sequence[Command], refusals: Sequence[Refusal]) -> None:
    left = Counter(each.seq for each in refusals)
    left.subtract(each.seq for each in bad)
    # A bad command may be in the rejects without its seq, and a good one with an event time that is not that of its
    # seq.
    certain = all(count >= 0 for count in left.values()) and left[None] == 0
    copies = Counter(each.seq for each in good)
    for each in good:
        if certain and left[each.seq] >= copies[each.seq]:
            each.state = REFUSED
        elif not certain or left[each.seq] > 0:
            each.state = OPEN
    assert {each.state for each in good} <= {GOOD, OPEN, REFUSED}
