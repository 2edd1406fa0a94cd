"""The clock of a tiered run: the clock of a batch of commands, of hand-overs, and the one published for the wheel.

::

    clock        of a batch               hand-overs up to            published for the wheel
    processing   none                     the wall clock              none: the wall clock; at the end `until`
    event        largest event time,      the clock of the committed  that of :mod:`wheel_udf.tiered.lead`; at the
                 minus the delay          rows; at the end `until`    end `until`, after the wheel has reached the
                                                                      clock of the last batch
"""

from __future__ import annotations

from collections.abc import Callable

from wheel_udf.control.board import StoreProgress
from wheel_udf.control.clocks import EventClock, ProcessingClock
from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.tiered.keeper import Keeper
from wheel_udf.tiered.lead import Lead
from wheel_udf.tiered.queries import Position


class RunClock:
    """Computes the instants of a run.

    Args:
        clock: The clock of the settings.
        keeper: The keeper, which has cursor, clock and version of the store.
        lead: Under the event clock, the lead of the intake; otherwise None.
    """

    def __init__(self, clock: EventClock | ProcessingClock, keeper: Keeper, lead: Lead | None) -> None:
        self._clock, self._keeper, self._lead = clock, keeper, lead

    def of_batch(self, largest_event_ms: int | None) -> int | None:
        """Returns the clock by a batch's largest event time (UTC epoch ms); None if event times make no clock."""
        if not isinstance(self._clock, EventClock):
            return wall_clock_ms() if self._keeper.cursor_ms is None else None
        return None if largest_event_ms is None else largest_event_ms - self._clock.delay_ms

    def now_ms(self, *, has_ended: bool) -> int | None:
        """Returns the clock up to which slots are handed over, and which a bounded run has to reach (UTC epoch ms).

        None: no clock yet.

        Args:
            has_ended: Whether the input has ended.
        """
        instants = [self._until_ms(has_ended=has_ended)]
        if self._lead is not None:
            instants.append(self._keeper.clock_ms)
        now_ms = max((at for at in instants if at is not None), default=None)
        return wall_clock_ms() if now_ms is None and self._lead is None else now_ms

    def published(
        self, *, has_ended: bool, is_idle: Callable[[], bool], position: Callable[[], Position | None]
    ) -> StoreProgress | None:
        """Returns the progress to publish for the wheel; None: none yet.

        Args:
            has_ended: Whether the input has ended.
            is_idle: Whether nothing more is in the input now; asked after the clock is read, so that it holds for all
                that made the clock.
            position: The position of the wheel's query; None before its first batch.
        """
        keeper, until_ms, clock_ms = self._keeper, self._until_ms(has_ended=has_ended), self._keeper.clock_ms
        if keeper.cursor_ms is None:
            return None
        if self._lead is None:
            return StoreProgress(keeper.cursor_ms, until_ms, keeper.version, until_ms)
        # What is due at the end of the input is released first, as by the direct mode.
        if until_ms is not None and _has_reached(clock_ms, position):
            at_ms = self._lead.reached(until_ms if clock_ms is None else max(clock_ms, until_ms))
        else:
            at_ms = self._lead.clock_ms(clock_ms, lambda: has_ended or is_idle())
        if at_ms is None:
            return None
        return StoreProgress(keeper.cursor_ms, at_ms, keeper.version, at_ms if has_ended else None)

    def _until_ms(self, *, has_ended: bool) -> int | None:
        return self._clock.until_ms if has_ended else None


def _has_reached(clock_ms: int | None, position: Callable[[], Position | None]) -> bool:
    if clock_ms is None:
        return True
    at = position()
    return at is not None and at.clock_ms >= clock_ms
