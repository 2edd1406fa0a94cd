"""A tiered run while it goes on: what time it is, when the keeper has something to do, when a bounded input is done. Started by :mod:`wheel_udf.tiered`.

One thread polls ten times a second: it hands over what the clock has come near to, starts a paused intake again when there is room, retires
and joins what is done (every 10 s), and ends the run.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from pyspark.sql.streaming.query import StreamingQuery

from wheel_udf.by_shard import DEFAULT_MEMORY_MS
from wheel_udf.checkpoint import Identity, Lease
from wheel_udf.clock import EventClock, ProcessingClock, wall_clock_ms
from wheel_udf.commands import Contract
from wheel_udf.errors import ConfigError, IntakePausedError
from wheel_udf.geometry import Wheel
from wheel_udf.hints import HintBoard, Published
from wheel_udf.limits import Limits
from wheel_udf.metrics import BatchReport
from wheel_udf.pressure import Pressure
from wheel_udf.slot_store import SlotStore
from wheel_udf.store_keeper import HandedOver, Keeper
from wheel_udf.store_layout import StoreLayout
from wheel_udf.store_table import DEFAULT_KEEP_MS

_POLL_S = 0.1
_RETIRE_EVERY_POLLS = 100
_VACUUM_EVERY_POLLS = 36_000
_PATIENCE_S = 60


@dataclass(frozen=True, kw_only=True)
class TieredWheel:
    """What a tiered run is made of; see :func:`wheel_udf.tiered.start_tiered`.

    Attributes:
        layout: Which levels are where.
        store: Place of the slot store.
        clock: What time it is.
        shards: How many independent wheels share the ids.
        contract: Bounds and defaults of the commands.
        memory_ms: How long an ended id is remembered; ``None`` for ever.
        limit: Most rows released in a batch; ``None`` for no bound.
        limits: How many entries may wait.
        history_ms: How long rows stay in the store after their due time.
        keep_ms: How long a new store keeps files and log entries that nothing needs any more.
        on_limit: What happens then: ``reject`` what is new, or ``pause`` the intake (not with the event clock, which would stand).
    """

    layout: StoreLayout
    store: str
    clock: EventClock | ProcessingClock
    shards: int = 4
    contract: Contract = Contract()  # noqa: RUF009  # frozen
    memory_ms: int | None = DEFAULT_MEMORY_MS
    limit: int | None = None
    limits: Limits = Limits()  # noqa: RUF009  # frozen
    on_limit: Literal["reject", "pause"] = "reject"
    history_ms: int = 0
    keep_ms: int = DEFAULT_KEEP_MS

    def __post_init__(self) -> None:
        if self.on_limit == "pause" and isinstance(self.clock, EventClock):
            raise ConfigError(
                "the intake cannot pause here",
                field="on_limit",
                value="pause",
                rule="not with the event clock: commands move it, so nothing would make room again",
            )

    @property
    def wheel(self) -> Wheel:
        """The geometry."""
        return self.layout.wheel


def _is_pause(fault: BaseException | None) -> bool:
    # Spark tells the text of what a batch function raised, and no more.
    return fault is not None and IntakePausedError.__name__ in str(fault)


def _stop_between_batches(query: StreamingQuery) -> None:
    """Stops a query when the batch that it is in has ended, or takes too long.

    In the middle of a batch function Spark looks for an interruption in the error's text with a regular expression that recurses for each of
    its characters, and prints a thousand lines of a StackOverflowError (SPARK 4.2, ``StreamExecution.PROXY_ERROR``).
    """
    before, patience = query.lastProgress, threading.Event()
    for _ in range(int(_PATIENCE_S / 4 / _POLL_S)):
        if not query.isActive or not query.status["isTriggerActive"] or query.lastProgress != before:
            break
        patience.wait(_POLL_S)
    query.stop()


def _offset(told: Any) -> Any:
    """An offset of a progress report, which has it as JSON text or read already."""
    try:
        return json.loads(told) if isinstance(told, str) else told
    except ValueError:
        return None


class TieredRun:
    """The running whole; answers like a streaming query (``awaitTermination``, ``stop``, ``status``, ``lastProgress``)."""

    def __init__(
        self,
        store: SlotStore,
        what: TieredWheel,
        identity: Identity,
        leases: list[Lease],
        pressure: Pressure | None,
        *,
        bounded: bool,
    ) -> None:
        self.what, self.bounded, self.token = what, bounded, uuid.uuid4().hex
        self.board = HintBoard()
        self.wheel: StreamingQuery | None = None
        self.intake: StreamingQuery | None = None
        self.paused = False
        self.handed_over: list[HandedOver] = []
        self._leases, self._pressure = leases, pressure
        self._end = threading.Event()
        self._over = threading.Event()
        self._fault: BaseException | None = None
        self._last_report: BatchReport | None = None
        self._retirable: tuple[int, int] | None = None
        self.keeper = Keeper(store, app_id=identity.app_id, on_change=self._publish, pressure=pressure)
        if isinstance(what.clock, ProcessingClock):
            self.keeper.start(wall_clock_ms())
        self._publish(self.keeper)
        self._thread = threading.Thread(target=self._keep, name="wheel-keeper", daemon=True)

    def begin(self, wheel: StreamingQuery, start_intake: Callable[[], StreamingQuery]) -> None:
        """Takes the wheel's query, starts the intake's (again after each pause) and the keeper's thread."""
        self.wheel, self._start_intake = wheel, start_intake
        self.intake = start_intake()
        self._thread.start()

    # ---- what time it is ---------------------------------------------------------------------------------------------

    def clock_of(self, largest_event_ms: int | None) -> int | None:
        """The event clock that follows from the largest event time of a batch; None where events make no clock."""
        if not isinstance(self.what.clock, EventClock):
            return wall_clock_ms() if self.keeper.cursor_ms is None else None
        return None if largest_event_ms is None else largest_event_ms - self.what.clock.delay_ms

    @property
    def input_has_ended(self) -> bool:
        """Whether the input was bounded and is all in the store."""
        return self.bounded and self.intake is not None and not self.intake.isActive and not self._is_paused()

    def _until_ms(self) -> int | None:
        return self.what.clock.until_ms if self.input_has_ended else None

    def _told_clock_ms(self) -> int | None:
        """What is published as the clock; None: the wall clock, or nothing yet."""
        instants = [self._until_ms()]
        if isinstance(self.what.clock, EventClock):
            instants.append(self.keeper.clock_ms)
        return max((at for at in instants if at is not None), default=None)

    def _now_ms(self) -> int | None:
        told_ms = self._told_clock_ms()
        if told_ms is None and isinstance(self.what.clock, ProcessingClock):
            return wall_clock_ms()
        return told_ms

    def _publish(self, keeper: Keeper) -> None:
        told_ms = self._told_clock_ms()
        if keeper.cursor_ms is None or (told_ms is None and isinstance(self.what.clock, EventClock)):
            return
        published = Published(keeper.cursor_ms, told_ms, keeper.version, self._until_ms())
        self.board.publish(self.token, published)

    # ---- keeping -----------------------------------------------------------------------------------------------------

    def note(self, report: BatchReport, on_batch: Callable[[BatchReport], None] | None) -> None:
        """Takes a report of the wheel and passes it on."""
        if self._pressure is not None:
            full = self._pressure.full(report.pending)
            report = replace(report, full=full, paused=self.paused)
        if on_batch is not None:
            on_batch(report)
        self._last_report = report

    # ---- the intake's pauses -----------------------------------------------------------------------------------------

    def _is_paused(self) -> bool:
        """Whether the intake has ended for want of room."""
        return self.intake is not None and not self.intake.isActive and _is_pause(self.intake.exception())

    def _go_on_if_there_is_room(self) -> None:
        self.paused = self._is_paused()
        if not self.paused or self._pressure is None:
            return
        if self._pressure.has_room_again(self._what_makes_room):
            self.intake, self.paused = self._start_intake(), False

    def _what_makes_room(self) -> object:
        """Changes when entries have ended in the wheel, or others have written to the store."""
        counts = None if self._last_report is None else self._last_report.counts
        return counts, self.keeper.store.head().version

    def _keep(self) -> None:
        try:
            ended, polls = False, 0
            while not self._end.wait(_POLL_S) and self._runs():
                if self.input_has_ended and not ended:
                    ended = True
                    self._publish(self.keeper)
                self._go_on_if_there_is_room()
                now_ms = self._now_ms()
                if now_ms is not None:
                    self._step(now_ms)
                polls += 1
                if polls % _RETIRE_EVERY_POLLS == 0:
                    self.keeper.require_untouched()
                    self._retire()
                    self.keeper.compact()
                if polls % _VACUUM_EVERY_POLLS == 0:
                    self.keeper.store.vacuum()
                if ended and self._is_done():
                    self._stop_queries()
                    self._retire_at_the_end()
                    break
        except BaseException as fault:  # noqa: BLE001  # it ends in awaitTermination, on the caller's thread
            self._fault = fault
        finally:
            self._shut_down()

    def _runs(self) -> bool:
        """Whether both queries go on, or have ended as they should; a failed one is a fault of the whole."""
        assert self.wheel is not None, "begun"
        assert self.intake is not None, "begun"
        for query in (self.wheel, self.intake):
            if not query.isActive and (fault := query.exception()) is not None and not _is_pause(fault):
                self._fault = fault
                return False
        return self.wheel.isActive and (self.intake.isActive or self.bounded or self._is_paused())

    def _step(self, now_ms: int) -> None:
        done = self.keeper.step(now_ms)
        if done is not None:
            self.handed_over.append(done)
        else:
            self.keeper.tidy()

    def _retire(self) -> None:
        """Retires windows, once the wheel has read all that was in the store when they were found to be done."""
        report, position = self._last_report, self._position()
        if report is None or position is None:
            return
        if self._retirable is not None and position[0] >= self._retirable[0]:
            self.keeper.retire(self._retirable[1], self.what.memory_ms, self.what.history_ms)
            self._retirable = None
        done_ms = self._done_ms(report)
        if self._retirable is None and done_ms is not None:
            self._retirable = (self.keeper.version, done_ms)

    def _retire_at_the_end(self) -> None:
        """As :meth:`_retire`, when the wheel has read all: a run from time to time leaves no more behind than one that goes on."""
        done_ms = None if self._last_report is None else self._done_ms(self._last_report)
        if done_ms is not None and self.keeper.retire(done_ms, self.what.memory_ms, self.what.history_ms):
            self.keeper.store.vacuum()

    def _done_ms(self, report: BatchReport) -> int | None:
        """Everything due before this has been released; None if that is not known of all shards."""
        if not report.complete or report.clock_ms is None:
            return None
        return min(at for at in (report.next_due_ms, report.clock_ms) if at is not None)

    def _position(self) -> tuple[int, int] | None:
        """Of the last committed batch of the wheel: the version of the store that it covers, and its clock (ms)."""
        progress = self.wheel.lastProgress if self.wheel is not None else None
        if progress is None:
            return None
        for source in progress["sources"]:
            offset = _offset(source["endOffset"])
            if isinstance(offset, Mapping) and "version" in offset and "instant_ms" in offset:
                return int(offset["version"]), int(offset["instant_ms"])
        return None

    def _is_done(self) -> bool:
        """Whether the wheel has read all of a bounded input and released what is due at the end."""
        position, report, end_ms = self._position(), self._last_report, self._end_ms
        if end_ms is None:
            return True  # nothing ever came
        if position is None or report is None or position[0] < self.keeper.version or report.backlog:
            return False
        # A clock with nothing to do until its next heartbeat need not be waited for.
        cursor_ms, due_ms = self.keeper.cursor_ms, report.next_due_ms
        is_idle = report.complete and (due_ms is None or due_ms > end_ms)
        return position[1] >= end_ms or (is_idle and cursor_ms is not None and cursor_ms > end_ms)

    @cached_property
    def _end_ms(self) -> int | None:
        """Where the clock is to come to once the input has ended; None if nothing ever came."""
        assert self.input_has_ended, "the wall clock goes on, the end does not"
        return self._now_ms()

    def _stop_queries(self) -> None:
        for query in (self.intake, self.wheel):
            if query is not None and query.isActive:
                _stop_between_batches(query)

    def _shut_down(self) -> None:
        try:
            self._stop_queries()
        finally:
            for lease in self._leases:
                lease.close()
            self.board.withdraw(self.token)
            self._over.set()

    # ---- like a query ------------------------------------------------------------------------------------------------

    @property
    def isActive(self) -> bool:  # noqa: N802  # Spark's name
        """Whether it goes on."""
        return not self._over.is_set()

    @property
    def status(self) -> Mapping[str, Any]:
        """That of the wheel."""
        return {} if self.wheel is None else self.wheel.status

    @property
    def lastProgress(self) -> Any:  # noqa: N802  # Spark's name
        """That of the wheel."""
        return None if self.wheel is None else self.wheel.lastProgress

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802  # Spark's name
        """Waits for the end, at most so many seconds; whether it has come. Raises what ended it, if anything did."""
        over = self._over.wait(timeout)
        if over and self._fault is not None:
            raise self._fault
        return over if timeout is not None else None

    def stop(self) -> None:
        """Stops intake, keeper and wheel."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_S)
        else:
            self._shut_down()
