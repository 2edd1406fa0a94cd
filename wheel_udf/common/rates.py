"""Rates: one grammar, for the config and for arguments of verbs."""

from __future__ import annotations

import re
from typing import Final

from wheel_udf.common.errors import ConfigError

LEAST_PER_S: Final = 1e-6
"""The lowest rate, one in twelve days: what waits for its turn is to have a due time."""
MOST_PER_S: Final = 1_000_000
"""The highest rate."""

RATE_RULE: Final = f"a number with /s, /min or /h, such as 100/s; from 0.0036/h to {MOST_PER_S}/s"
_RATE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) */ *(s|min|h)")
_SPANS_S: Final = {"s": 1, "min": 60, "h": 3600}


def require_per_second(per_s: float | None) -> None:
    """Checks a rate that is given as a number a second. None passes.

    Raises:
        ConfigError: It is not from :data:`LEAST_PER_S` to :data:`MOST_PER_S`.
    """
    if per_s is not None and not LEAST_PER_S <= per_s <= MOST_PER_S:
        rule = f"a number a second, from {LEAST_PER_S:f} to {MOST_PER_S}"
        raise ConfigError("not a rate", field="rate", value=per_s, rule=rule)


def per_second(text: object) -> float:
    """Reads a rate, such as ``100/s``, ``30/min`` or ``5/h``.

    Raises:
        ConfigError: It is none.
    """
    if isinstance(text, str) and (found := _RATE.fullmatch(text.strip())) is not None:
        per_s = float(found[1]) / _SPANS_S[found[2]]
        if LEAST_PER_S <= per_s <= MOST_PER_S:
            return per_s
    raise ConfigError("not a rate", field="rate", value=text, rule=RATE_RULE)
