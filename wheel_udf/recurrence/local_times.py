"""Local times of a zone and instants, both ways, as numpy arrays; and what happens to local times that the clock skips
or shows twice.

A zone's clock is cut into *pieces* between its changes. In a piece the offset is constant, so an instant is a local
time minus the offset. America/New_York in 2026::

    instants       ------------ 8 March 07:00Z ------------ 1 November 06:00Z ------------>
    piece                0      |           1               |           2
    offset            -05:00    |        -04:00             |        -05:00
    local time         to 02:00 | from 03:00       to 02:00 | from 01:00
                          the gap 02:00-03:00         the fold 01:00-02:00

The policies decide which piece *owns* a local time, so that the rest of this room needs no cases::

    on_gap    shift    a local time in the gap happens at the first instant after it (07:00Z)
              skip     it does not happen
    on_fold   first    a local time in the fold belongs to the piece before the change
              last     to the piece after it
              both     to both: it happens twice

Zones are read by :mod:`zoneinfo`, once each: the changes of 1800 to 2200 are found by bisection and kept. Later ones
(:data:`NEAR_END_MS`) are read only when an instant there is asked for; the calendar repeats after 400 years, and so do
the rules of all zones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np

from wheel_udf.common.arrays import Bools, Int64s
from wheel_udf.common.errors import ConfigError

DAY_MS: Final = 86_400_000

CYCLE_DAYS: Final = 146_097
"""400 years of the calendar, which are whole weeks: dates repeat with their weekdays."""

NEVER: Final = 2**63 - 1
"""In place of an instant that there is not."""

FAR: Final = 2**61
"""In ms. Farther from 1970 than any local time, and small enough to be added to one in 64 bits."""

NEAR_END_MS: Final = 7_258_118_400_000
"""2200-01-01T00:00Z."""


ZONE_RULE: Final = (
    "a name of the time zone database such as Europe/Paris, UTC, Z, or an offset such as +02:00"
)

_LONGEST_NAME: Final = 64
_WIDEST_OFFSET: Final = timedelta(hours=18)
_OFFSET: Final = re.compile(r"([+-])([0-9]{2})(?::?([0-9]{2}))?")
# Files beside the zones: two copies of them, one of which counts leap seconds, and two links that differ by machine.
_NOT_ZONES: Final = re.compile(r"(?:right|posix)/.*|localtime|posixrules|Factory")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Between two looks at the offset it must not change and change back. Freetown did so within 4 days in 1939, no zone
# within 6 days since.
_LOOKS: Final = ((1800, 1950, timedelta(days=3)), (1950, 2201, timedelta(days=6)))
_FAR_LOOKS: Final = ((2200, 2601, timedelta(days=6)),)


@dataclass(frozen=True, eq=False)
class ClockPieces:
    """A zone's clock, in p pieces between its changes, in order; all arrays are int64[p], in ms.

    Attributes:
        at_ms: The instant at which a piece begins; ``-FAR`` for the first.
        offset_ms: Local time minus UTC.
        begins_ms: The local time at which it begins; increasing.
        ends_ms: The local time at which it ends (exclusive); ``FAR`` for the last; increasing.
        low_ms: The first local time that it owns, by the policy `on_fold`.
        high_ms: The first local time behind those that it owns.
        gap_ms: Local times from here until `begins_ms` happen at `at_ms`: the gap, by the policy ``shift``. Equal
            to `begins_ms` where there is none.
    """

    at_ms: Int64s
    offset_ms: Int64s
    begins_ms: Int64s
    ends_ms: Int64s
    low_ms: Int64s
    high_ms: Int64s
    gap_ms: Int64s

    def piece_at(self, at_ms: Int64s) -> Int64s:
        """The piece that an instant is in: int64[n]."""
        return np.searchsorted(self.at_ms, at_ms, side="right") - 1

    def in_gap(self, local_ms: Int64s, piece: Int64s) -> Bools:
        """Whether a local time is in the gap before a piece, and shifted to its beginning: bool[n]."""
        return np.asarray((local_ms >= self.gap_ms[piece]) & (local_ms < self.begins_ms[piece]), bool)


@lru_cache(maxsize=1024)
def zone_of(zone: str) -> tzinfo:
    """Reads a time zone.

    Args:
        zone: As :data:`ZONE_RULE`.

    Raises:
        ConfigError: There is no such zone.
    """
    if zone in {"UTC", "Z"}:
        return UTC
    offset = _OFFSET.fullmatch(zone)
    if offset is not None:
        return _fixed(zone, offset)
    try:
        if len(zone) <= _LONGEST_NAME and not _NOT_ZONES.fullmatch(zone):
            return ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        # An unknown name, a path out of the folder, a folder, or a file that holds no zone: the same to the user.
        pass
    raise _no_zone(zone)


def _fixed(zone: str, offset: re.Match[str]) -> tzinfo:
    sign, hours, minutes = offset.groups(default="00")
    size = timedelta(hours=int(hours), minutes=int(minutes))
    if int(minutes) > 59 or size > _WIDEST_OFFSET:
        raise _no_zone(zone)
    return timezone(-size if sign == "-" else size)


def _no_zone(zone: str) -> ConfigError:
    hint = "offsets go to 18:00, with minutes below 60" if zone[:1] in {"+", "-"} else None
    return ConfigError("not a time zone", field="time_zone", value=zone, rule=ZONE_RULE, hint=hint)


def pieces_of(zone: str, on_gap: str, on_fold: str, upto_ms: int) -> ClockPieces:
    """The pieces of a zone's clock, exact for all instants through `upto_ms` (from the year 1, through 9999).

    Raises:
        ConfigError: There is no such zone.
    """
    return _far_pieces(zone, on_gap, on_fold) if upto_ms >= NEAR_END_MS else _pieces(zone, on_gap, on_fold)


@lru_cache(maxsize=1024)
def _pieces(zone: str, on_gap: str, on_fold: str) -> ClockPieces:
    return _cut(_near_changes(zone), on_gap, on_fold)


# Sixteen thousand pieces each, for a few rows by mistake or malice: few are kept.
@lru_cache(maxsize=16)
def _far_pieces(zone: str, on_gap: str, on_fold: str) -> ClockPieces:
    return _cut(_far_changes(zone), on_gap, on_fold)


def _cut(changes: list[tuple[int, int]], on_gap: str, on_fold: str) -> ClockPieces:
    at_ms, offset_ms = np.array(changes, np.int64).T
    begins, ends = at_ms + offset_ms, np.append(at_ms[1:] + offset_ms[:-1], FAR)
    low, high, gap = begins.copy(), ends.copy(), begins.copy()
    if on_fold == "first":
        low[1:] = np.maximum(begins[1:], ends[:-1])
    if on_fold == "last":
        high[:-1] = np.minimum(ends[:-1], begins[1:])
    if on_gap == "shift":
        gap[1:] = np.minimum(begins[1:], ends[:-1])
    return ClockPieces(at_ms, offset_ms, begins, ends, low, high, gap)


def to_local_ms(at_ms: Int64s, zone: str) -> Int64s:
    """What the clocks of a zone show.

    Args:
        at_ms: Instants, int64[n], in UTC epoch ms; of the years 1 to 9999.
        zone: A time zone.

    Returns:
        Local times, int64[n], in ms from 1970-01-01T00:00 local time.

    Raises:
        ConfigError: There is no such zone.
    """
    pieces = pieces_of(zone, "shift", "first", int(at_ms.max(initial=0)))
    return np.asarray(at_ms + pieces.offset_ms[pieces.piece_at(at_ms)], np.int64)


def to_instants_ms(local_ms: Int64s, zone: str, on_gap: str, on_fold: str) -> tuple[Int64s, Int64s]:
    """When the clocks of a zone show local times.

    Args:
        local_ms: Local times, int64[n], in ms from 1970-01-01T00:00 local time; of the years 1 to 9999.
        zone: A time zone.
        on_gap: ``shift`` or ``skip``.
        on_fold: ``first``, ``last`` or ``both``.

    Returns:
        Two times int64[n], in UTC epoch ms: the instant of each; and, by the policy ``both``, the second instant of
        a local time in a fold. :data:`NEVER` where there is none.

    Raises:
        ConfigError: There is no such zone.
    """
    pieces = pieces_of(zone, on_gap, on_fold, int(local_ms.max(initial=0)) + DAY_MS)
    # The first piece that ends behind a local time owns it, or the next one does, or it is in the gap before it.
    early = np.searchsorted(pieces.ends_ms, local_ms, side="right")
    late = np.minimum(early + 1, len(pieces.at_ms) - 1)
    owned = [(local_ms >= pieces.low_ms[each]) & (local_ms < pieces.high_ms[each]) for each in (early, late)]
    owned[1] &= late > early
    first = np.where(owned[1], local_ms - pieces.offset_ms[late], NEVER)
    first = np.where(pieces.in_gap(local_ms, early), pieces.at_ms[early], first)
    first = np.where(owned[0], local_ms - pieces.offset_ms[early], first)
    second = np.where(owned[0] & owned[1], local_ms - pieces.offset_ms[late], NEVER)
    return first, second


# ---- the changes of a zone: (instant in ms, offset from there on in ms), in order ------------------


# As many as there are zones: small lists, each of which takes about 20 ms to find.
@lru_cache(maxsize=1024)
def _near_changes(zone: str) -> list[tuple[int, int]]:
    read = zone_of(zone)
    first_ms = _offset_s(read, _seconds(datetime(_LOOKS[0][0], 1, 1, tzinfo=UTC))) * 1000
    found = [(-FAR, first_ms)]
    if isinstance(read, ZoneInfo):
        found += [(at * 1000, offset * 1000) for at, offset in _found_changes(read, _LOOKS)]
    return [each for each in found if each[0] < NEAR_END_MS]


def _far_changes(zone: str) -> list[tuple[int, int]]:
    """Those through the year 9999: the 400 years from 2200, again and again."""
    read, near = zone_of(zone), _near_changes(zone)
    if not isinstance(read, ZoneInfo):
        return near
    cycle_ms = CYCLE_DAYS * DAY_MS
    cycle = [(at * 1000, offset * 1000) for at, offset in _found_changes(read, _FAR_LOOKS)]
    cycle = [each for each in cycle if NEAR_END_MS <= each[0] < NEAR_END_MS + cycle_ms]
    return near + [(at + number * cycle_ms, offset) for number in range(20) for at, offset in cycle]


def _found_changes(
    zone: ZoneInfo, looks: tuple[tuple[int, int, timedelta], ...]
) -> Iterator[tuple[int, int]]:
    """The changes of the offset in some years: (instant, offset from there on), in s."""
    last_s = _seconds(datetime(looks[0][0], 1, 1, tzinfo=UTC)) - DAY_MS // 1000
    for first_year, end_year, step in looks:
        moment, end = datetime(first_year, 1, 1, tzinfo=zone), datetime(end_year, 1, 1, tzinfo=zone)
        before = moment.utcoffset()
        while moment < end:
            moment += step
            after = moment.utcoffset()
            if after == before:
                continue
            # In a gap zoneinfo says the offset from before, so the change may be one step back.
            low_s = max(last_s, _seconds(moment - 2 * step))
            for at_s, offset in _between(zone, low_s, _seconds(moment)):
                yield at_s, offset
                last_s = at_s
            before = after


def _between(zone: ZoneInfo, low_s: int, high_s: int) -> Iterator[tuple[int, int]]:
    """The changes in (low, high], where none is undone."""
    goal = _offset_s(zone, high_s)
    while (offset := _offset_s(zone, low_s)) != goal:
        same_s, other_s = low_s, high_s
        while other_s - same_s > 1:
            middle_s = (same_s + other_s) // 2
            if _offset_s(zone, middle_s) == offset:
                same_s = middle_s
            else:
                other_s = middle_s
        low_s = other_s
        yield low_s, _offset_s(zone, low_s)


def _offset_s(zone: tzinfo, at_s: int) -> int:
    offset = (_EPOCH + timedelta(seconds=at_s)).astimezone(zone).utcoffset() or timedelta()
    return offset // timedelta(seconds=1)


def _seconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(seconds=1)
