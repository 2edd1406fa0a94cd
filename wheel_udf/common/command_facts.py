"""Facts of the command contract that producers need as much as the parser: sizes, names of headers, bounds.

Here, and not in :mod:`wheel_udf.commands`, because that room imports pyspark and a producer may have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MAX_ID_BYTES: Final = 512
ID_RULE: Final = f"1 to {MAX_ID_BYTES} bytes of UTF-8 without NUL"

FIRST_DUE_MS: Final = -2_208_988_800_000
"""The earliest due time, 1900-01-01T00:00Z. Python cannot collect a table with instants before the year 1, pandas none
before 1677, and files of older readers are off by days before 1900."""

FIRST_DUE: Final = "1900-01-01T00:00:00Z"

OUR_PREFIX: Final = "wheel-"
"""Headers of Kafka records that begin so are the scheduler's: they are read and not passed on."""

COMMAND_HEADERS: Final[Mapping[str, str]] = {
    "schedule_id": "wheel-id",
    "op": "wheel-op",
    "seq": "wheel-seq",
    "deliver_at": "wheel-deliver-at",
    "delay": "wheel-delay",
    "event_time": "wheel-event-time",
    "destination": "wheel-target",
    "max_lateness": "wheel-max-lateness",
    "spread": "wheel-spread",
    "repeat": "wheel-repeat",
    "time_zone": "wheel-time-zone",
    "starts_at": "wheel-starts-at",
    "until": "wheel-until",
    "count": "wheel-count",
    "on_missed": "wheel-on-missed",
    "on_gap": "wheel-on-gap",
    "on_fold": "wheel-on-fold",
    "attempt": "wheel-attempt",
    "occurrence": "wheel-occurrence",
    "amend": "wheel-amend",
    "first_amend": "wheel-first-amend",
    "failed_at": "wheel-failed-at",
    "first_error": "wheel-first-error",
    "error": "wheel-error",
}
"""Column of the contract to the header that holds it in the preset ``native``."""

MOST_SPREAD_MS: Final = 366 * 86_400_000
"""The widest window of a ``spread``, 366 days: it counts for no ``max_delay``, so it has a bound of its own."""

SERIES_FIELDS: Final = (
    "spread", "repeat", "time_zone", "starts_at", "until", "count", "on_missed", "on_gap", "on_fold",
)  # fmt: skip
"""The columns of the contract that say how a command repeats; all but the first mean nothing without ``repeat``."""

RETRY_FIELDS: Final = ("attempt", "occurrence", "amend", "first_amend", "failed_at", "first_error", "error")
"""The columns of the contract that a RETRY has."""

REPEAT_RULE: Final = (
    "cron such as 0 9 * * MON-FRI, @daily, every 15 minutes, every 1 month, R/PT15M, or an RRULE"
)
LONGEST_ERROR: Final = 500
LONGEST_REPEAT: Final = 256
LONGEST_ZONE: Final = 64
"""In characters."""

ON_MISSED: Final = ("latest", "all", "none")
"""What becomes of the occurrences of a series that are over when the wheel comes to them. The first is the default, as
in the next two.
"""
ON_GAP: Final = ("shift", "skip")
"""What becomes of a local time that does not exist, because clocks are set forward."""
ON_FOLD: Final = ("first", "last", "both")
"""At which of the two instants of a local time something happens, when clocks are set back."""

FIRE_ID_HEADER: Final = "wheel-fire-id"
"""The header of a delivery that is the same in every repetition."""
