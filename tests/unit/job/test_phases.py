"""A start says what it is doing when that takes long: a line for each phase, none for a short one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from wheel_udf.job.phases import Phases


@dataclass
class ManualTimers:
    """Timers that are over when a test says so."""

    waiting: list[ManualTimer] = field(default_factory=list)

    def new(self, seconds: float, call: Callable[[], None]) -> ManualTimer:
        return ManualTimer(seconds, call, self)

    def pass_by(self, seconds: float) -> None:
        for timer in [each for each in self.waiting if each.seconds <= seconds]:
            timer.cancel()
            timer.call()


@dataclass
class ManualTimer:
    seconds: float
    call: Callable[[], None]
    timers: ManualTimers
    daemon: bool = False

    def start(self) -> None:
        assert self.daemon, "a process that ends does not wait for it"
        self.timers.waiting.append(self)

    def cancel(self) -> None:
        if self in self.timers.waiting:
            self.timers.waiting.remove(self)


def test_a_phase_that_takes_longer_than_5_seconds_has_one_line() -> None:
    lines: list[str] = []
    timers = ManualTimers()
    phases = Phases(lines.append, timers.new)
    phases.begin("starting Spark")
    timers.pass_by(4)
    assert lines == []
    timers.pass_by(5)
    timers.pass_by(50)
    assert lines == ["starting Spark takes longer than 5 s"]


def test_a_phase_ends_when_the_next_one_begins() -> None:
    lines: list[str] = []
    timers = ManualTimers()
    phases = Phases(lines.append, timers.new)
    phases.begin("starting Spark")
    phases.begin("the first batch")
    timers.pass_by(5)
    assert lines == ["the first batch takes longer than 5 s"]


def test_after_the_last_phase_there_is_no_line() -> None:
    lines: list[str] = []
    timers = ManualTimers()
    phases = Phases(lines.append, timers.new)
    phases.begin("the first batch")
    phases.close()
    phases.close()
    timers.pass_by(5)
    assert (lines, timers.waiting) == ([], [])
