"""Lateness histogram: counts in geometric bins, so that the quantiles of any number of deliveries fit into a
few hundred bytes.

Histograms merge by addition, and the error of a quantile is at most 1 %. Bins (the mapping of DDSketch,
Masson, Rim and Lee, VLDB 2019): with the relative error e = 1 % and g = (1 + e) / (1 - e), bin 0 holds the
value 0 and bin i >= 1 holds ``(g^(i-2), g^(i-1)]`` ms; its representative ``2 g^(i-1) / (g + 1)`` is within e
of every value in the bin::

    ms      0   1   2    10    100    60_000   2^63-1
    bin     0   1   36   117   232    552      2185        (all int64 values fit: no cap, no overflow)

Minimum, maximum and count are kept exactly, and a quantile is never outside ``[minimum, maximum]``.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

RELATIVE_ERROR = 0.01
_GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_LOG_GAMMA = math.log(_GAMMA)


@dataclass(frozen=True, slots=True)
class LatenessHistogram:
    """Latenesses in milliseconds, counted in bins of 1 % relative width.

    Attributes:
        count: Number of values.
        minimum_ms: The smallest value, exactly; None if there is none.
        maximum_ms: The largest value, exactly; None if there is none.
        bins: Bin number to count; empty bins are left out.
    """

    count: int = 0
    minimum_ms: int | None = None
    maximum_ms: int | None = None
    bins: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, lateness_ms: npt.ArrayLike) -> LatenessHistogram:
        """Builds the histogram of some latenesses.

        Args:
            lateness_ms: int64[n] in ms. The wheel never fires early, so a negative value is counted as 0.

        Returns:
            Their histogram; an empty one for n = 0.
        """
        values = np.maximum(np.asarray(lateness_ms, dtype=np.int64).ravel(), 0)
        if values.size == 0:
            return cls()
        numbers, counts = np.unique(_bins_of(values), return_counts=True)
        bins = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
        return cls(int(values.size), int(values.min()), int(values.max()), bins)

    def merge(self, other: LatenessHistogram) -> LatenessHistogram:
        """The histogram of the values of both."""
        if not other.count:
            return self
        if not self.count:
            return other
        (lowest, highest), (other_lowest, other_highest) = self._range(), other._range()
        return LatenessHistogram(
            self.count + other.count,
            min(lowest, other_lowest),
            max(highest, other_highest),
            Counter(self.bins) + Counter(other.bins),
        )

    def quantile(self, q: float) -> int | None:
        """The q-quantile by nearest rank, within 1 %.

        Args:
            q: Between 0 (the minimum) and 1 (the maximum).

        Returns:
            Milliseconds, rounded; None if there are no values.

        Raises:
            ValueError: q is outside [0, 1].
        """
        if not 0 <= q <= 1:
            raise ValueError(f"q must be between 0 and 1, not {q}")
        if not self.count:
            return None
        lowest, highest = self._range()
        rank = max(1, math.ceil(q * self.count))
        if rank == 1:
            return lowest
        if rank == self.count:
            return highest
        seen = 0
        for number in sorted(self.bins):
            seen += self.bins[number]
            if seen >= rank:
                return min(max(_representative_ms(number), lowest), highest)
        raise AssertionError("the bins hold fewer values than count")

    def at_most(self, value_ms: int) -> int:
        """Number of values up to this one; those within 1 % of it may count either way."""
        if self.maximum_ms is not None and self.maximum_ms <= value_ms:
            return self.count
        return sum(count for number, count in self.bins.items() if _representative_ms(number) <= value_ms)

    @property
    def sum_ms(self) -> int:
        """Sum of the values, within 1 %."""
        return sum(count * _representative_ms(number) for number, count in self.bins.items())

    def _range(self) -> tuple[int, int]:
        assert self.minimum_ms is not None
        assert self.maximum_ms is not None
        return self.minimum_ms, self.maximum_ms

    def to_json(self) -> str:
        """A compact JSON text for a status row: ``{"n":3,"min":0,"max":90,"bins":[[0,2],[227,1]]}``."""
        limits = {"n": self.count, "min": self.minimum_ms, "max": self.maximum_ms}
        return json.dumps(limits | {"bins": sorted(self.bins.items())}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> LatenessHistogram:
        """The histogram that :meth:`to_json` wrote."""
        record = json.loads(text)
        return cls(record["n"], record["min"], record["max"], dict(record["bins"]))


def _bins_of(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    logs = np.log(np.maximum(values, 1).astype(np.float64)) / _LOG_GAMMA
    return np.where(values == 0, 0, np.ceil(logs).astype(np.int64) + 1)


def _representative_ms(number: int) -> int:
    if number == 0:
        return 0
    return round(2 * math.exp((number - 1) * _LOG_GAMMA) / (_GAMMA + 1))
