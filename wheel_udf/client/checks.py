"""The contract's rules for the arguments of the builders. Each function returns the value in the form in which it is
sent.

::

    argument          Python                            sent
    schedule_id       "order-7", 42                     order-7, 42
    seq               int                               a whole number of 64 bits
    deliver_at        datetime with a zone, ISO text    2026-01-01T10:00:00.250000Z, always UTC
    delay             timedelta, "1 hour 30 minutes"    the text; of a timedelta its milliseconds
    destination       "orders_to_close"                 as it is

What depends on the job is not checked here, because a producer does not know its config: the allow-list,
``max_delay``, the size of the payload.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, Literal

from wheel_udf.common.command_facts import (
    FIRST_DUE,
    FIRST_DUE_MS,
    ID_RULE,
    LONGEST_ERROR,
    LONGEST_REPEAT,
    LONGEST_ZONE,
    MAX_ID_BYTES,
    MOST_SPREAD_MS,
    ON_FOLD,
    ON_GAP,
    ON_MISSED,
    REPEAT_RULE,
    SERIES_FIELDS,
)
from wheel_udf.common.durations import DURATION_RULE, parse_duration_ms
from wheel_udf.common.errors import ConfigError, ContractError
from wheel_udf.common.names import NAME_RULE, is_destination_name

Duration = str | timedelta
Instant = datetime | str
OnMissed = Literal["latest", "all", "none"]
OnGap = Literal["shift", "skip"]
OnFold = Literal["first", "last", "both"]

INSTANT_RULE: Final = "a datetime with a time zone, or ISO 8601 text with Z or an offset, to the microsecond"
_DAY_MS: Final = 86_400_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FINER: Final = re.compile(r"[.,]\d{6}0*[1-9]")


def schedule_id(value: object) -> str:
    """Checks an id.

    Raises:
        ContractError: Not 1 to 512 bytes of UTF-8 without NUL.
    """
    is_id = isinstance(value, str | int) and not isinstance(value, bool)
    text = _plain(value) if is_id else ""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:  # half of a surrogate pair
        size = 0
    if not 1 <= size <= MAX_ID_BYTES or "\0" in text:
        raise ContractError("not an id", field="schedule_id", value=value, rule=ID_RULE)
    return text


def _plain(value: object) -> str:
    """A text or a number as text: of an enum that is one the value, and not its name."""
    return str.__str__(value) if isinstance(value, str) else str(value)


def seq(value: object) -> str:
    """Checks a version.

    Raises:
        ContractError: Not a whole number of 64 bits.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise ContractError("not a version", field="seq", value=value, rule="a whole number of 64 bits")
    return str(value)


def destination(value: object) -> str:
    """Checks a destination name.

    Raises:
        ContractError: It breaks the rule of names.
    """
    if not isinstance(value, str) or not is_destination_name(value):
        raise ContractError("not a destination", field="destination", value=value, rule=NAME_RULE)
    return value


def duration(value: object, field: str, *, negative: bool = True, most_ms: int | None = None) -> str:
    """Checks a duration; a timedelta becomes milliseconds with a fraction.

    Args:
        value: The duration.
        field: The name of the argument.
        negative: Whether it may be negative.
        most_ms: The longest one; None: any.

    Raises:
        ContractError: Not a duration, negative, or too long.
    """
    is_span = isinstance(value, timedelta) and not getattr(value, "nanoseconds", 0)  # pandas has them
    text = _text_of(value) if is_span else value  # type: ignore[arg-type]  # a timedelta
    try:
        if isinstance(text, str):
            span_ms = parse_duration_ms(text)
            if (span_ms >= 0 or negative) and (most_ms is None or span_ms <= most_ms):
                return text
    except ConfigError:
        pass
    bounds = [] if negative else ["not negative"]
    bounds += [] if most_ms is None else [f"at most {most_ms // _DAY_MS} days"]
    rule = "; ".join([*bounds, DURATION_RULE])
    hint = "for an instant use deliver_at" if field == "delay" else None
    raise ContractError("not a duration", field=field, value=value, rule=rule, hint=hint)


def _text_of(span: timedelta) -> str:
    micros = abs(span) // timedelta(microseconds=1)
    return f"{'-' if span < timedelta(0) else ''}{micros // 1000}.{micros % 1000:03d} ms"


def instant(value: object, field: str) -> str:
    """Checks an instant and writes it as ISO 8601 in UTC.

    Args:
        value: The instant.
        field: The name of the argument.

    Raises:
        ContractError: Not an instant, or one without a time zone: only the producer knows which zone it meant.
    """
    at = _datetime_of(value, field)
    if at.tzinfo is None or at.utcoffset() is None:
        hint = "datetime.now(UTC), or .replace(tzinfo=...); in text, a Z or an offset such as +01:00"
        raise ContractError(
            "an instant without a time zone", field=field, value=value, rule=INSTANT_RULE, hint=hint
        )
    try:
        return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    except OverflowError:
        raise ContractError("not an instant", field=field, value=value, rule=INSTANT_RULE) from None


