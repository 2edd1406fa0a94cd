"""FIRE_NOW: which entries it may have released before they were due, and which it must have.

::

    SCHEDULE 1, due 500    read 10
    FIRE_NOW 1             read 200..220           may fire from 200 on, with deliver_at in 200..220: the clock of the
                                                   batch that has read it;  must be out by 220
    FIRE_NOW 1             read 5                  the entry was not there yet: nothing
    FIRE_NOW 0             read 200                the entry is above it: nothing

"Must" only if the SCHEDULE was read before for certain, and no higher version can have beaten it
(:mod:`wheel_udf.testing.ledger.lives`). A FIRE_NOW of a series is for the occurrence for which it waits then:
``deliver_at`` stays the nominal time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wheel_udf.testing.ledger.rows import ANY_TIME, FIRE_NOW, GOOD, OPEN, REFUSED, Command, Refusal, Release
from wheel_udf.testing.ledger.rules import Rules

NOT_HERE = "no_fire_now"
"""The code of a FIRE_NOW in the rejects of a job that does not know it."""


def split_refusals(fires: Sequence[Command], refusals: Sequence[Refusal]) -> list[Refusal]:
    """Marks the FIRE_NOWs of one id that a job has refused as such; returns the other refusals."""
    good = [each for each in fires if each.state == GOOD]
    others = [each for each in refusals if each.code != NOT_HERE]
    number = len(refusals) - len(others)
    if not number or number > len(good):
        return list(refusals)
    for each in good:
        each.state = REFUSED if number == len(good) else OPEN
    return others


def mark(commands: Sequence[Command], fires: Sequence[Command], rules: Rules) -> None:
    """Marks the SCHEDULEs of one id that a FIRE_NOW may have released, or must have."""
    for fire in fires:
        for each in commands:
            if not each.is_schedule or not _is_upto(each, fire):
                continue
            each.fire_from_ms = min(each.fire_from_ms, max(each.read_from_ms, fire.read_from_ms))
            if fire.state == GOOD and _was_read_before(each, fire, rules) and _waits(each, fire, rules):
                each.fire_by_ms = min(each.fire_by_ms, fire.read_by_ms)


def as_fired_now(command: Command, row: Release, fires: Sequence[Command]) -> Command:
    """The command as a FIRE_NOW has changed it, if the row says so; else the command."""
    due, at_ms = command.release_ms, row.due_ms
    if due is None or at_ms is None or not command.read_from_ms <= at_ms < due + command.spread_ms:
        return command
    if at_ms == command.due_ms:
        return command
    if not any(_is_upto(command, each) and each.read_from_ms <= at_ms <= each.read_by_ms for each in fires):
        return command
    return replace(command, due_ms=at_ms, release_ms=at_ms, spread_ms=0)


def may_have_moved(seq: int | None, at_ms: float, fires: Sequence[Command]) -> bool:
    """Whether an occurrence of a series that was released at an instant may have been released by a FIRE_NOW."""
    return any(each.read_from_ms <= at_ms and (each.seq or 0) >= (seq or 0) for each in fires)


def accepted(commands: Sequence[Command]) -> list[Command]:
    """The FIRE_NOWs that may have been applied."""
    return [each for each in commands if each.op == FIRE_NOW and each.state in (GOOD, OPEN)]


def _is_upto(command: Command, fire: Command) -> bool:
    return command.seq is not None and fire.seq is not None and command.seq <= fire.seq


def _was_read_before(command: Command, fire: Command, rules: Rules) -> bool:
    """Whether a SCHEDULE was read before a FIRE_NOW, or in its batch, for certain."""
    if command.order is not None and fire.order is not None:
        return command.order <= fire.order
    before, after = command.read_by_ms, fire.read_from_ms
    return before < after or (rules.clock_rises and before == after)


def _waits(command: Command, fire: Command, rules: Rules) -> bool:
    """Whether the entry was not with the sender of punctual delivery yet."""
    return fire.read_by_ms < ANY_TIME and (command.release_ms or 0) - rules.ahead_ms > fire.read_by_ms
