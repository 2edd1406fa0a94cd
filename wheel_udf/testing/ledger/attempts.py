"""Rows of one version and due time: which of them are one release, although they are several.

::

    fired, attempt 1 | fired, attempt 2          one delivery, tried again: the same fire id
    fired, attempt 1 | dead letter               the consumer has given it back, until its last attempt
    fired, attempt 1 | missed                    likewise, and then it was too late
    dead letter      | fired later               perhaps sent again by ``redrive``: undecided
    fired, attempt 1 | fired, attempt 1          twice, unless the sink repeats rows
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from wheel_udf.testing.ledger.rows import DEAD, FIRED, RETRY, Command, Release


def given_back(commands: Iterable[Command]) -> set[int | None]:
    """The versions of one id that consumers have given back, by RETRYs."""
    return {each.seq for each in commands if each.op == RETRY}


def is_one(one: Release, other: Release, *, is_given_back: bool) -> bool:
    """Whether two rows of a version, in order of time, can be one release.

    Args:
        one: The earlier row.
        other: The later one.
        is_given_back: Whether a consumer has given the version back.
    """
    if DEAD in (one.how, other.how):
        return may_be_redriven(one, other) or (
            one.how != other.how and (is_given_back or one.repeatable or other.repeatable)
        )
    if one.how != other.how:
        # A batch was repeated, and the second time the topic refused the record; or what came back was too late.
        return one.repeatable or other.repeatable or is_given_back
    return one.how == FIRED and one.fire_id == other.fire_id and (one.attempt or 1) != (other.attempt or 1)


def may_be_redriven(one: Release, other: Release) -> bool:
    """Whether the later one of two rows may come from a dead letter that was sent again."""
    return one.how == DEAD and other.at_ms > one.at_ms


def doubles(rows: Sequence[Release], *, is_given_back: bool) -> list[tuple[Release, Release]]:
    """Of rows of one version and due time, in order of time, the pairs that are not one release."""
    found = [pair for pair in pairwise(rows) if not is_one(*pair, is_given_back=is_given_back)]
    attempts: dict[int | None, Release] = {}
    for row in rows:
        same = attempts.setdefault(row.attempt, row) if row.how == FIRED else row
        if same is not row and (same, row) not in found and not _is_between(same, row, rows):
            found.append((same, row))
    return found


def _is_between(one: Release, other: Release, rows: Sequence[Release]) -> bool:
    """Whether a dead letter came between two rows: then attempts begin anew."""
    return any(row.how == DEAD and one.at_ms <= row.at_ms <= other.at_ms for row in rows)
