"""Instants as text: UTC epoch milliseconds to ISO 8601 and back.

::

    parse_instant_ms("2013-01-01 05:00")      1357016400000           UTC where the text names no zone
    instant_text(1_357_016_400_250)           2013-01-01T05:00:00Z
    instant_text_ms(1_357_016_400_250)        2013-01-01T05:00:00.250Z

Columns of them are read by :mod:`wheel_udf.commands.time_readers`, and written by
:func:`wheel_udf.sinks.kafka_record.iso_utc` in the form of :func:`instant_text_ms`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from wheel_udf.common.errors import ConfigError

MAX_INSTANT_MS: Final = (2**63 - 1) // 1000
"""The last instant, and the longest time, in ms: Spark counts both in microseconds, as 64 bits."""

LONGEST_WAIT_MS: Final = 2**31 - 1
"""The longest wait for an answer, about 24 days: drivers and sockets count it in 32 bits."""

INSTANT_RULE: Final = "an ISO instant such as 2013-01-01T05:00:00Z (UTC where it names no zone)"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def require_ms(
    field: str, value: int | None, least: int = -MAX_INSTANT_MS, most: int = MAX_INSTANT_MS
) -> None:
    """Checks an instant or a time in ms. None passes.

    Raises:
        ConfigError: It is not from `least` to `most`.
    """
    if value is not None and not least <= value <= most:
        raise ConfigError("a setting is out of range", field=field, value=value, rule=f"{least} to {most}")


def parse_instant_ms(text: str) -> int:
    """Reads an ISO instant such as ``2013-01-01T05:00:00Z``, ``2013-01-01 05:00`` or ``2013-01-01``.

    Args:
        text: The instant; UTC where it names no zone.

    Returns:
        UTC epoch ms; a fraction of a millisecond is cut off.

    Raises:
        ValueError: The text is not an ISO instant of the years 1 to 9999.
    """
    instant = datetime.fromisoformat(text.strip())
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return (instant - _EPOCH) // timedelta(milliseconds=1)


def instant_text(instant_ms: int | None) -> str:
    """Writes an instant (UTC epoch ms) as :func:`instant_text_ms`, but to the second; ``-`` for None."""
    return "-" if instant_ms is None else _text(instant_ms, "seconds")


def instant_text_ms(instant_ms: int) -> str:
    """Writes an instant (UTC epoch ms) in ISO form to the millisecond; ``<number> ms`` outside the years 1 to 9999."""
    return _text(instant_ms, "milliseconds")


def _text(instant_ms: int, precision: str) -> str:
    try:
        instant = _EPOCH + timedelta(milliseconds=instant_ms)
    except OverflowError:
        return f"{instant_ms} ms"
    return instant.replace(tzinfo=None).isoformat(timespec=precision) + "Z"
