"""The occurrences of rules in plain Python: one local time after the other, by zoneinfo."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim
from dateutil.rrule import rrulestr

MINUTE = timedelta(minutes=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ms(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def local(at: datetime, zone: ZoneInfo) -> datetime:
    return at.astimezone(zone).replace(tzinfo=None)


def instants(moment: datetime, zone: ZoneInfo, on_gap: str, on_fold: str) -> list[datetime]:
    """The instants of a local time, by the policies."""
    both = [moment.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
    real = sorted({each for each in both if local(each, zone) == moment})
    if real:
        return {"first": real[:1], "last": real[-1:], "both": real}[on_fold]
    if on_gap == "skip":
        return []
    # The two guesses lie around the change; all changes are at whole minutes here.
    at = min(both)
    before = at.astimezone(zone).utcoffset()
    while at.astimezone(zone).utcoffset() == before:
        at += MINUTE
    return [at]


def cron_instants(
    cron: str, zone: ZoneInfo, on_gap: str, on_fold: str, begin: datetime, end: datetime
) -> list[int]:
    """Those of a cron rule in [begin, end]. By elapsed time it looks at each minute."""
    margin = timedelta(days=2)
    start = local(begin, zone) - margin
    moments = list(takewhile(lambda each: each <= local(end, zone) + margin, CronSim(cron, start)))
    if cron.split()[-4].startswith("*"):
        matching = set(moments)
        minutes = (begin + number * MINUTE for number in range((end - begin) // MINUTE + 1))
        return [ms(each) for each in minutes if local(each, zone) in matching]
    found = {ms(at) for each in moments for at in instants(each, zone, on_gap, on_fold)}
    return sorted(at for at in found if ms(begin) <= at <= ms(end))


def later(anchor: datetime, unit: str, size: int) -> Iterator[datetime]:
    """The local times after the anchor: so many days or months later, again and again."""
    for number in count(1):
        if unit == "days":
            yield anchor + timedelta(days=size * number)
        else:
            years, month = divmod(anchor.month - 1 + size * number, 12)
            year, month = anchor.year + years, month + 1
            yield anchor.replace(year=year, month=month, day=min(anchor.day, monthrange(year, month)[1]))


def step_instants(
    unit: str, size: int, zone: ZoneInfo, on_gap: str, on_fold: str, anchor: datetime, end: datetime
) -> list[int]:
    """Those of ``every ... days`` or ``months`` from the anchor to the end."""
    limit = local(end, zone) + timedelta(days=2)
    moments = takewhile(lambda each: each <= limit, later(local(anchor, zone), unit, size))
    found = {ms(at) for each in moments for at in instants(each, zone, on_gap, on_fold)}
    return [ms(anchor), *sorted(at for at in found if ms(anchor) < at <= ms(end))]


def rrule_instants(
    text: str, zone: ZoneInfo, on_gap: str, on_fold: str, anchor: datetime, end: datetime
) -> list[int]:
    """Those of an RRULE from the anchor to the end."""
    start = local(anchor, zone)
    limit = local(end, zone) + timedelta(days=2)
    moments = list(takewhile(lambda each: each <= limit, rrulestr(text, dtstart=start)))
    found = {ms(at) for each in moments if each > start for at in instants(each, zone, on_gap, on_fold)}
    begins = [ms(anchor)] if moments[:1] == [start] else []
    return begins + sorted(at for at in found if ms(anchor) < at <= ms(end))
