"""The occurrences of a rule of recurrence: a reading of its own, one local time after the other.

::

    "0 9 * * MON-FRI"     cronsim     local times --zoneinfo, on_gap, on_fold--> instants in (begin, end]
    "every 1 month"       a scan      from the anchor: 31 January, 28 February, 31 March
    "RRULE:FREQ=DAILY"    dateutil    from the anchor, which is an occurrence if it matches
    "every 15 minutes"    a scan      instants: anchor, anchor + 15 minutes, ...

A rule in a form that is not read here, or whose package is not installed, is None: series with it are undecided.
Instants are UTC epoch ms. Cost: some microseconds for each occurrence from the beginning of the series on.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from itertools import count, takewhile
from typing import Any, Final
from zoneinfo import ZoneInfo

from wheel_udf.testing.ledger import texts

MOST: Final = 100_000
"""Of a series with more occurrences than this, the chain is not checked."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_MARGIN: Final = timedelta(days=2)  # more than any offset, and any change of it
_MACROS: Final = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip
_MONTHS: Final = re.compile(r"(?:(\d+) *years?)? *(?:(\d+) *months?)?|P(?:(\d+)Y)?(?:(\d+)M)?", re.IGNORECASE)
_DAYS: Final = re.compile(
    r"(?:(\d+) *w(?:eeks?)?)? *(?:(\d+) *d(?:ays?)?)?|P(?:(\d+)W)?(?:(\d+)D)?", re.IGNORECASE
)
_REPEATING: Final = re.compile(r"R(\d*)/(?:([^/]+)/)?(P[^/]+)")
_OFFSET: Final = re.compile(r"([+-])(\d\d)(?::?(\d\d))?")

LocalTimes = Callable[[datetime, datetime], Iterator[datetime]]
"""From an anchor and a begin, both local, to local times in order; those at the begin or before it do not count."""


