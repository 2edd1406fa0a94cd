"""Who owns what in a tiered run: its queries, its thread, its leases; with fakes, no JVM."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.delivery.test_report import report
from wheel_udf.checkpoint.identity import Identity
from wheel_udf.common.errors import ConfigError, LeaseError, StopError
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.board import StoreProgress
from wheel_udf.control.clocks import EventClock, ProcessingClock
from wheel_udf.store.head import Appended, Head
from wheel_udf.store.layout import StoreLayout
from wheel_udf.tiered import run as run_module, start
from wheel_udf.tiered.hand_over import HandedOver
from wheel_udf.tiered.pause import IntakePause
from wheel_udf.tiered.queries import Position
from wheel_udf.tiered.run import TieredRun
from wheel_udf.tiered.settings import TieredWheel

if TYPE_CHECKING:
    from collections.abc import Iterator

LAYOUT = StoreLayout(Wheel(tick_ms=1_000, size=20, levels=4), state_levels=1)


class Store:
    """A store without rows that takes all commits."""

    layout, path, log_is_read = LAYOUT, "store", False

    def head(self) -> Head:
        return Head(version=0, cursor_ms=None, clock_ms=None, batches={})

    def partitions(self) -> list[Any]:
        return []

    def append(self, *_: Any, **__: Any) -> Appended:
        return Appended(written=True, version=1, rows=0, clock_ms=None)


class Query:
    """A streaming query; `stops` says whether it does when it is asked to."""

    lastProgress = None  # noqa: N815  # Spark's name

    def __init__(self, *, stops: bool = True) -> None:
        self.isActive, self.stops = True, stops
        self.status = {"isTriggerActive": False}

    def exception(self) -> None:
        return None

    def stop(self) -> None:
        self.isActive = not self.stops


class HeldLease:
    """A lease that knows whether it was given back."""

    is_held = True

    def close(self) -> None:
        self.is_held = False

    def check(self) -> None:
        if not self.is_held:
            raise LeaseError("this process has lost the lease of the checkpoint")


@pytest.fixture
def lease() -> HeldLease:
    return HeldLease()


@pytest.fixture
def run(lease: HeldLease) -> Iterator[TieredRun]:
    what = TieredWheel(layout=LAYOUT, store="store", clock=ProcessingClock())
    store: Any = Store()
    leases: list[Any] = [lease]
    run = TieredRun(
        store, what, Identity(1, "", 4, "", "app", ""), leases, None, checkpoint="checkpoint", bounded=False
    )
    yield run
    run.stop()


@pytest.mark.parametrize("name", ["history_ms", "keep_ms", "memory_ms"])
def test_a_time_that_would_overflow_as_microseconds_is_refused_by_name(name: str) -> None:
    more: Any = {name: 2**62}
    with pytest.raises(ConfigError, match=f"a setting is out of range: {name} = {2**62}; rule: 0 to"):
        TieredWheel(layout=LAYOUT, store="store", clock=ProcessingClock(), **more)


@pytest.fixture
def backfill(lease: HeldLease) -> Iterator[TieredRun]:
    """A run over bounded input, whose intake has committed version 5."""
    what = TieredWheel(layout=LAYOUT, store="store", clock=EventClock())
    store: Any = Store()
    leases: list[Any] = [lease]
    run = TieredRun(
        store, what, Identity(1, "", 4, "", "app", ""), leases, None, checkpoint="checkpoint", bounded=True
    )
    run.keeper.taken_in = 5
    yield run
    run.stop()


def begin(run: TieredRun, wheel: Any, intake: Any) -> None:
    run.begin(wheel, lambda: intake)


def test_a_stopped_run_has_stopped_its_queries_and_given_its_leases_back(
    run: TieredRun, lease: HeldLease
) -> None:
    wheel, intake = Query(), Query()
    begin(run, wheel, intake)
    run.stop()
    assert (run.isActive, wheel.isActive, intake.isActive, lease.is_held) == (False, False, False, False)


def test_a_stop_that_did_not_stop_names_what_still_runs_and_keeps_the_leases(
    run: TieredRun, lease: HeldLease
) -> None:
    wheel, intake = Query(stops=False), Query()
    begin(run, wheel, intake)
    with pytest.raises(StopError, match="still running: the wheel's query"):
        run.stop()
    assert (run.isActive, intake.isActive, lease.is_held) == (True, False, True)

    wheel.stops = True
    run.stop()
    assert (run.isActive, lease.is_held) == (False, False)


def test_hand_overs_waited_for_the_deletion_of_expired_files(
    run: TieredRun, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # It lists all files of the store, once an hour.
    began, goes_on, stepped = [], threading.Event(), threading.Event()

    def slow() -> None:
        began.append(1)
        goes_on.wait()
        raise OSError("no room on the device")

    def step(_now_ms: int) -> None:
        if began:
            stepped.set()

    monkeypatch.setattr(run_module, "VACUUM_EVERY_POLLS", 1)
    monkeypatch.setattr(run.keeper.store, "vacuum", slow, raising=False)
    monkeypatch.setattr(run.keeper, "step", step)
    begin(run, Query(), Query())
    assert stepped.wait(20)
    assert run.vacuum is not None
    goes_on.set()
    run.vacuum.join(20)
    run.stop()
    assert [record.message for record in caplog.records if "expired" in record.message][:1] == [
        "expired files of the slot store stay for another hour: no room on the device"
    ]


def test_what_the_log_has_expired_stays_until_the_wheel_has_read_what_the_run_before_left(
    run: TieredRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.inherited_version, store = 7, run.keeper.store
    for position, is_read in ((None, False), (Position(6, 0), False), (Position(7, 0), True), (None, True)):
        monkeypatch.setattr(run, "position", lambda at=position: at)
        run.look_at_wheel()
        assert store.log_is_read is is_read


@pytest.mark.parametrize(
    ("published", "reached", "has_more"),
    [
        (None, None, False),  # the first batch of the intake comes
        (
            StoreProgress(900, 100, 4),
            Position(3, 50),
            False,
        ),  # it is committed, and its clock comes in a moment
        (StoreProgress(900, 100, 5), None, True),
        (StoreProgress(900, 100, 5), Position(4, 50), True),
        (StoreProgress(900, 100, 7), Position(5, 100), False),  # two commits of a hand-over
        (StoreProgress(900, 200, 7), Position(5, 100), True),
    ],
)
def test_the_wheel_ran_a_batch_for_each_commit_of_a_hand_over(
    backfill: TieredRun,
    monkeypatch: pytest.MonkeyPatch,
    published: StoreProgress | None,
    reached: Position | None,
    *,
    has_more: bool,
) -> None:
    monkeypatch.setattr(backfill, "last_published", published)
    monkeypatch.setattr(run_module, "planned_position", lambda _checkpoint: reached)
    intake: Any = Query()
    backfill.intake = intake
    assert backfill.takes_turns
    assert backfill.has_more_to_read() is has_more
    intake.stop()
    assert backfill.has_more_to_read(), "nothing more will come"


def test_a_stop_lets_a_batch_of_the_wheel_end_that_waits_for_the_intake(
    backfill: TieredRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "planned_position", lambda _checkpoint: Position(5, 100))
    monkeypatch.setattr(backfill.clock, "published", lambda **_: StoreProgress(900, 100, 5))
    monkeypatch.setattr(backfill.keeper, "step", lambda _now_ms: HandedOver(0, 0, 0))
    begin(backfill, Query(), Query())
    batch = threading.Thread(target=lambda: backfill.note(report(), None))
    batch.start()
    while not backfill.turn.holds:
        assert batch.is_alive()
    backfill.stop()
    batch.join(20)
    assert not batch.is_alive()


def test_a_stop_during_a_long_hand_over_says_that_it_still_runs(
    run: TieredRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, goes_on = threading.Event(), threading.Event()

    def long(_now_ms: int) -> None:
        began.set()
        goes_on.wait()

    monkeypatch.setattr(run.keeper, "step", long)
    begin(run, Query(), Query())
    began.wait()
    with pytest.raises(StopError, match="the supervisor's thread, the intake's query, the wheel's query"):
        run.stop(timeout=0.01)
    goes_on.set()
    run.stop()
    assert not run.isActive


def test_a_hand_over_is_logged_and_not_collected(
    run: TieredRun, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run.keeper, "step", lambda now_ms: HandedOver(now_ms, 2, 30))
    before = {name: value for name, value in vars(run).items() if isinstance(value, list)}
    with caplog.at_level(logging.INFO, logger="wheel_udf.tiered.run"):
        run.step(40_000)
    assert caplog.messages == ["handed over 30 rows of 2 slots, cursor 40000"]
    assert {name: value for name, value in vars(run).items() if isinstance(value, list)} == before


def test_no_filter_is_set_on_a_logger_of_the_process() -> None:
    assert start.start_tiered is not None
    assert logging.getLogger("py4j.clientserver").filters == []


def test_a_pause_holds_one_thread_until_it_is_released() -> None:
    pause, passed = IntakePause(), threading.Event()
    pause.release()
    assert not pause.holds

    def batch() -> None:
        pause.hold(lambda: True)
        passed.set()

    thread = threading.Thread(target=batch)
    thread.start()
    while not pause.holds:
        pass
    assert not passed.is_set()
    pause.release()
    thread.join()
    assert passed.is_set()


def test_a_pause_ends_when_its_query_is_stopped() -> None:
    pause = IntakePause()
    pause.hold(lambda: False)
    assert not pause.holds


def test_a_pause_that_has_ended_holds_nobody() -> None:
    pause = IntakePause()
    pause.end()
    pause.hold(lambda: True)
    assert not pause.holds


def test_a_run_that_has_lost_a_lease_stops_its_queries_and_fails(run: TieredRun, lease: HeldLease) -> None:
    wheel, intake = Query(), Query()
    lease.is_held = False
    begin(run, wheel, intake)
    with pytest.raises(LeaseError, match="has lost the lease"):
        run.awaitTermination(20)
    assert (wheel.isActive, intake.isActive) == (False, False)