def due_instant(value: object, field: str = "deliver_at") -> str:
    """Checks a due time; see :func:`instant`.

    Raises:
        ContractError: Also for one before 1900.
    """
    text = instant(value, field)
    if (datetime.fromisoformat(text) - _EPOCH) / timedelta(milliseconds=1) < FIRST_DUE_MS:
        rule = f"not before {FIRST_DUE}"
        raise ContractError("due before all calendars in use", field=field, value=value, rule=rule)
    return text


def _datetime_of(value: object, field: str) -> datetime:
    if isinstance(value, datetime) and not getattr(value, "nanosecond", 0):  # pandas has them
        return value
    try:
        # Python would cut finer digits off: early by up to 1 us.
        if isinstance(value, str) and not _FINER.search(value):
            return datetime.fromisoformat(value.strip())
    except ValueError:
        pass
    hint = (
        "epoch numbers name no unit: datetime.fromtimestamp(seconds, UTC)"
        if isinstance(value, int | float)
        else None
    )
    raise ContractError("not an instant", field=field, value=value, rule=INSTANT_RULE, hint=hint)


def one_due_time(deliver_at: object, delay: object) -> None:
    """Checks that a schedule has one due time.

    Raises:
        ContractError: None, or two.
    """
    if (deliver_at is None) == (delay is None):
        what = "no due time" if delay is None else "two due times"
        raise ContractError(what, field="deliver_at, delay", rule="exactly one of deliver_at and delay")


def due_time(given: Mapping[str, object]) -> None:
    """Checks that a schedule has one due time, or is a series with one beginning at most.

    Args:
        given: Its arguments by name; None for one that is not given.

    Raises:
        ContractError: It does not.
    """
    if given["repeat"] is None:
        one_due_time(given["deliver_at"], given["delay"])
        for name in SERIES_FIELDS:
            if name not in ("spread", "repeat") and given[name] is not None:
                what = "an argument of a series without a rule"
                raise ContractError(what, field=name, value=given[name], rule="beside repeat")
        return
    begins = [name for name in ("deliver_at", "delay", "starts_at") if given[name] is not None]
    if len(begins) > 1:
        rule = "at most one of deliver_at, delay and starts_at"
        raise ContractError("two beginnings of a series", field=", ".join(begins), rule=rule)


def error(value: object) -> str:
    """Checks the reason of a failure, and cuts it.

    Raises:
        ContractError: Not a text.
    """
    if not isinstance(value, str):
        raise ContractError("not a text", field="error", value=value, rule="a text")
    return value.encode(errors="replace").decode()[:LONGEST_ERROR]


def count(value: object) -> str:
    """Checks a number of occurrences.

    Raises:
        ContractError: Not a whole number from 1.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**63:
        raise ContractError("not a number of occurrences", field="count", value=value, rule="at least 1")
    return str(value)


def text(value: object, field: str, rule: str, longest: int) -> str:
    """Checks a text whose meaning the job checks.

    Raises:
        ContractError: Not a text, or an empty or a long one.
    """
    if not isinstance(value, str) or not 1 <= len(value) <= longest:
        rule = f"{rule}; at most {longest} characters"
        raise ContractError("not a text", field=field, value=value, rule=rule)
    return value


def word(value: object, field: str, words: tuple[str, ...]) -> str:
    """Checks one of some words.

    Raises:
        ContractError: Another one.
    """
    if value not in words:
        raise ContractError("not a policy", field=field, value=value, rule=f"one of {', '.join(words)}")
    return _plain(value)


CHECKS: Final[Mapping[str, Callable[[Any], str]]] = {
    "schedule_id": schedule_id,
    "seq": seq,
    "event_time": partial(instant, field="event_time"),
    "deliver_at": due_instant,
    "delay": partial(duration, field="delay"),
    "destination": destination,
    "max_lateness": partial(duration, field="max_lateness", negative=False),
    "spread": partial(duration, field="spread", negative=False, most_ms=MOST_SPREAD_MS),
    "repeat": partial(text, field="repeat", rule=REPEAT_RULE, longest=LONGEST_REPEAT),
    "time_zone": partial(text, field="time_zone", rule="such as Europe/Paris", longest=LONGEST_ZONE),
    "starts_at": partial(due_instant, field="starts_at"),
    "until": partial(instant, field="until"),
    "count": count,
    "on_missed": partial(word, field="on_missed", words=ON_MISSED),
    "on_gap": partial(word, field="on_gap", words=ON_GAP),
    "on_fold": partial(word, field="on_fold", words=ON_FOLD),
}
"""The check of each argument."""
