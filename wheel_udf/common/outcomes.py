"""The words of the account: how a command, an operation or an event ends.

::

    a SCHEDULE or REPLACE    pending, or one of SCHEDULE_OUTCOMES; so is a RETRY
    what was not delivered   fired, and comes back as one more schedule, counted as RETRIED
    an occurrence            one of OCCURRENCE_COUNTS, when the clock has passed it; its series stays pending
    a CANCEL                 one of CANCEL_OUTCOMES
    a FIRE_NOW               one of FIRE_OUTCOMES
    an operation             pending, or one of OPERATION_OUTCOMES; the first three are rows of outcomes
    an event                 one of EVENT_COUNTS

Each word is a count in the state of a shard, a column of its status row and a key of ``BatchReport.counts``.
The order is the order in which the state keeps them: a change of it is a change of the state's format.
"""

from __future__ import annotations

from typing import Final, Literal

SCHEDULE_OUTCOMES: Final = (
    "fired", "missed", "cancelled", "superseded", "duplicate", "rejected", "ended", "dead",
)  # fmt: skip
"""How a SCHEDULE or REPLACE ends; ``ended``: a series after its last occurrence; ``dead``: what came back and is not
tried again."""

CANCEL_OUTCOMES: Final = (
    "applied", "waiting", "late", "cancel_superseded", "cancel_duplicate", "cancel_rejected",
)  # fmt: skip
"""How a CANCEL ends."""

OCCURRENCE_COUNTS: Final = ("occurrences_fired", "occurrences_missed", "occurrences_skipped")
"""How an occurrence of a series ends. These are not among the outcomes of schedules: a series is one schedule."""

RETRIED: Final = "retried"
"""How many entries came back because they could not be delivered; each is one more among the schedules."""

FIRE_OUTCOMES: Final = ("fire_applied", "fire_late", "fire_rejected")
"""How a FIRE_NOW ends: what waited under its id is released, or nothing waited that it could release."""

WHEEL_COUNTS: Final = (*SCHEDULE_OUTCOMES, *CANCEL_OUTCOMES, *OCCURRENCE_COUNTS, *FIRE_OUTCOMES, RETRIED)
"""What a shard of the wheel counts."""

COMPLETED: Final = "completed"
EXPIRED: Final = "expired"
CANCELLED: Final = "cancelled"

Decided = Literal["completed", "expired", "cancelled"]
"""The same words as a type, for settings that name outcomes."""

DECIDED: Final[tuple[Decided, ...]] = (COMPLETED, EXPIRED, CANCELLED)
"""How an operation that waits in the purgatory ends; each of these is a row."""

OPERATION_OUTCOMES: Final = (*DECIDED, "duplicate", "rejected")
"""How an operation of the purgatory ends."""

EVENT_COUNTS: Final = ("events", "event_rejected")
"""What is counted of the purgatory's events."""

WATCH_COUNTS: Final = (*OPERATION_OUTCOMES, "generations", *EVENT_COUNTS)
"""What a shard of the purgatory counts; ``generations``: those of joins and heartbeats after their first."""

BREAKER_STATES: Final = ("closed", "half-open", "open")
"""The states of the breaker of a destination, from good to bad."""
