"""A tiered run in progress: :class:`TieredRun` supervises intake and wheel, publishes the clock, and ends the run.

::

    intake's query --take_in--> keeper --> store --> wheel's query --note--> report
          |                       ^                                            |
          `-- held by the pause,  |            held in turns with the intake --|
              or by the lead      |                                            |
                      ^           |                                            |
                      `--- supervisor's thread, ten times a second <-----------'
                           hand over what is near, publish the clock, let the intake go on, end the run; every
                           second: take acts; every 10 s: retire, join files, in parts, and between two of them look
                           again for what is near;
                           each hour a thread deletes files that have expired

The run owns both queries, the thread and the leases. It releases the leases when no part of it runs any more. If
:meth:`TieredRun.stop` cannot stop a part, it raises an error that names the part.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from wheel_udf.checkpoint.identity import Identity
from wheel_udf.checkpoint.lease import Lease
from wheel_udf.common.errors import StopError
from wheel_udf.control.board import STORES, ShardBoard, StoreProgress
from wheel_udf.control.clocks import ProcessingClock
from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.delivery.report import BatchReport
from wheel_udf.spark.failures import first_line, is_jvm_end
from wheel_udf.spark.files import local_folder
from wheel_udf.spark.queries import stop_between_batches
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.tiered.figures import StoreFigures
from wheel_udf.tiered.keeper import Keeper
from wheel_udf.tiered.lead import Lead
from wheel_udf.tiered.pause import IntakePause
from wheel_udf.tiered.pressure import Pressure
from wheel_udf.tiered.queries import (
    Position,
    has_read_all,
    planned_position,
    position_of,
)
from wheel_udf.tiered.retirement import Retirements
from wheel_udf.tiered.run_clock import RunClock
from wheel_udf.tiered.settings import TieredWheel

_log = logging.getLogger(__name__)

_POLL_S = 0.1
_ACTS_EVERY_POLLS = 10
_ACTS_EVERY_POLLS_REMOTE = 50
"""Each look is a request if the checkpoint is in an object store."""
TEND_EVERY_POLLS = 100
VACUUM_EVERY_POLLS = 36_000
_PATIENCE_S = 60.0


def _never() -> bool:
    return False


class TieredRun:
    """A running intake, keeper and wheel; has the methods of a streaming query (``awaitTermination``, ``stop``,
    ``status``, ``lastProgress``).
    """

    def __init__(
        self,
        store: SlotStore,
        what: TieredWheel,
        identity: Identity,
        leases: list[Lease],
        pressure: Pressure | None,
        *,
        checkpoint: str,
        bounded: bool,
    ) -> None:
        self.what, self.bounded, self.token = what, bounded, uuid.uuid4().hex
        self.board = ShardBoard()
        self.wheel: StreamingQuery | None = None
        self.intake: StreamingQuery | None = None
        self.leases, self._pressure, self.pause = leases, pressure, IntakePause()
        self._end = threading.Event()
        self._over = threading.Event()
        self._fault: BaseException | None = None
        self._last_report: BatchReport | None = None
        self.last_published: StoreProgress | None = None
        self._publishing = threading.Lock()
        self._tending: Iterator[bool] | None = None
        self.vacuum: threading.Thread | None = None
        store.require_lease = self._require_leases
        self.keeper = Keeper(store, app_id=identity.app_id, on_change=self.publish, pressure=pressure)
        self._checkpoint = checkpoint
        self._acts_every = _ACTS_EVERY_POLLS if local_folder(checkpoint) else _ACTS_EVERY_POLLS_REMOTE
        self.inherited_version = self.keeper.version
        """What earlier runs have left for the wheel to read ends here."""
        self._retirements = Retirements(self.keeper, what.memory_ms, what.history_ms)
        self._figures = StoreFigures(what.layout)
        is_wall_clock = isinstance(what.clock, ProcessingClock)
        self.lead = None if is_wall_clock else Lead(self.keeper, what.lead_windows)
        # Limits count what the wheel has committed, so with them the intake waits for that.
        self.takes_turns = bounded and not is_wall_clock and not what.lead_windows and pressure is None
        self.turn = IntakePause()
        self.clock = RunClock(what.clock, self.keeper, self.lead)
        if is_wall_clock:
            self.keeper.start(wall_clock_ms())
        self.keeper.take_acts(checkpoint)
        self.publish(self.keeper)
        self._look_at_store()
        self.supervisor = threading.Thread(target=self._keep, name="wheel-keeper", daemon=True)

    def begin(self, wheel: StreamingQuery, start_intake: Callable[[], StreamingQuery]) -> None:
        """Takes the wheel's query, starts the intake and the supervisor's thread.

        If a limit is reached already, the intake starts when there is room. A bounded one starts in any case, since
        only its query knows whether there is any input. Under the event clock it starts when the wheel has read what
        an earlier run has left.
        """
        self.wheel, self._start_intake = wheel, start_intake
        if self.lead.allows(None) if self.lead is not None else self.bounded or self._may_take_in():
            self.intake = start_intake()
        self.supervisor.start()

    def _require_leases(self) -> None:
        for lease in self.leases:
            lease.check()

    # ---- the intake ----------------------------------------------------------------------------------

    def take_in(self, parsed: DataFrame, batch_id: int) -> None:
        """Commits a batch of parsed commands to the store.

        Then it pauses while a limit is reached (:mod:`wheel_udf.tiered.pause`), and waits while it is too far ahead of
        the wheel (:mod:`wheel_udf.tiered.lead`).
        """
        waits_first = self.bounded and self.lead is None
        if waits_first:
            self.wait_for_room()
        self.keeper.take_in(parsed, batch_id, self.clock_of)
        if not waits_first:
            self.wait_for_room()

    def wait_for_room(self) -> None:
        """Holds the intake while it may take nothing in."""
        if not self._may_take_in():
            self.pause.hold(self._intake_is_active)

    def _intake_is_active(self) -> bool:
        return self.intake is None or self.intake.isActive

    @property
    def paused(self) -> bool:
        """Whether the intake waits because a limit is reached."""
        unbegun = self.wheel is not None and self.intake is None
        return self.lead is None and (self.pause.holds or unbegun)

    def _may_take_in(self) -> bool:
        if self.lead is not None:
            return self.lead.allows(self._reached())
        return self._pressure is None or not self._pressure.pauses or self._pressure.has_room()

    def go_on_if_possible(self) -> None:
        """Lets what is held go on: the intake if there is room, the wheel if there is more to read."""
        if (self.intake is None or self.pause.holds) and self._may_go_on():
            if self.intake is None:
                self.intake = self._start_intake()
            else:
                self.pause.release()
        if self.turn.holds and self.has_more_to_read():
            self.turn.release()

    def _may_go_on(self) -> bool:
        if self.lead is not None:
            return self._may_take_in()
        return self._pressure is not None and self._pressure.has_room_again(self._what_makes_room)

    def _what_makes_room(self) -> object:
        """Changes when entries have ended in the wheel, or an act has changed some."""
        counts = None if self._last_report is None else self._last_report.counts
        return counts, self.keeper.version

    # ---- turns ---------------------------------------------------------------------------------------

    def _reached(self) -> Position | None:
        """The wheel's position for the lead: what a planned batch has not read it never reads, so where the two take
        turns the intake may go on.
        """
        return planned_position(self._checkpoint) if self.takes_turns else self.position()

    def has_more_to_read(self) -> bool:
        """Whether the wheel's next batch can read a batch of the intake or a later clock, or neither will come."""
        if self._is_idle() or not (self.intake is None or self.intake.isActive):
            return True
        taken_in, published = self.keeper.taken_in, self.last_published
        if published is None or published.clock_ms is None or published.version < taken_in:
            return False
        reached = self._reached()
        return reached is None or reached.version < taken_in or reached.clock_ms < published.clock_ms

    def _wheel_is_active(self) -> bool:
        return self.wheel is None or self.wheel.isActive

    # ---- the clock -----------------------------------------------------------------------------------

    def clock_of(self, largest_event_ms: int | None) -> int | None:
        """Returns the clock that follows from the largest event time of a batch; None if event times make no clock."""
        return self.clock.of_batch(largest_event_ms)

    @property
    def input_has_ended(self) -> bool:
        """Whether the input is bounded and all of it is in the store. An intake that was stopped or has failed has not
        read all.
        """
        if not self.bounded or self.intake is None or self._end.is_set() or self.intake.isActive:
            return False
        return self.intake.exception() is None

    def _is_idle(self) -> bool:
        return not self.bounded and self.intake is not None and has_read_all(self.intake)

    def position(self) -> Position | None:
        """How far the wheel has read."""
        return position_of(self.wheel)

    def now_ms(self) -> int | None:
        """The clock of the run."""
        return self.clock.now_ms(has_ended=self.input_has_ended)

    def publish(self, _keeper: Keeper, *, only_news: bool = False) -> None:
        """Publishes the clock, or only a changed one. Intake and supervisor call it; the lock keeps the order."""
        with self._publishing:
            published = self.clock.published(
                has_ended=self.input_has_ended, is_idle=self._is_idle, position=self.position
            )
            if published is not None and not (only_news and published == self.last_published):
                self.last_published = published
                self.board.put(STORES, self.token, published)

    # ---- the supervisor ------------------------------------------------------------------------------

    def note(self, report: BatchReport, on_batch: Callable[[BatchReport], None] | None) -> None:
        """Records a report of the wheel and passes it on. In turns with the intake (:mod:`wheel_udf.tiered.lead`) it
        holds the batch until there is more to read.
        """
        report = replace(report, clock_kind=self.what.clock.kind, store=self._figures.stored)
        if self._pressure is not None:
            full = self._pressure.full(report.pending)
            report = replace(report, full=full, paused=self.paused)
        self._last_report = report
        if on_batch is not None:
            on_batch(report)
        if self.takes_turns and not self.has_more_to_read():
            self.turn.hold(self._wheel_is_active)

    def _keep(self) -> None:
        try:
            polls = 0
            while not self._end.wait(_POLL_S) and self._runs():
                self._require_leases()
                ended = self.input_has_ended
                self.publish(self.keeper, only_news=True)
                self.look_at_wheel()
                self.go_on_if_possible()
                now_ms = self.now_ms()
                if now_ms is not None:
                    self.step(now_ms)
                polls += 1
                if polls % self._acts_every == 0:
                    self.keeper.take_acts(self._checkpoint)
                self.tend(begin=polls % TEND_EVERY_POLLS == 0)
                if polls % VACUUM_EVERY_POLLS == 0:
                    self._begin_vacuum()
                if ended and self._is_done():
                    # Without it the wheel has no clock, and begins no batch that the stop would cut off.
                    self.board.remove(STORES, self.token)
                    self._stop_queries(is_asked=self._end.is_set)
                    self._retirements.finish(self._last_report)
                    break
        except BaseException as fault:  # noqa: BLE001  # raised by awaitTermination on the caller's thread
            self._fault = fault
        finally:
            self._shut_down()

    def tend(self, *, begin: bool) -> None:
        """Does the next part of the work of every ten seconds, if any is left, or if it is time to begin it again."""
        if begin and self._tending is None:
            self._tending = self._parts_of_tending()
        if self._tending is not None and not next(self._tending, False):
            self._tending = None

    def _begin_vacuum(self) -> None:
        """Deletes files that have expired, on a thread of its own: all files of the store are listed, and a hand-over
        that waited for it would leave the wheel's clock standing at the cursor.
        """
        if self.vacuum is None or not self.vacuum.is_alive():
            # A daemon: nothing is lost if the process ends meanwhile.
            self.vacuum = threading.Thread(target=self._try_vacuum, name="wheel-vacuum", daemon=True)
            self.vacuum.start()

    def _try_vacuum(self) -> None:
        try:
            self.keeper.store.vacuum()
        except Exception as fault:  # noqa: BLE001  # the store is whole without it
            if not is_jvm_end(fault):
                _log.warning(
                    "expired files of the slot store stay for another hour: %s", first_line(str(fault))
                )

    def _parts_of_tending(self) -> Iterator[bool]:
        """The work of every ten seconds, a part for each True. A retirement takes seconds, and so does each partition
        whose files are joined: a hand-over that waited for all of it would leave the wheel's clock standing at the
        cursor.
        """
        # The board is a folder for temporary files. If somebody has emptied it, the wheel's clock stands still until
        # the next commit.
        self.publish(self.keeper)
        self.keeper.require_untouched()
        self._look_at_store()
        yield True
        self._retirements.look(self._last_report, self.position())
        yield True
        for _ in self.keeper.compact():
            yield True

    def look_at_wheel(self) -> None:
        """Once the wheel has read what earlier runs have left, what expires of the log may go: from then on the wheel
        is a few batches behind.
        """
        if not self.keeper.store.log_is_read:
            position = self.position()
            self.keeper.store.log_is_read = (
                position is not None and position.version >= self.inherited_version
            )

    def _look_at_store(self) -> None:
        self._figures.look(self.keeper.store.partitions(), self.now_ms() or 0)

    def _runs(self) -> bool:
        """Whether both queries run, or have ended as they should; the failure of one is the failure of the run."""
        assert self.wheel is not None, "begun"
        for query in (self.wheel, self.intake):
            if query is not None and not query.isActive and (fault := query.exception()) is not None:
                self._fault = fault
                return False
        return self.wheel.isActive and (self.bounded or self.intake is None or self.intake.isActive)

    def step(self, now_ms: int) -> None:
        """Hands over what is near; else tidies the inbox."""
        done = self.keeper.step(now_ms)
        if done is None:
            self.keeper.tidy()
        else:
            self._figures.hand_over(done.by_level)
            _log.info("handed over %d rows of %d slots, cursor %d", done.rows, done.slots, done.cursor_ms)

    def _is_done(self) -> bool:
        """Whether the wheel has read all of a bounded input and released what is due at the end."""
        position, report, end_ms = self.position(), self._last_report, self._end_ms
        if end_ms is None:
            return True  # there was never any input
        if position is None or report is None or position.version < self.keeper.version or report.backlog:
            return False
        # An idle clock moves only with its next heartbeat, which need not be waited for.
        cursor_ms, due_ms = self.keeper.cursor_ms, report.next_due_ms
        is_idle = report.complete and (due_ms is None or due_ms > end_ms)
        return position.clock_ms >= end_ms or (is_idle and cursor_ms is not None and cursor_ms > end_ms)

    @cached_property
    def _end_ms(self) -> int | None:
        """Returns the instant that the clock has to reach after the end of the input; None if there was never any
        input.
        """
        assert self.input_has_ended, "fixed at the end of the input, unlike the wall clock"
        return self.now_ms()

    # ---- the end -------------------------------------------------------------------------------------

    def _stop_queries(self, is_asked: Callable[[], bool] = lambda: True) -> None:
        if self.bounded and self.lead is None:
            self.pause.end()
        for query in (self.intake, self.wheel):
            is_held = _never if query is self.wheel else lambda: self.pause.holds
            if query is self.wheel:
                self.turn.end()
            if query is not None and query.isActive:
                try:
                    # A stop ends the wait; the batch that is held is written.
                    stop_between_batches(query, is_asked, is_held)
                except Exception as fault:  # noqa: BLE001  # the other query is stopped in any case
                    self._fault = self._fault or fault

    def _shut_down(self) -> None:
        self._stop_queries()
        if not self._active_queries():
            for lease in self.leases:
                lease.close()
        self.board.remove(STORES, self.token)
        self._over.set()

    def _active_queries(self) -> list[str]:
        queries = {"the intake's query": self.intake, "the wheel's query": self.wheel}
        return [name for name, query in queries.items() if query is not None and query.isActive]

    # ---- like a query --------------------------------------------------------------------------------

    @property
    def isActive(self) -> bool:  # noqa: N802  # Spark's name
        """Whether the run, or any part of it, still runs."""
        return not self._over.is_set() or bool(self._active_queries())

    @property
    def status(self) -> Mapping[str, Any]:
        """Status of the wheel's query."""
        return {} if self.wheel is None else self.wheel.status

    @property
    def lastProgress(self) -> Any:  # noqa: N802  # Spark's name
        """Last progress of the wheel's query."""
        return None if self.wheel is None else self.wheel.lastProgress

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802  # Spark's name
        """Waits for the end of the run, at most `timeout` seconds; returns whether it has ended. Raises the error that
        ended it, if any.
        """
        over = self._over.wait(timeout)
        if over and self._fault is not None:
            raise self._fault
        return over if timeout is not None else None

    def stop(self, timeout: float = _PATIENCE_S) -> None:
        """Stops intake, keeper and wheel, each after the work in progress.

        Args:
            timeout: How long to wait for the supervisor's thread, in seconds.

        Raises:
            StopError: A part still runs after that; it keeps its leases. Call again to wait longer.
        """
        self._end.set()
        if self.supervisor.is_alive():
            self.supervisor.join(timeout)
        else:
            self._shut_down()
        running = ["the supervisor's thread"] * self.supervisor.is_alive() + self._active_queries()
        if running:
            raise StopError(
                f"the run has not stopped, still running: {', '.join(running)}",
                field="timeout",
                value=timeout,
                hint="call stop() again to wait longer",
            ) from self._fault
