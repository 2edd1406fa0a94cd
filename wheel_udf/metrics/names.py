"""The metrics that a job exports, as ``metrics.toml`` declares them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from wheel_udf.common.package_data import toml_of


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: Its name; that of a counter ends in ``_total``.
        kind: Its type.
        text: What it measures, in one sentence.
        unit: Its unit.
        labels: Names of its labels.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram", "summary"]
    text: str
    unit: str = ""
    labels: Sequence[str] = ()


_DECLARED: Final = toml_of(__name__, "metrics.toml")

METRICS: Final = {name: Metric(name, **settings) for name, settings in _DECLARED.items()}
"""All metrics by name, in the order of the file."""

LATENESS_BOUNDS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 86_400.0)
"""Upper bounds of the buckets of ``wheel_lateness_seconds``."""
