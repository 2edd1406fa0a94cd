"""Decides whether a figure grows: a line through the means of blocks, with an error that respects autocorrelation.

::

    value  .   .:. .   :.   .        samples, not independent: a batch after a long one is long, memory has teeth
           :.:   :  .:   .:  ::
           |--o--|--o--|--o--|       means of 12 blocks; a least squares line through them
                                     error of the slope: from the residuals of the blocks, wider if neighbours still resemble each other

A figure *grows* if all three hold:

1. the slope is more errors above zero than chance gives in one of 740 cases: 4 with 12 blocks, 9 with the 5 of a
   figure that has few samples;
2. the line rises, over what was measured, by more than a share of the mean and by more than an amount that is the
   figure's own, so it matters;
3. from each quarter to the next the mean rises by at least half of what an even rise of that share would give, so it
   goes on.

Without the first, a noisy figure would fail for nothing. Without the second, one that hardly varies would fail for a
rise of a millionth. Without the third, one step (a cache that is filled once, a worker that starts) would be a leak,
and so would be a wave that is longer than the time measured.

Caveat: a leak in steps that are further apart than a quarter of the time measured is not found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

BLOCKS = 12
LEAST = 5
"""Fewest samples for a line with an error."""

CHANCE = {3: 9.22, 4: 6.62, 5: 5.51, 6: 4.90, 7: 4.53, 8: 4.28, 9: 4.09, 10: 3.96}
"""How many errors a slope is above zero by chance in one of 740 cases, as three of a normal distribution would be, by
degrees of freedom: Student's distribution, table G.2 of JCGM 100:2008 (99.73%)."""

_HOUR_S = 3_600.0


@dataclass(frozen=True)
class Trend:
    """A line through a figure.

    Attributes:
        mean: Mean of the samples, in the figure's unit.
        slope: Rise in an hour, in the figure's unit.
        error: Standard error of the slope.
        errors: So many errors the slope has to be above zero.
        rise: Rise over what was measured, as a share of the mean.
        steady: The smallest rise from a quarter of the samples to the next, as a share of the mean.
        samples: How many samples.
    """

    mean: float
    slope: float
    error: float
    errors: float
    rise: float
    steady: float
    samples: int

    def grows(self, share: float, least: float = 0.0) -> bool:
        """Whether the figure grows: beyond chance, by more than this share of the mean and this amount, and all the
        time.
        """
        matters = self.rise > share and self.rise * abs(self.mean) > least
        return self.is_rising and matters and self.steady > share / 8

    @property
    def is_rising(self) -> bool:
        """Whether the slope is above zero beyond chance."""
        return self.slope - self.errors * self.error > 0


def trend(times_s: Sequence[float], values: Sequence[float]) -> Trend | None:
    """Puts a line through a figure.

    Args:
        times_s: When each sample was taken, rising, in seconds.
        values: The samples.

    Returns:
        The line; None with fewer than :data:`LEAST` samples.
    """
    if len(values) < LEAST:
        return None
    at, figure = np.asarray(times_s, float), np.asarray(values, float)
    blocks = np.array_split(np.arange(len(figure)), min(BLOCKS, max(LEAST, len(figure) // 3)))
    block_at = np.array([at[block].mean() for block in blocks])
    block_mean = np.array([figure[block].mean() for block in blocks])
    slope, error = _line(block_at, block_mean)
    mean = float(figure.mean())
    share_of = 1 / abs(mean) if mean else 0.0
    quarters = [float(quarter.mean()) for quarter in np.array_split(figure, 4)]
    return Trend(
        mean=mean,
        slope=slope * _HOUR_S,
        error=error * _HOUR_S,
        errors=CHANCE[len(blocks) - 2],
        rise=slope * float(at[-1] - at[0]) * share_of,
        steady=min(later - earlier for earlier, later in pairwise(quarters)) * share_of,
        samples=len(figure),
    )


def _line(at: NDArray[np.float64], mean: NDArray[np.float64]) -> tuple[float, float]:
    """Slope and its error, both by the second."""
    centred = at - at.mean()
    spread = float((centred**2).sum())
    slope = float((centred * mean).sum()) / spread
    residuals = mean - mean.mean() - slope * centred
    error = (float((residuals**2).sum()) / (len(mean) - 2) / spread) ** 0.5
    return slope, error * _widened(residuals)


def _widened(residuals: NDArray[np.float64]) -> float:
    """The factor by which neighbours that resemble each other widen an error: as of an autoregressive series of the
    first order.
    """
    total = float((residuals**2).sum())
    if total == 0:
        return 1.0
    alike = sum(float(one * next_one) for one, next_one in pairwise(residuals)) / total
    alike = min(max(alike, 0.0), 0.9)
    return ((1 + alike) / (1 - alike)) ** 0.5
