"""Progress of long work: what a terminal shows, what a log gets, and what stays silent."""

from __future__ import annotations

import io

import pytest

from wheel_udf.common.progress import Progress, left_text, line_of


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
        "export: 1,000,000 of 10,000,000 rows; 90 s left",
        "export: 2,500,000 of 10,000,000 rows; 60 s left",
    ]


def test_a_step_has_its_own_time_left() -> None:
    stream, clock = io.StringIO(), Hand()
    with Progress("export", stream, clock, unit="tasks") as progress:
        progress.step("entries", 1, 3)
        clock.at_ms = 140_000
        progress.step("memory", 2, 3)
        clock.at_ms = 145_000
        progress.show(1, 5)

    assert stream.getvalue() == "export, step 2 of 3, memory: 1 of 5 tasks; 20 s left\n"
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
    with Progress("export", stream, clock, unit="tasks") as progress:
        progress.step("entries", 2, 3)
        clock.at_ms = 102_000
        progress.show(3, 8)
        assert "export 2/3 entries:  38%|" in stream.getvalue()
        assert "| 3/8 tasks [" in stream.getvalue()
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


def test_work_that_prints_lines_of_its_own_gets_none_from_here() -> None:
    stream, clock = io.StringIO(), Hand()
    with Progress("traffic", stream, clock, lines=False) as progress:
        clock.at_ms = 200_000
        progress.show(1, 2)

    assert stream.getvalue() == ""


def test_a_closed_stream_ends_no_work() -> None:
    stream, clock = io.StringIO(), Hand()
    with Progress("export", stream, clock) as progress:
        stream.close()
        clock.at_ms = 200_000
        progress.show(1, 2)


def test_before_the_first_unit_is_done_the_time_left_is_not_known() -> None:
    assert line_of("import", 0, 4, "tasks", 30_000) == "import: 0 of 4 tasks"
    assert line_of("import", 4, 4, "tasks", 30_000) == "import: 4 of 4 tasks; 0 s left"


@pytest.mark.parametrize(
    ("left_ms", "text"),
    [
        (0, "0 s"),
        (99_400, "99 s"),
        (99_600, "2 min"),
        (720_000, "12 min"),
        (5_969_000, "99 min"),
        (5_971_000, "1.7 h"),
        (12_600_000, "3.5 h"),
    ],
)
def test_the_time_left_is_rough(left_ms: int, text: str) -> None:
    assert left_text(left_ms) == text
