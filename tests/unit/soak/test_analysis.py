"""What counts as growth: a leak does; noise, teeth, steps down and a rise too small to matter do not."""

from __future__ import annotations

import math
import random

import pytest

from tests.soak.analysis import trend

SHARE = 0.05
LONG, SHORT = 1_500, 45
"""Seconds that are measured in the two forms."""


def noise(seconds: int, seed: int, alike: float = 0.0) -> list[float]:
    """Around 1,000, by 50; each value resembles the one before it by `alike`."""
    plain, value, found = random.Random(seed), 0.0, []
    for _ in range(seconds):
        value = alike * value + plain.gauss(0, 50) * (1 - alike**2) ** 0.5
        found.append(1_000 + value)
    return found


def teeth(seconds: int, period: int) -> list[float]:
    """From 100 up to 200, then down at once."""
    return [100 + 100 * (second % period) / period for second in range(seconds)]


def grows(values: list[float], share: float = SHARE) -> bool:
    line = trend(range(len(values)), values)
    assert line is not None
    return line.grows(share)


def test_the_line_is_given_by_the_hour_with_its_mean_and_its_rise() -> None:
    line = trend(range(0, 100, 10), [10, 11, 12, 13, 14, 15, 16, 17, 18, 19])
    assert line is not None
    assert (line.mean, line.samples) == (14.5, 10)
    assert line.slope == pytest.approx(360)
    assert line.error == pytest.approx(0, abs=1e-9)
    assert line.rise == pytest.approx(9 / 14.5)
    assert line.grows(0.05)


def test_the_error_is_that_of_the_textbook_where_blocks_do_not_resemble_each_other() -> None:
    # Five blocks of one sample. Slope 0.2, residuals 0.4, -0.8, 0, 0.8, -0.4 around the line; their squares 1.6, with
    # three degrees of freedom, over 10.
    line = trend([0, 1, 2, 3, 4], [1.0, 0.0, 1.0, 2.0, 1.0])
    assert line is not None
    assert line.slope / 3_600 == pytest.approx(0.2)
    assert line.error / 3_600 == pytest.approx(math.sqrt(1.6 / 3 / 10))


@pytest.mark.parametrize("seconds", [LONG, SHORT])
def test_what_does_not_vary_does_not_grow(seconds: int) -> None:
    line = trend(range(seconds), [7.0] * seconds)
    assert line is not None
    assert (line.mean, line.slope, line.error, line.rise) == (7.0, 0.0, 0.0, 0.0)
    assert not line.grows(0.0)


@pytest.mark.parametrize(
    ("seconds", "alike", "share"),
    [(LONG, 0.0, 0.05), (LONG, 0.9, 0.05), (SHORT, 0.0, 0.1), (SHORT, 0.5, 0.1)],
)
def test_noise_does_not_grow_however_much_neighbours_resemble_each_other(
    seconds: int, alike: float, share: float
) -> None:
    assert [seed for seed in range(30) if grows(noise(seconds, seed, alike), share)] == []


def test_one_step_up_does_not_grow() -> None:
    for at in range(100, LONG, 100):
        assert not grows([value + 200 * (second > at) for second, value in enumerate(noise(LONG, at))])


@pytest.mark.parametrize("period", [5, 10, 60, 100, 130, 290, 400, 599])
def test_teeth_do_not_grow(period: int) -> None:
    assert not grows(teeth(LONG, period))


def test_a_leak_of_one_percent_a_minute_grows_in_noise_and_in_teeth() -> None:
    leak = [10.0 * second / 60 for second in range(LONG)]
    for base in (noise(LONG, 1), noise(LONG, 2, 0.9), [10 * value for value in teeth(LONG, 60)]):
        assert grows([value + more for value, more in zip(base, leak, strict=True)])


def test_a_leak_of_one_handle_in_ten_seconds_grows() -> None:
    assert grows([300.0 + second // 10 for second in range(LONG)])


def test_half_a_minute_shows_a_leak_of_one_percent_a_second() -> None:
    assert grows([value + 10.0 * second for second, value in enumerate(noise(SHORT, 3))], 0.10)


def test_a_rise_that_is_certain_and_small_is_no_growth() -> None:
    line = trend(range(LONG), [1_000 + second / 100 for second in range(LONG)])
    assert line is not None
    assert line.is_rising
    assert not line.grows(SHARE)
    assert line.grows(0.01)
    assert line.grows(0.01, least=14.9)
    assert not line.grows(0.01, least=15)


def test_what_falls_does_not_grow() -> None:
    assert not grows([1_000.0 - second / 10 for second in range(LONG)])


def test_too_few_samples_have_no_line() -> None:
    assert trend([0, 1, 2, 3], [1, 2, 3, 4]) is None


def test_few_samples_that_rise_by_chance_do_not_grow() -> None:
    # Sizes of a heap after seven collections, as a soak of half a minute has them. The line rises by more than four of
    # its errors; with three degrees of freedom that is nothing rare.
    line = trend(range(0, 28, 4), [100.0, 112.0, 108.0, 121.0, 115.0, 132.0, 127.0])
    assert line is not None
    assert line.slope > 3 * line.error
    assert not line.grows(0.1)


def test_few_samples_that_rise_evenly_grow() -> None:
    assert grows([100.0, 110.0, 121.0, 130.0, 141.0, 150.0, 161.0], 0.1)
