"""What the Kafka demo sends: commands by the clock of the demo, the same in every run, as records of the ``native``
preset.

::

    second       0 ......................... 60 ................. 90
    schedules    | | | | | | | | | | | | | | |                       each due 1 to 30 s after it is said
    replaces         one id in 13: a new due time, said 4 s or more before the old one
    cancels          one id in 10: said 4 s or more before it is due

A cancel or a replace that is said in good time has to have its effect; with less than that to spare either outcome
would be right, and an account that has to guess proves nothing. What was said when is in :class:`Sent`, filled in
while it is sent.

Pure: no clock, no Kafka client.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime

TARGETS = ("wheel-demo-due-a", "wheel-demo-due-b")
"""The topics that the commands name."""

SHORTEST_DELAY_MS, LONGEST_DELAY_MS = 1_000, 30_000
HEARD_MS, SPARE_MS = 1_000, 4_000
"""A second command is said at least this long after the first one, and before that is due."""

_CANCELLED, _REPLACED, _WHOLE = 17, 13, 200  # of 200 commands; each belongs to a schedule among the others
_SEED = 20_000

Headers = list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Command:
    """A command to be sent.

    Attributes:
        at_ms: When, in ms after the start.
        schedule_id: Of it.
        version: 1 for the schedule, 2 for what takes it back.
        op: SCHEDULE, REPLACE or CANCEL.
        delay_ms: From the moment it is said to its due time; 0 for a cancel.
        target: The topic it names; empty for a cancel.
        says_delay: Whether it gives its due time as a delay, or as an instant.
    """

    at_ms: int
    schedule_id: str
    version: int
    op: str
    delay_ms: int
    target: str
    says_delay: bool


@dataclass(slots=True)
class Sent:
    """A command that was sent.

    Attributes:
        command: It.
        said_ms: The record's timestamp, UTC epoch ms.
        acked_ms: When the broker had it, UTC epoch ms; None if it has not said so.
    """

    command: Command
    said_ms: int
    acked_ms: int | None = None

    @property
    def due_ms(self) -> int:
        """When it is due, UTC epoch ms."""
        return self.said_ms + self.command.delay_ms


def plan(count: int, span_ms: int) -> list[Command]:
    """The commands in the order in which they are sent.

    Args:
        count: How many commands in all, 200 or more.
        span_ms: Over how many ms they are spread.

    Returns:
        ``count`` commands: 8.5% cancels, 6.5% replaces, the rest schedules.
    """
    chance = random.Random(_SEED)  # noqa: S311  # the same commands each time, and no secret
    cancels, replaces = count * _CANCELLED // _WHOLE, count * _REPLACED // _WHOLE
    schedules = count - cancels - replaces
    first = [_schedule(number, number * span_ms // schedules, chance) for number in range(schedules)]
    # Only those with the time for it: heard of for a while, SPARE_MS before they are due, and before the end.
    windows = {
        each: (each.at_ms + HEARD_MS, min(each.at_ms + each.delay_ms - SPARE_MS, span_ms - 1))
        for each in first
    }
    roomy = [each for each, (begin_ms, end_ms) in windows.items() if begin_ms <= end_ms]
    chosen = chance.sample(roomy, cancels + replaces)
    moments = {each: chance.randint(*windows[each]) for each in chosen}
    second = [_cancel(each, moments[each]) for each in chosen[:cancels]]
    second += [_replace(each, moments[each], chance) for each in chosen[cancels:]]
    return sorted([*first, *second], key=lambda each: (each.at_ms, each.version))


def _schedule(number: int, at_ms: int, chance: random.Random) -> Command:
    delay_ms = chance.randint(SHORTEST_DELAY_MS, LONGEST_DELAY_MS)
    target = TARGETS[number % len(TARGETS)]
    return Command(at_ms, f"demo-{number:05}", 1, "SCHEDULE", delay_ms, target, says_delay=number % 3 != 0)


def _cancel(first: Command, at_ms: int) -> Command:
    return replace(first, at_ms=at_ms, version=2, op="CANCEL", delay_ms=0, target="")


def _replace(first: Command, at_ms: int, chance: random.Random) -> Command:
    delay_ms = chance.randint(SHORTEST_DELAY_MS, LONGEST_DELAY_MS)
    return replace(first, at_ms=at_ms, version=2, op="REPLACE", delay_ms=delay_ms)


def key_of(command: Command) -> bytes:
    """The record's key: the id, so that all commands of an id keep to one partition and their order."""
    return command.schedule_id.encode()


def value_of(command: Command) -> bytes | None:
    """The record's value, which says whose it is; a cancel has none."""
    return None if command.op == "CANCEL" else f"{command.schedule_id} version {command.version}".encode()


def headers_of(sent: Sent) -> Headers:
    """The record's headers: those of the preset ``native``, and one of the producer's own that has to arrive."""
    command = sent.command
    headers = [("wheel-id", command.schedule_id.encode())]
    if command.op != "SCHEDULE":
        headers.append(("wheel-op", command.op.encode()))
    if command.op == "CANCEL":
        return headers
    when = (
        ("wheel-delay", f"{command.delay_ms} ms".encode())
        if command.says_delay
        else ("wheel-deliver-at", iso(sent.due_ms).encode())
    )
    return [
        *headers,
        when,
        ("wheel-target", command.target.encode()),
        ("trace", command.schedule_id.encode()),
    ]


def iso(instant_ms: int) -> str:
    """A UTC epoch ms as the ISO 8601 text of the headers: ``2026-01-01T10:00:00.000Z``."""
    seconds, ms = divmod(instant_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ms:03}Z"
