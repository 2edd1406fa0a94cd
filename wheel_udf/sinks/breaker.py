"""Breakers: which destinations rest because they fail, until when.

::

    closed  --n attempts in a row fail-->  open until t  --t-->  half-open: one row tries it
       ^                                       ^                      |
       '------------- it takes a row ----------+----- it fails -------'

Whether a destination takes rows is seen by what a batch has written; the shards learn it with the next tick, and hold
back its rows (:mod:`wheel_udf.policies.rates`). The state lives in the driver: after a restart each one is tried.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from wheel_udf.common.outcomes import BREAKER_STATES

_log = logging.getLogger(__name__)

CLOSED, HALF_OPEN, OPEN = BREAKER_STATES


@dataclass
class Breaker:
    """The breaker of one destination.

    Attributes:
        failures: After how many failed attempts in a row it opens.
        cooldown_ms: How long it stays open.
        failed: The attempts that have failed since the last row that was taken.
        until_ms: Until when it is open; None: it is closed.
    """

    failures: int
    cooldown_ms: int
    failed: int = 0
    until_ms: int | None = None

    def state(self, clock_ms: int) -> str:
        """``closed``, ``open`` or ``half-open``."""
        if self.until_ms is None:
            return CLOSED
        return OPEN if clock_ms < self.until_ms else HALF_OPEN


@dataclass
class Breakers:
    """The breakers of a query, by destination."""

    by_name: dict[str, Breaker] = field(default_factory=dict)

    def note(
        self, name: str, settings: tuple[int, int], *, taken: int, failed: int, clock_ms: int, why: str
    ) -> None:
        """Notes what a batch has done.

        Args:
            name: The destination.
            settings: After how many failures the breaker opens (0: never), and for how long, in ms.
            taken: Rows that the destination has answered for good, also with a refusal.
            failed: Attempts that failed and may succeed later.
            clock_ms: The clock of the batch.
            why: Of the last failure.
        """
        breaker = self.by_name.setdefault(name, Breaker(*settings))
        breaker.failures, breaker.cooldown_ms = settings
        if taken:
            if breaker.until_ms is not None:
                _log.info("the breaker of %s is closed again: it takes rows", name)
            breaker.failed, breaker.until_ms = 0, None
            return
        breaker.failed += failed
        is_half_open = breaker.state(clock_ms) == HALF_OPEN
        if failed and breaker.failures and (breaker.failed >= breaker.failures or is_half_open):
            if breaker.until_ms is None:
                many, wait_s = breaker.failed, breaker.cooldown_ms / 1000
                _log.warning(
                    "the breaker of %s is open for %g s after %d failed attempts: %s", name, wait_s, many, why
                )
            breaker.until_ms = clock_ms + breaker.cooldown_ms

    def closed_until(self) -> Mapping[str, int]:
        """The destinations that rest or are only tried, each with the instant from which on."""
        return {name: each.until_ms for name, each in self.by_name.items() if each.until_ms is not None}

    def states(self, clock_ms: int) -> Mapping[str, str]:
        """The state of each breaker that has seen a failure."""
        return {name: each.state(clock_ms) for name, each in self.by_name.items()}