@dataclass(frozen=True)
class Occurrences:
    """A rule.

    Attributes:
        zone: Its time zone.
        on_gap: ``shift`` or ``skip``.
        on_fold: ``first``, ``last`` or ``both``.
        local: Its local times; None if it counts elapsed time.
        period_ms: Of a rule that counts elapsed time.
        is_anchored: Whether it counts from an anchor: all rules but cron.
        anchor_counts: Whether the anchor is an occurrence whatever the local times are.
        times: How many occurrences it has by its text (``R5/...``).
        starts_ms: The anchor that its text names.
    """

    zone: tzinfo
    on_gap: str
    on_fold: str
    local: LocalTimes | None = None
    period_ms: int = 0
    is_anchored: bool = True
    anchor_counts: bool = True
    times: int | None = None
    starts_ms: int | None = None

    def after(self, begin_ms: int, anchor_ms: int) -> Iterator[int]:
        """The occurrences after an instant, in order, of a series with this anchor."""
        if self.local is None:
            number = max(0, (begin_ms - anchor_ms) // self.period_ms + 1)
            return (anchor_ms + each * self.period_ms for each in count(number))
        return self._zoned(self.local, begin_ms, anchor_ms)

    def _zoned(self, local: LocalTimes, begin_ms: int, anchor_ms: int) -> Iterator[int]:
        anchor, begin = (
            _local(_EPOCH + each * _MS, self.zone)
            for each in (anchor_ms, max(begin_ms, anchor_ms) if self.is_anchored else begin_ms)
        )
        if self.is_anchored:
            starts = self.anchor_counts or next(local(anchor, anchor - _MARGIN), None) == anchor
            if starts and begin_ms < anchor_ms:
                yield anchor_ms
            begin_ms = max(begin_ms, anchor_ms)
        # Around a change of clocks instants are not in the order of their local times.
        waiting: set[int] = set()
        for moment in local(anchor, begin - _MARGIN):
            settled = (moment.replace(tzinfo=UTC) - _MARGIN - _EPOCH) // _MS
            for at_ms in sorted(each for each in waiting if each < settled):
                waiting.discard(at_ms)
                yield at_ms
            waiting |= {at for at in _instants(moment, self.zone, self.on_gap, self.on_fold) if at > begin_ms}
        yield from sorted(waiting)


@lru_cache(maxsize=4096)
def read_rule(repeat: str, zone: str, on_gap: str, on_fold: str) -> Occurrences | None:
    """Reads a rule; None if it is in no form that is read here."""
    where = _zone(zone)
    if where is None or on_gap not in ("shift", "skip") or on_fold not in ("first", "last", "both"):
        return None
    text = _MACROS.get(repeat.strip().lower(), repeat.strip()).upper()
    policies = {"zone": where, "on_gap": on_gap, "on_fold": on_fold}
    if every := re.fullmatch(r"EVERY\s+(.+)", text):
        return _period(f"1 {every[1]}" if every[1].isalpha() else every[1], policies)
    if found := _REPEATING.fullmatch(text):
        policies |= {"times": int(found[1]) if found[1] else None}
        if found[2]:
            start = texts.instant_ms(found[2], up=False)
            if start is None:
                return None
            if datetime.fromisoformat(found[2]).tzinfo is None:
                moment = (_EPOCH + start * _MS).replace(tzinfo=None)
                start = _instants(moment, where, "shift", "last" if on_fold == "last" else "first")[0]
            policies |= {"starts_ms": start}
        return _period(found[3], policies)
    if text.startswith(("RRULE:", "FREQ=")):
        return _rrule(text.removeprefix("RRULE:"), policies)
    return _cron(text, policies)


def _period(text: str, policies: dict[str, Any]) -> Occurrences | None:
    if found := _MONTHS.fullmatch(text):
        years, months, more_years, more_months = (int(each or 0) for each in found.groups())
        size = (years + more_years) * 12 + months + more_months
        return Occurrences(local=_months(size), **policies) if size else None
    if found := _DAYS.fullmatch(text):
        weeks, days, more_weeks, more_days = (int(each or 0) for each in found.groups())
        size = (weeks + more_weeks) * 7 + days + more_days
        return Occurrences(local=_days(size), **policies) if size else None
    period_ms = texts.duration_ms(text)
    return Occurrences(period_ms=period_ms, **policies) if period_ms is not None and period_ms > 0 else None


def _days(size: int) -> LocalTimes:
    def times(anchor: datetime, begin: datetime) -> Iterator[datetime]:
        first = max(0, (begin - anchor) // timedelta(days=size))
        return _until_the_last(lambda number: anchor + timedelta(days=size * (first + number)))

    return times


def _months(size: int) -> LocalTimes:
    def at(anchor: datetime, number: int) -> datetime:
        years, month = divmod(anchor.month - 1 + size * number, 12)
        year, month = anchor.year + years, month + 1
        return anchor.replace(year=year, month=month, day=min(anchor.day, monthrange(year, month)[1]))

    def times(anchor: datetime, begin: datetime) -> Iterator[datetime]:
        first = max(0, ((begin.year - anchor.year) * 12 + begin.month - anchor.month) // size - 1)
        return _until_the_last(lambda number: at(anchor, first + number))

    return times


def _until_the_last(at: Callable[[int], datetime]) -> Iterator[datetime]:
    """The values of a function of 0, 1, 2 ..., as long as Python has them: to the year 9999."""
    for number in count():
        try:
            yield at(number)
        except (OverflowError, ValueError):
            return


def _cron(text: str, policies: dict[str, Any]) -> Occurrences | None:
    try:
        from cronsim import CronSim, CronSimError
    except ModuleNotFoundError:
        return None
    fields = text.split()
    cron = " ".join(fields if len(fields) == 6 else ["0", *fields])
    try:
        CronSim(cron, datetime(2000, 1, 1))  # noqa: DTZ001  # local times have no zone
    except (CronSimError, AssertionError, ValueError):
        return None
    if cron.split()[2].startswith("*"):
        # By elapsed time: at each instant whose local time matches.
        policies |= {"on_gap": "skip", "on_fold": "both"}
    return Occurrences(local=lambda _, begin: iter(CronSim(cron, begin)), is_anchored=False, **policies)


def _rrule(text: str, policies: dict[str, Any]) -> Occurrences | None:
    try:
        from dateutil.rrule import rrulestr
    except ModuleNotFoundError:
        return None
    try:
        rrulestr(text, dtstart=datetime(2000, 1, 1))  # noqa: DTZ001  # local times have no zone
    except (ValueError, TypeError, AttributeError):
        return None

    def times(anchor: datetime, begin: datetime) -> Iterator[datetime]:
        rest = timedelta(0) if "BYSECOND" in text else timedelta(microseconds=anchor.microsecond)
        for each in rrulestr(text, dtstart=anchor.replace(microsecond=0)):
            if each + rest > begin:
                yield each + rest

    return Occurrences(local=times, anchor_counts=False, **policies)


# --- zones ----------------------------------------------------------------------------------------


def _zone(name: str) -> tzinfo | None:
    if name in ("UTC", "Z"):
        return UTC
    if found := _OFFSET.fullmatch(name):
        size = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
        return timezone(-size if found[1] == "-" else size) if size < timedelta(days=1) else None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


def _local(at: datetime, zone: tzinfo) -> datetime:
    return at.astimezone(zone).replace(tzinfo=None)


def _instants(moment: datetime, zone: tzinfo, on_gap: str, on_fold: str) -> list[int]:
    """The instants of a local time."""
    both = sorted({moment.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)})
    real = [each for each in both if _local(each, zone) == moment]
    if real:
        chosen = {"first": real[:1], "last": real[-1:], "both": real}[on_fold]
    else:
        chosen = [] if on_gap == "skip" else [_change_between(both[0], both[-1], zone)]
    return [(each - _EPOCH) // _MS for each in chosen]


def _change_between(before: datetime, after: datetime, zone: tzinfo) -> datetime:
    """The instant at which the clock changes between two others, by bisection of whole seconds."""
    offset, size = before.astimezone(zone).utcoffset(), int((after - before).total_seconds())
    low, high = 0, size  # before it, after it
    while high - low > 1:
        middle = (low + high) // 2
        same = (before + timedelta(seconds=middle)).astimezone(zone).utcoffset() == offset
        low, high = (middle, high) if same else (low, middle)
    at = before + timedelta(seconds=high)
    return at.replace(microsecond=0)


def upto(occurrences: Iterator[int], end_ms: float) -> Iterator[int]:
    """Those through an instant."""
    return takewhile(lambda each: each <= end_ms, occurrences)
