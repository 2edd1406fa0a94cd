"""Readers of instants and durations, a column of a batch at a time. For the rules of all readers see
:mod:`wheel_udf.commands.readers`.

Instants as text are ISO 8601: ``2026-02-28``, ``2026-02-28T07:30``, ``2026-02-28 07:30:00.123456789+01:00``,
``...Z``. An instant without a zone is UTC, whatever the time zone of the session is. Named zones are refused:
a local time may occur twice or not at all, and only the producer knows which instant was intended. A text is an instant
if Spark's ``cast`` takes it and it has this grammar.

Durations have the grammar of :mod:`wheel_udf.common.durations`. Those of one number and one unit are read all at once,
others one by one, each text once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from wheel_udf.commands import readers as read
from wheel_udf.commands.inputs import SOURCE_EVENT_TIME, Given
from wheel_udf.common.durations import BLANKS, UNITS_MS, parse_duration_ms
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.instants import MAX_INSTANT_MS

_DAY_MS: Final = 86_400_000
_ZONE: Final = " ?(?:Z|UTC|(?P<sign>[+-])(?P<zone_hours>[0-9]{2})(?::?(?P<zone_minutes>[0-9]{2}))?)"
_TIME: Final = (
    "[T ](?P<hours>[0-9]{2}):(?P<minutes>[0-9]{2})"
    rf"(?::(?P<seconds>[0-9]{{2}})(?:\.(?P<fraction>[0-9]{{1,9}}))?)?(?:{_ZONE})?"
)
_DATE: Final = "(?P<year>[+-]?[0-9]{4,6})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
_INSTANT: Final = rf"\A[{BLANKS}]*{_DATE}(?:{_TIME})?[{BLANKS}]*\z"
_DAYS_TO_1970: Final = 719_162
_LAST_US, _FIRST_US = (2**63 - 1) % 1_000, -(2**63) % 1_000
"""Of the last and the first microsecond of a timestamp what is beyond its ms."""
_MOST_ZONE_MINUTES: Final = 18 * 60
_MONTH_DAYS: Final = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_DAYS_BEFORE: Final = np.r_[0, np.cumsum(_MONTH_DAYS)[:-1]]

# One number and one unit, as most durations are written; no more digits than fit into 64 bits with any unit.
_PLAIN: Final = rf"\A[{BLANKS}]*(?P<number>[0-9]{{1,9}}) *(?P<unit>[a-z]+)[{BLANKS}]*\z"
_UNITS: Final = {
    name: unit_ms
    for names, unit_ms in zip(
        (
            "w week weeks",
            "d day days",
            "h hr hrs hour hours",
            "m min mins minute minutes",
            "s sec secs second seconds",
            "ms millis millisecond milliseconds",
        ),
        UNITS_MS,
        strict=True,
    )
    for name in names.split()
}
_UNIT_NAMES: Final = pa.array(list(_UNITS))
_UNIT_SIZES: Final = pa.array(list(_UNITS.values()), pa.int64())

Int64s = npt.NDArray[np.int64]


def instants_ms(values: pa.Array, *, round_up: bool) -> pa.Int64Array:
    """UTC epoch ms (int64) from a timestamp, timestamp_ntz (taken as UTC), date (its midnight in UTC) or text.

    Null for dates that no timestamp can hold. A number is refused: only a preset knows the unit of an epoch number. A
    fraction of a ms is rounded up (due times: never early) or down (the time of an event).

    Raises:
        TypeError: Any other type.
    """
    kind = values.type
    if kinds.is_timestamp(kind):
        return _of_micros(values.cast(pa.timestamp("us")).cast(pa.int64()), round_up=round_up)
    if kinds.is_date32(kind):
        days = values.cast(pa.int32()).cast(pa.int64())
        within = pc.less_equal(pc.abs(days), MAX_INSTANT_MS // _DAY_MS)
        return pc.multiply(pc.if_else(within, days, None), _DAY_MS)
    try:
        words = read.text(values)
    except TypeError:
        raise TypeError("timestamp, timestamp_ntz, date or ISO 8601 text") from None
    return _of_texts(words, round_up=round_up)


def event_ms(given: Given, batch_ms: pa.Int64Array) -> pa.Int64Array:
    """The ``event_time`` of a row (UTC epoch ms), else that of the source, else ``batch_ms``; null if unreadable."""
    made_ms = of_source_or(given, SOURCE_EVENT_TIME, "event_time", round_up=False)
    is_asked = pc.or_(given.is_there("event_time"), given.is_there(SOURCE_EVENT_TIME))
    return pc.if_else(is_asked, made_ms, batch_ms)


def of_source_or(given: Given, source: str, name: str, *, round_up: bool) -> pa.Int64Array:
    """The instant that a source has read already (its text does not count), else that of a column (UTC epoch ms)."""
    at_ms = given.read(source, instants_ms, pa.int64(), round_up=round_up)
    has_text = pc.and_(given.is_there(name), pc.invert(given.is_there(source)))
    if given.rows and not pc.any(has_text).as_py():
        return at_ms
    read_ms = given.read(name, instants_ms, pa.int64(), round_up=round_up)
    return pc.if_else(given.is_there(source), at_ms, read_ms)


def durations_ms(values: pa.Array) -> pa.Int64Array:
    """Durations in ms (int64), rounded up, saturated as in :mod:`wheel_udf.common.durations`, of texts and of
    numbers: a delay of 0 needs no unit.

    Raises:
        TypeError: Neither a number nor text.
    """
    kind = values.type
    if kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind):
        return pc.if_else(
            pc.equal(values.cast(pa.float64(), safe=False), 0.0), pa.scalar(0, pa.int64()), None
        )
    return _of_words(read.text(values))


def _of_micros(micros: pa.Int64Array, *, round_up: bool) -> pa.Int64Array:
    instants = pc.fill_null(micros, 0).to_numpy()
    made = instants // 1_000
    if round_up:
        made += instants % 1_000 != 0
    else:
        made = np.maximum(made, -MAX_INSTANT_MS)  # floored, the first ms of all fits no timestamp
    return _masked(made, pc.is_null(micros))


def _of_texts(words: pa.StringArray, *, round_up: bool) -> pa.Int64Array:
    if words.null_count == len(words):
        return pa.nulls(len(words), pa.int64())
    parts = pc.extract_regex(words, _INSTANT)
    place = {parts.type.field(at).name: at for at in range(parts.type.num_fields)}

    def number(name: str, digits: int = 0) -> Int64s:
        part = pc.utf8_ltrim(pc.fill_null(pc.struct_field(parts, place[name]), ""), "+")
        if digits:
            part = pc.utf8_rpad(part, digits, "0")
        return np.asarray(pc.if_else(pc.equal(part, ""), "0", part).cast(pa.int64()).to_numpy())

    year, month, day, minutes, zone_minutes = map(number, ("year", "month", "day", "minutes", "zone_minutes"))
    hours, seconds, zone_hours = map(number, ("hours", "seconds", "zone_hours"))
    nanos = number("fraction", 9)
    is_leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    known = np.clip(month, 1, 12) - 1
    sound = (month >= 1) & (month <= 12) & (day >= 1) & (day <= _MONTH_DAYS[known] + (is_leap & (known == 1)))
    sound &= (hours <= 23) & (minutes <= 59) & (seconds <= 59)
    ahead = zone_hours * 60 + zone_minutes
    sound &= (ahead <= _MOST_ZONE_MINUTES) & (zone_minutes <= 59)
    is_behind = pc.fill_null(pc.equal(pc.struct_field(parts, place["sign"]), "-"), fill_value=False)
    ahead = np.where(is_behind.to_numpy(zero_copy_only=False), -ahead, ahead)
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400 - _DAYS_TO_1970
    days += _DAYS_BEFORE[known] + (is_leap & (known > 1)) + day - 1
    instants_s = ((days * 24 + hours) * 60 + minutes - ahead) * 60 + seconds
    floor, micros = instants_s * 1_000 + nanos // 1_000_000, nanos // 1_000 % 1_000
    # What fits into a timestamp: 64 bits of microseconds.
    sound &= (floor < MAX_INSTANT_MS) | ((floor == MAX_INSTANT_MS) & (micros <= _LAST_US))
    sound &= (floor >= -MAX_INSTANT_MS) | ((floor == -MAX_INSTANT_MS - 1) & (micros >= _FIRST_US))
    if round_up:  # all nine digits count
        floor += nanos % 1_000_000 != 0
    return _masked(floor, pc.or_(pc.is_null(parts), pa.array(~sound)))


def _of_words(words: pa.StringArray) -> pa.Int64Array:
    if words.null_count == len(words):
        return pa.nulls(len(words), pa.int64())
    parts = pc.extract_regex(words, _PLAIN)
    unit = pc.index_in(pc.struct_field(parts, 1), _UNIT_NAMES)
    spans_ms = pc.multiply(pc.struct_field(parts, 0).cast(pa.int64()), _UNIT_SIZES.take(unit))
    left = pc.and_(pc.is_null(spans_ms), pc.is_valid(words))
    if not pc.any(left).as_py():
        return spans_ms
    others = words.filter(left).dictionary_encode()
    read_ms = pa.array(map(_span_ms, others.dictionary.to_pylist()), pa.int64())
    return pc.replace_with_mask(spans_ms, left, read_ms.take(others.indices))


@lru_cache(maxsize=10_000)
def _span_ms(words: str) -> int | None:
    try:
        return parse_duration_ms(words)
    except ConfigError:
        return None


def _masked(instants: Int64s, missing: pa.BooleanArray) -> pa.Int64Array:
    return pa.array(instants, mask=missing.to_numpy(zero_copy_only=False))
