"""A start says what it is doing: on a terminal one line that moves; elsewhere a line for each phase that takes long."""

from __future__ import annotations

import io
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
    phases = Phases(lines.append, io.StringIO(), timers.new)
    phases.begin("starting Spark")
    timers.pass_by(4)
    assert lines == []
    timers.pass_by(5)
    timers.pass_by(50)
    assert lines == ["starting Spark takes longer than 5 s"]


def test_a_phase_ends_when_the_next_one_begins() -> None:
    lines: list[str] = []
    timers = ManualTimers()
    phases = Phases(lines.append, io.StringIO(), timers.new)
    phases.begin("starting Spark")
    phases.begin("the first batch")
    timers.pass_by(5)
    assert lines == ["the first batch takes longer than 5 s"]


def test_after_the_last_phase_there_is_no_line() -> None:
    lines: list[str] = []
    timers = ManualTimers()
    phases = Phases(lines.append, io.StringIO(), timers.new)
    phases.begin("the first batch")
    phases.close()
    phases.close()
    timers.pass_by(5)
    assert (lines, timers.waiting) == ([], [])


class Terminal(io.StringIO):
    """A terminal of one line."""

    def isatty(self) -> bool:
        return True

    @property
    def line(self) -> str:
        """What is to be seen of what was written."""
        return self.getvalue().split("\r\x1b[K")[-1]


def test_on_a_terminal_one_line_says_what_is_done_and_for_how_long() -> None:
    lines: list[str] = []
    timers, terminal, now_ms = ManualTimers(), Terminal(), 0
    phases = Phases(lines.append, terminal, timers.new, lambda: now_ms)
    phases.begin("starting Spark")
    assert terminal.line == "0 s  starting Spark"
    now_ms = 7_200
    timers.pass_by(1)
    assert terminal.line == "7 s  starting Spark"
    phases.begin("the first batch")
    assert terminal.line == "7 s  the first batch"
    now_ms = 9_000
    timers.pass_by(1)
    assert terminal.line == "9 s  the first batch"
    phases.close()
    assert (terminal.line, timers.waiting, lines) == ("", [], [])


def test_a_line_of_the_run_stands_above_the_line_that_moves() -> None:
    terminal, timers = Terminal(), ManualTimers()
    phases = Phases(None, terminal, timers.new, lambda: 0)
    say = phases.around(lambda line: print(line, file=terminal))
    phases.begin("starting Spark")
    say("another driver holds the lease")
    assert terminal.getvalue().endswith("\r\x1b[Kanother driver holds the lease\n\r\x1b[K0 s  starting Spark")
    phases.close()
    say("batch 0")
    assert terminal.getvalue().endswith("\r\x1b[Kbatch 0\n")


def test_a_timer_that_comes_too_late_draws_nothing() -> None:
    terminal, timers = Terminal(), ManualTimers()
    phases = Phases(None, terminal, timers.new, lambda: 0)
    phases.begin("starting Spark")
    (late,) = timers.waiting
    phases.close()
    late.call()
    assert (terminal.line, timers.waiting) == ("", [])
