"""Progress of long work: what a terminal shows, what a log gets, and what stays silent."""

from __future__ import annotations

import io

import pytest

from wheel_udf.common.progress import Progress


class Hand:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.at_ms = 100_000

    def __call__(self) -> int:
        return self.at_ms


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_without_a_terminal_there_is_a_line_after_ten_seconds_and_then_every_ten() -> None:
    stream, clock = io.StringIO(), Hand()
    with Progress("export", stream, clock) as progress:
        for at_ms, done in (
            (109_999, 900_000),
            (110_000, 1_000_000),
            (119_000, 1_900_000),
            (120_000, 2_500_000),
        ):
            clock.at_ms = at_ms
            progress.show(done, 10_000_000)

    assert stream.getvalue().splitlines() == [
        "export: 1,000,000 of 10,000,000 tasks; 01:30 left",
        "export: 2,500,000 of 10,000,000 tasks; 01:00 left",
    ]


def test_a_step_has_its_own_time_left() -> None:
    stream, clock = io.StringIO(), Hand()
    with Progress("export", stream, clock) as progress:
        progress.step("entries", 1, 3)
        clock.at_ms = 140_000
        progress.step("memory", 2, 3)
        clock.at_ms = 145_000
        progress.show(1, 5)

    assert stream.getvalue() == "export 2/3 memory: 1 of 5 tasks; 00:20 left\n"
    assert progress.steps == 2


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_work_of_less_than_two_seconds_shows_nothing(stream: io.StringIO) -> None:
    clock = Hand()
    with Progress("export", stream, clock) as progress:
        clock.at_ms = 101_900
        progress.show(1, 2)

    assert stream.getvalue() == ""


def test_a_terminal_has_a_bar_which_is_gone_at_the_end_and_stays_below_other_lines() -> None:
    stream, clock = Terminal(), Hand()
    with Progress("export", stream, clock) as progress:
        progress.step("entries", 2, 3)
        clock.at_ms = 102_000
        progress.show(3, 8)
        assert "export 2/3 entries:  38%|" in stream.getvalue()
        assert "| 3/8 [" in stream.getvalue()
        progress.around(lambda line: print(line, file=stream))("a line")
        assert stream.getvalue().endswith("\ra line\n"), "the bar was removed before the line"
        progress.show(4, 8)
    assert stream.getvalue().endswith("\r"), "the bar was removed"


def test_a_bar_shows_no_secret_of_the_config() -> None:
    from wheel_udf.common.secrets import hide_from_now_on

    stream, clock = Terminal(), Hand()
    hide_from_now_on("correct-horse-battery")
    with Progress("export", stream, clock) as progress:
        progress.step("s3://correct-horse-battery@place", 1, 1)
        clock.at_ms = 110_000
        progress.show(1, 2)

    assert "correct-horse-battery" not in stream.getvalue()


def test_a_closed_stream_ends_no_work() -> None:
    stream, clock = io.StringIO(), Hand()
    with Progress("export", stream, clock) as progress:
        stream.close()
        clock.at_ms = 200_000
        progress.show(1, 2)


def test_before_the_first_task_is_done_the_time_left_is_not_known() -> None:
    stream, clock = io.StringIO(), Hand()
    with Progress("import", stream, clock) as progress:
        clock.at_ms = 130_000
        progress.show(0, 4)
        clock.at_ms = 140_000
        progress.show(4, 4)

    assert stream.getvalue().splitlines() == ["import: 0 of 4 tasks", "import: 4 of 4 tasks; 00:00 left"]
