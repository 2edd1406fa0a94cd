"""The terms of a series: what the columns beside ``repeat`` say, as far as they can be read.

::

    repeat, time_zone, on_gap, on_fold          the rule
    starts_at | deliver_at | delay, event_time  the anchor; the first occurrence is at a given beginning or after it,
                                                else after event_time
    until, count, on_missed                     which occurrences there are, and what becomes of those that are over
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from wheel_udf.common.command_facts import ON_FOLD, ON_GAP, ON_MISSED
from wheel_udf.testing.ledger.occurrences import MOST, Occurrences, read_rule, upto

TERMS: Final = ("repeat", "time_zone", "on_missed", "on_gap", "on_fold", "count", "starts_at", "until")
"""The columns."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a series. Instants are UTC epoch ms.

    Attributes:
        rule: Its rule.
        begin_ms: Its occurrences are after this instant.
        anchor_ms: The instant from which the rule counts.
        has_beginning: Whether the command names its beginning.
        until_ms: No occurrence is after it; None for no bound.
        count: How many occurrences there are; None for no bound.
        on_missed: ``latest``, ``all`` or ``none``.
    """

    rule: Occurrences
    begin_ms: int
    anchor_ms: int
    has_beginning: bool
    until_ms: int | None
    count: int | None
    on_missed: str

    def occurrences(self, end_ms: float, begin_ms: int | None = None) -> list[int] | None:
        """Its occurrences through an instant, and one more if there is one; None if there are too many.

        Args:
            end_ms: The instant.
            begin_ms: Those after it, whatever the `count`; None: from the beginning, as many as there are.

        Raises:
            OverflowError: They are beyond the years that Python has.
        """
        some = self.rule.after(self.begin_ms if begin_ms is None else begin_ms, self.anchor_ms)
        if begin_ms is None and self.most is not None:
            some = islice(some, max(self.most - self.before_begin(), 0))
        found: list[int] = []
        for each in islice(some if self.until_ms is None else upto(some, self.until_ms), MOST + 1):
            found.append(each)
            if each > end_ms:
                break
        return found if len(found) <= MOST else None

    @property
    def most(self) -> int | None:
        """How many occurrences there are; None for no bound."""
        return min((each for each in (self.count, self.rule.times) if each is not None), default=None)

    def before_begin(self) -> int:
        """How many occurrences of ``R5/<start>/...`` are over when the series begins; they count."""
        if self.rule.times is None or self.rule.starts_ms is None:
            return 0
        start_ms = self.rule.starts_ms
        return sum(
            1 for _ in islice(upto(self.rule.after(start_ms - 1, start_ms), self.begin_ms), self.rule.times)
        )


def terms_of(given: Mapping[str, Any], begins_ms: Any, made_ms: Any, default_zone: str) -> Terms | None:
    """Reads the terms of a series; None if they are in no form that is read here.

    Args:
        given: The columns of :data:`TERMS`.
        begins_ms: Its beginning; None if the command names none.
        made_ms: When the command was made; None if that is not known.
        default_zone: The zone of rules without one.
    """
    policies = {"on_missed": ON_MISSED[0], "on_gap": ON_GAP[0], "on_fold": ON_FOLD[0]}
    said = {name: word if given[name] is None else given[name] for name, word in policies.items()}
    said |= {name: given[name] for name in ("repeat", "time_zone") if given[name] is not None}
    said = {"time_zone": default_zone} | said
    numbers = [given["count"], given["until"], made_ms if begins_ms is None else begins_ms]
    if not all(isinstance(each, str) for each in said.values()):
        return None
    if (
        any(not isinstance(each, int | None) for each in numbers)
        or numbers[2] is None
        or (numbers[0] or 1) < 1
    ):
        return None
    words = {name: said[name].strip().lower() for name in policies}
    rule = read_rule(said["repeat"], said["time_zone"], words["on_gap"], words["on_fold"])
    if rule is None or words["on_missed"] not in ON_MISSED:
        return None
    has_beginning = begins_ms is not None
    anchor_ms = numbers[2] if rule.starts_ms is None else rule.starts_ms
    return Terms(
        rule=rule,
        begin_ms=numbers[2] - has_beginning,
        anchor_ms=anchor_ms,
        has_beginning=has_beginning,
        until_ms=given["until"],
        count=given["count"],
        on_missed=words["on_missed"],
    )
