"""The lead of the intake under the event clock: which clock the wheel gets, and how far the intake may be ahead of it.

The intake reads a backlog faster than the wheel fires. A command that replaces or cancels an entry must not reach the
wheel before the entry has had its chance to fire. So the intake waits for the wheel after each batch, and the wheel
gets the clock that the direct mode would have in that batch: the watermark lags one batch behind the rows. An example
with a file a batch, largest event times 10:00, 11:00, 12:00::

    intake   file 1 ------> file 2 ..waits.. -----------> file 3 ..waits.. -----------> end of input
    keeper          hand over to 10:00       to 11:00              to 12:00
    wheel                   reads 1, 2; clock 10:00       reads 3; clock 11:00          clock 12:00, then `until`

An entry due at 10:30 that file 2 has scheduled fires if file 3 does not replace it; a command on it in file 4 is too
late, in both modes.

* **Clock**: the store's log has the clock of a batch and the clock before it
  (:data:`wheel_udf.store.head.CLOCK_BEFORE`), so a restart knows both. The wheel gets the one before, and the clock
  itself as soon as the intake has nothing more to read.
* **Steps**: the wheel's clock goes from one batch's clock to the next. While a hand-over is needed for that, it
  stands. So lateness, and what is ``missed``, are those of the direct mode.
* **Turns** (bounded input): the wheel is held at the end of its batch until its next one finds a batch of the intake
  with its clock (:meth:`wheel_udf.tiered.run.TieredRun.note`). So it runs one batch for each of the intake, and none
  in between for the commits of hand-overs. The intake need not wait for the commit of the wheel's batch: what that has
  planned to read is fixed.
* **No deadlock**: the intake waits after its commit and without the keeper's lock. All that it waits for (a hand-over,
  a batch of the wheel) follows from what is committed. A stop ends the wait; the batch has been written, so its
  function returns normally. The next start begins the intake when the wheel has read what the store has.

With ``lead_windows`` of at least 1, the intake waits only while it is further ahead than that many windows, and the
wheel gets the clock of the committed rows. That is faster. But commands that are read meanwhile end entries that the
direct mode would have fired.

Caveats: the same rows as the direct mode, if both have the same batches of the same files and no limit on the rows of
a batch. Without turns the wheel may read a batch of the intake while its clock is one batch behind, so an id that ends
in it is forgotten a batch earlier. The processing clock has no lead: rows do not move it.
"""

from __future__ import annotations

from collections.abc import Callable

from wheel_udf.tiered.keeper import Keeper
from wheel_udf.tiered.queries import Position


class Lead:
    """Bounds how far the intake is ahead of the wheel.

    Args:
        keeper: Has the cursor, the clock of the committed rows, and the clock before it.
        windows: The bound, in windows of the layout; 0: the wheel has passed the clock of the batch before.
    """

    def __init__(self, keeper: Keeper, windows: int) -> None:
        self._keeper, self._windows = keeper, windows
        self._standing_ms: int | None = None

    def clock_ms(self, committed_ms: int | None, is_idle: Callable[[], bool]) -> int | None:
        """Returns the clock for the wheel (UTC epoch ms); None before there is one. It never goes back.

        Args:
            committed_ms: The clock of the committed rows; None before there is one.
            is_idle: Whether the intake has read all its input since; asked only if that makes a difference.
        """
        if self._windows or committed_ms is None:
            return committed_ms
        before_ms = self._clock_before_ms(committed_ms)
        is_last = committed_ms in (before_ms, self._standing_ms) or is_idle()
        return self.reached(committed_ms if is_last else before_ms)

    def reached(self, clock_ms: int) -> int | None:
        """Returns a clock for the wheel (UTC epoch ms), or its present one while the clock needs a hand-over first."""
        if self._windows:
            return clock_ms
        cursor_ms, standing_ms = self._keeper.cursor_ms, self._standing_ms
        if cursor_ms is not None and not self._keeper.layout.is_due(clock_ms, cursor_ms):
            self._standing_ms = clock_ms if standing_ms is None else max(standing_ms, clock_ms)
        return self._standing_ms

    def allows(self, position: Position | None) -> bool:
        """Whether the intake may commit its next batch.

        Args:
            position: The position of the wheel's query, committed or planned; None before its first batch.
        """
        keeper = self._keeper
        clock_ms, cursor_ms = keeper.clock_ms, keeper.cursor_ms
        if clock_ms is None or cursor_ms is None:
            return True
        if position is None:
            return False
        if self._windows:
            return clock_ms - position.clock_ms <= self._windows * keeper.layout.window_ms
        return (
            position.version >= keeper.taken_in
            and position.clock_ms >= self._clock_before_ms(clock_ms)
            # The next batch makes this clock the wheel's.
            and not keeper.layout.is_due(clock_ms, cursor_ms)
        )

    def _clock_before_ms(self, clock_ms: int) -> int:
        """The clock of a batch's rows: that of the batches before; of the first 0, as Spark's first watermark."""
        before_ms = self._keeper.clock_before_ms
        return min(clock_ms, 0) if before_ms is None else before_ms
