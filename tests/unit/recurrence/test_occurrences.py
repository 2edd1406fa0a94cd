"""Occurrences against a slow reference, against cronsim, against each other, and for all of int64."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from cronsim import CronSim
from hypothesis import assume, given, strategies as st

from tests.unit.recurrence.slow_reference import cron_instants, local, ms, rrule_instants, step_instants
from wheel_udf.common.errors import ConfigError
from wheel_udf.recurrence.local_times import NEVER
from wheel_udf.recurrence.occurrences import FIRST_MS, LAST_MS, Occurrences, occurrences_of
from wheel_udf.recurrence.sources import MOST

MAX, MIN = 2**63 - 1, -(2**63)
DAY = 86_400_000

# An hour, half an hour, at midnight, a day; twice a year, four times a year, never.
ZONES = (
    "America/New_York", "Europe/Paris", "Europe/Dublin", "Australia/Lord_Howe", "Africa/Casablanca", "Africa/Cairo",
    "America/Sao_Paulo", "Pacific/Apia", "America/Havana", "Asia/Tehran", "Asia/Kolkata", "UTC",
)  # fmt: skip
# Changes of a whole hour that do not touch midnight.
PLAIN_ZONES = ("America/New_York", "Europe/Paris", "Europe/Dublin", "Australia/Sydney", "Asia/Kolkata")

zones = st.sampled_from(ZONES)
gaps, folds = st.sampled_from(["shift", "skip"]), st.sampled_from(["first", "last", "both"])


def whole_minutes(first_year: int = 2005, last_year: int = 2030) -> st.SearchStrategy[datetime]:
    return st.datetimes(datetime(first_year, 1, 1), datetime(last_year, 1, 1)).map(  # noqa: DTZ001
        lambda each: each.replace(second=0, microsecond=0, tzinfo=UTC)
    )


# A few days before a change of the clock of most zones, as often as any other time.
beginnings = whole_minutes() | st.builds(
    lambda year, day, minutes: datetime(year, *day, tzinfo=UTC) + timedelta(minutes=minutes),
    st.integers(2005, 2030),
    st.sampled_from([(3, 7), (3, 28), (4, 3), (10, 3), (10, 18), (10, 25), (11, 1), (12, 28)]),
    st.integers(0, 5 * 24 * 60),
)


def field(low: int, high: int) -> st.SearchStrategy[str]:
    """A field of a cron rule that does not begin with a star."""
    number = st.integers(low, high).map(str)
    ranges = (
        st.tuples(st.integers(low, high), st.integers(low, high))
        .map(sorted)
        .map(lambda ends: f"{ends[0]}-{ends[1]}")
    )
    steps = st.tuples(ranges, st.integers(1, high)).map(lambda each: f"{each[0]}/{each[1]}")
    return st.lists(number | number | ranges | steps, min_size=1, max_size=3).map(",".join)


def starred(low: int, high: int) -> st.SearchStrategy[str]:
    return st.just("*") | st.integers(2, max(3, high // 2)).map(lambda step: f"*/{step}") | field(low, high)


days = st.just("*") | st.sampled_from(["L", "LW", "*/2", "1-7", "29", "31", "L,1"]) | field(1, 31)
months = st.just("*") | st.sampled_from(["MAR,OCT", "*/2", "3-11"]) | field(1, 12)
weekdays = (
    st.just("*") | st.sampled_from(["SUN", "MON-FRI", "0#1", "SUN#2,5L", "7L", "*/3", "0,7"]) | field(0, 7)
)
dates = st.tuples(days, months, weekdays).map(" ".join)
timed = st.tuples(field(0, 59), field(0, 23), dates).map(" ".join)
hourly = st.tuples(starred(0, 59), st.sampled_from(["*", "*/2", "*/5", "*,1"]), dates).map(" ".join)
night = st.tuples(st.sampled_from(["0", "30", "15,45", "0-59/10", "*/20"]), st.sampled_from(["0", "1", "2", "0-3", "1,3", "23"]), dates).map(" ".join)  # fmt: skip
crons = timed | hourly | night

RRULES = (
    "FREQ=DAILY", "FREQ=DAILY;INTERVAL=3", "FREQ=DAILY;BYHOUR=1,2;BYMINUTE=0,30", "FREQ=DAILY;BYMONTH=3,10;INTERVAL=2",
    "FREQ=WEEKLY;BYDAY=MO,WE", "FREQ=WEEKLY;INTERVAL=2;BYDAY=SU,MO;WKST=SU", "FREQ=WEEKLY;INTERVAL=3;BYDAY=SU,TU",
    "FREQ=MONTHLY", "FREQ=MONTHLY;BYDAY=-1SU;BYHOUR=2", "FREQ=MONTHLY;BYMONTHDAY=31", "FREQ=MONTHLY;INTERVAL=5;BYMONTHDAY=-1",
    "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1,1", "FREQ=YEARLY", "FREQ=YEARLY;BYDAY=20MO", "FREQ=YEARLY;BYWEEKNO=1,53",
    "FREQ=YEARLY;INTERVAL=2;BYYEARDAY=1,-1,100", "FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU;BYHOUR=1,2", "FREQ=HOURLY;INTERVAL=7",
    "FREQ=HOURLY;BYHOUR=1,2,9", "FREQ=HOURLY;INTERVAL=5;BYDAY=SU", "FREQ=MINUTELY;INTERVAL=77", "FREQ=MINUTELY;INTERVAL=50;BYHOUR=1,2",
    "FREQ=DAILY;BYHOUR=1,2;BYSETPOS=-1", "FREQ=MONTHLY;BYDAY=SU,MO;BYHOUR=2,3;BYSETPOS=2,-1", "FREQ=WEEKLY;BYSECOND=0,30;BYHOUR=1,3,23",
    "FREQ=MONTHLY;INTERVAL=2;BYDAY=1SU,-1SU;BYMINUTE=0,1,59", "FREQ=WEEKLY", "FREQ=YEARLY;BYMONTH=3,10;BYHOUR=2",
)  # fmt: skip


def agrees(occurrences: Occurrences, expected: list[int], anchor_ms: int, begin_ms: int, end_ms: int) -> None:
    """All questions have the answers of a list of the occurrences in [begin, end]."""
    instants = np.array(expected, np.int64)
    near = np.r_[instants, instants - 1, instants + 1, begin_ms - 1, (instants[:-1] + instants[1:]) // 2]
    asked = np.unique(near[(near >= begin_ms - 1) & (near <= end_ms)])
    asked = asked[:: max(1, len(asked) // 300)]
    anchors = np.full(len(asked), anchor_ms)
    place = np.searchsorted(instants, asked, side="right")
    known = place < len(instants)

    assert occurrences.after(asked, anchors)[known].tolist() == instants[place[known]].tolist()
    assert (occurrences.after(asked, anchors)[~known] > end_ms).all()
    assert (occurrences.first(asked + 1, anchors) == occurrences.after(asked, anchors)).all()
    assert occurrences.between(begin_ms - 1, end_ms, anchor_ms, 5).tolist() == expected[:5]
    for upto_ms in {end_ms, int(asked[len(asked) // 2])}:
        count, newest = occurrences.upto(asked, upto_ms, anchors)
        end = int(np.searchsorted(instants, upto_ms, side="right"))
        passed = np.maximum(end - place, 0)
        assert count.tolist() == passed.tolist()
        assert (
            newest.tolist() == np.where(passed > 0, instants[max(end, 1) - 1] if end else 0, asked).tolist()
        )


@given(cron=crons, zone=zones, on_gap=gaps, on_fold=folds, begin=beginnings)
def test_a_cron_rule_occurs_when_a_scan_of_minutes_says_so(
    cron: str, zone: str, on_gap: str, on_fold: str, begin: datetime
) -> None:
    try:
        occurrences = occurrences_of(cron, zone, on_gap, on_fold)
    except ConfigError:
        assume(False)
    end = begin + timedelta(days=6)
    expected = cron_instants(cron, ZoneInfo(zone), on_gap, on_fold, begin, end)[:400]
    agrees(occurrences, expected, 0, ms(begin), expected[-1] if len(expected) == 400 else ms(end))


@given(unit=st.sampled_from(["days", "months"]), size=st.integers(1, 40), zone=zones, on_gap=gaps, on_fold=folds, anchor=beginnings)  # fmt: skip
def test_days_and_months_are_counted_from_the_anchor(
    unit: str, size: int, zone: str, on_gap: str, on_fold: str, anchor: datetime
) -> None:
    end = anchor + timedelta(days=400 if unit == "days" else 1500)
    expected = step_instants(unit, size, ZoneInfo(zone), on_gap, on_fold, anchor, end)
    agrees(
        occurrences_of(f"every {size} {unit}", zone, on_gap, on_fold),
        expected,
        ms(anchor),
        ms(anchor) - DAY,
        ms(end),
    )


@given(rule=st.sampled_from(RRULES), zone=zones, on_gap=gaps, on_fold=folds, anchor=beginnings)
def test_an_rrule_occurs_as_dateutil_says_from_the_anchor_on(
    rule: str, zone: str, on_gap: str, on_fold: str, anchor: datetime
) -> None:
    end = anchor + timedelta(days=10 if "HOURLY" in rule or "MINUTELY" in rule else 800)
    try:
        expected = rrule_instants(rule, ZoneInfo(zone), on_gap, on_fold, anchor, end)
    except ValueError:
        expected = []  # from this anchor the interval never comes to the hours
    agrees(occurrences_of(rule, zone, on_gap, on_fold), expected, ms(anchor), ms(anchor) - DAY, ms(end))


@given(size_ms=st.integers(1, 10**10), anchor=st.integers(0, 10**12), asked=st.lists(st.integers(-(10**12), 10**13), min_size=1))  # fmt: skip
def test_other_periods_are_elapsed_time(size_ms: int, anchor: int, asked: list[int]) -> None:
    occurrences = occurrences_of(f"every {size_ms} ms", "Europe/Paris")
    expected = [anchor if at < anchor else anchor + ((at - anchor) // size_ms + 1) * size_ms for at in asked]

    assert occurrences.after(np.array(asked), np.full(len(asked), anchor)).tolist() == expected
    upto_ms = max(asked)
    count, newest = occurrences.upto(np.array(asked), upto_ms, np.full(len(asked), anchor))
    last = (upto_ms - anchor) // size_ms
    for at, counted, reached in zip(asked, count.tolist(), newest.tolist(), strict=True):
        number = max(0, last - (max(at, anchor - 1) - anchor) // size_ms)
        assert (counted, reached) == (min(number, MOST), anchor + last * size_ms if number else at)


@given(cron=timed, zone=zones, begin=whole_minutes())
def test_a_timed_cron_rule_is_that_of_cronsim(cron: str, zone: str, begin: datetime) -> None:
    start = begin.astimezone(ZoneInfo(zone))
    # cronsim steps by local time: from the second hour of a fold it would go back into the first.
    assume(start.fold == 0)
    same_as_cronsim(cron, zone, start)


@given(cron=hourly, zone=st.sampled_from(PLAIN_ZONES), begin=beginnings)
def test_an_hourly_cron_rule_is_that_of_cronsim(cron: str, zone: str, begin: datetime) -> None:
    # Not across half an hour or at midnight: what cronsim says there depends on where it begins.
    same_as_cronsim(cron, zone, begin.astimezone(ZoneInfo(zone)))


def same_as_cronsim(cron: str, zone: str, start: datetime) -> None:
    try:
        theirs = [ms(each) for each in islice(CronSim(cron, start), 30)]
        occurrences = occurrences_of(cron, zone)
    except Exception:  # noqa: BLE001  # cronsim asserts, and gives up after 50 years
        assume(False)

    assert occurrences.between(ms(start), LAST_MS, 0, len(theirs)).tolist() == theirs


@given(
    cron=st.tuples(dates, st.integers(0, 59)).map(lambda each: f"{each[1]} 30 12 {each[0]}"),
    year=st.integers(1, 9900),
)
def test_dates_are_those_of_cronsim_in_all_centuries(cron: str, year: int) -> None:
    try:
        occurrences = occurrences_of(cron)
        theirs = [ms(each) for each in islice(CronSim(cron, datetime(year, 1, 1, tzinfo=UTC)), 20)]
    except (ConfigError, RuntimeError):
        assume(False)
    begin = ms(datetime(year, 1, 1, tzinfo=UTC))

    assert occurrences.between(begin, LAST_MS, 0, len(theirs)).tolist() == theirs


ALL_KINDS = [
    "* * * * *", "0 9 * * MON-FRI", "0 0 29 2 *", "0 0 * 2 MON#5", "59 59 23 31 12 *", "*/10 * * * * *", "30 2 * * *",
    "every 1 ms", "every 15 minutes", "every 99999999 weeks 1 h", "every 1 day", "every 99999999 days", "every 1 month",
    "every 99999999 months", "every year", "FREQ=DAILY", "FREQ=WEEKLY;BYDAY=MO;WKST=SU", "FREQ=YEARLY;BYDAY=MO", "FREQ=HOURLY",
    "FREQ=MONTHLY;BYMONTHDAY=31", "FREQ=MINUTELY;INTERVAL=9",
]  # fmt: skip
HOSTILE = [
    MIN, MIN + 1, -(2**62), -(2**53), FIRST_MS - 2, FIRST_MS - 1, FIRST_MS, FIRST_MS + 1, -1, 0, 1, 1_774_000_000_123,
    7_258_118_399_999, 7_258_118_400_000, LAST_MS - DAY, LAST_MS - 1, LAST_MS, LAST_MS + 1, 2**53, 2**62, MAX - 1, MAX,
]  # fmt: skip


@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris", "Pacific/Apia", "+14:00", "-12:00"])
@pytest.mark.parametrize("rule", ALL_KINDS)
def test_all_of_int64_may_be_asked_for(rule: str, zone: str) -> None:
    occurrences = occurrences_of(rule, zone, "skip", "both")
    asked, anchors = (each.ravel() for each in np.meshgrid(np.array(HOSTILE), np.array(HOSTILE)))
    found = occurrences.after(asked, anchors)

    assert (found[found != NEVER] > asked[found != NEVER]).all()
    assert ((found == NEVER) | ((found >= FIRST_MS) & (found <= LAST_MS))).all()
    if occurrences.rule.is_anchored:
        assert (found >= np.maximum(anchors, FIRST_MS)).all()
    else:
        assert len(set(zip(asked.tolist(), found.tolist(), strict=True))) == len(HOSTILE)


@pytest.mark.parametrize("rule", [rule for rule in ALL_KINDS if "FREQ" not in rule])
@pytest.mark.parametrize("upto_ms", [MIN, 0, 1_774_000_000_123, 7_258_118_400_123, 10**30, -(10**30)])
def test_what_has_passed_may_be_asked_of_all_of_int64(rule: str, upto_ms: int) -> None:
    # Of a zone there are sixteen thousand changes through the year 9999: the others show that they are right.
    occurrences = occurrences_of(
        rule, "Europe/Paris" if upto_ms < LAST_MS or rule == "30 2 * * *" else "+05:00"
    )
    asked, anchors = (each.ravel() for each in np.meshgrid(np.array(HOSTILE), np.array(HOSTILE)))
    count, newest = occurrences.upto(asked, upto_ms, anchors)

    assert ((count >= 0) & (count <= MOST)).all()
    assert (newest[count == 0] == asked[count == 0]).all()
    some = count > 0
    assert ((newest[some] > asked[some]) & (newest[some] <= upto_ms)).all()
    assert (occurrences.after(newest[some], anchors[some]) > min(upto_ms, LAST_MS)).all()


@pytest.mark.parametrize(
    "rule", ["FREQ=DAILY", "FREQ=HOURLY;BYDAY=MO", "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29"]
)
def test_an_rrule_finds_the_newest_occurrence_years_back(rule: str) -> None:
    occurrences = occurrences_of(rule, "Europe/Paris")
    anchor, upto_ms = np.array([0]), 1_774_000_000_123
    count, newest = occurrences.upto(np.array([-1]), upto_ms, anchor)

    assert occurrences.after(newest, anchor)[0] > upto_ms >= newest[0]
    assert len(occurrences.between(-1, upto_ms, 0, 40)) == min(count[0], 40)


@pytest.mark.parametrize(
    ("rule", "upto_ms"),
    [("* * * * * *", 1_774_000_000_123), ("FREQ=MINUTELY", 60_000 * 200_000), ("every 1 ms", 10**6)],
)
def test_the_count_ends_at_most_and_the_newest_is_exact(rule: str, upto_ms: int) -> None:
    occurrences = occurrences_of(rule, "Europe/Paris")
    nearly = upto_ms - (upto_ms - MOST) % 1000
    count, newest = occurrences.upto(np.array([-1, upto_ms - 5_000]), upto_ms, np.array([0, 0]))

    assert count[0] == MOST
    assert count[1] == len(occurrences.between(upto_ms - 5_000, upto_ms, 0, 10_000))
    assert occurrences.after(newest[:1], np.array([0]))[0] > upto_ms >= newest[0] >= nearly - 60_000


@given(
    rule=st.sampled_from(["30 2 * * *", "*/20 * * * *", "every 1 day", "every 1 month", "FREQ=WEEKLY", "every 7 h"]),
    zone=zones, on_gap=gaps, on_fold=folds, rows=st.lists(st.tuples(beginnings, beginnings), min_size=1, max_size=8),
)  # fmt: skip
def test_a_row_has_its_own_answer_whatever_stands_beside_it(
    rule: str, zone: str, on_gap: str, on_fold: str, rows: list[tuple[datetime, datetime]]
) -> None:
    occurrences = occurrences_of(rule, zone, on_gap, on_fold)
    asked, anchors = (np.array([ms(each) for each in column]) for column in zip(*rows, strict=True))
    upto_ms = int(asked.max()) + DAY
    together = occurrences.after(asked, anchors), *occurrences.upto(asked, upto_ms, anchors)
    alone = [
        (occurrences.after(*row)[0], *(each[0] for each in occurrences.upto(row[0], upto_ms, row[1])))
        for row in zip(asked[:, None], anchors[:, None], strict=True)
    ]

    assert list(zip(*(each.tolist() for each in together), strict=True)) == alone


@pytest.mark.parametrize(
    "rule", ["*/20 * * * *", "30 2 * * *", "every 7 hours", "every 1 day", "FREQ=DAILY;BYHOUR=2"]
)
@given(
    after=st.lists(st.integers(0, 300), min_size=1, max_size=5),
    wait=st.lists(st.integers(-5, 900), min_size=5),
)
def test_each_row_may_be_asked_up_to_an_instant_of_its_own(
    rule: str, after: list[int], wait: list[int]
) -> None:
    occurrences = occurrences_of(rule, "Europe/Paris")
    at = ms(datetime(2026, 3, 20, tzinfo=UTC)) + np.array(after) * 3_600_000
    upto = at + np.array(wait[: len(after)]) * 1_800_000
    anchor = np.full(len(at), ms(datetime(2026, 3, 1, tzinfo=UTC)))
    count, newest = occurrences.upto(at, upto, anchor)
    for row in range(len(at)):
        one = slice(row, row + 1)
        alone = occurrences.upto(at[one], int(upto[row]), anchor[one])
        assert (count[row], newest[row]) == (alone[0][0], alone[1][0])


@pytest.mark.parametrize("rule", ALL_KINDS)
def test_no_rows_have_no_answers(rule: str) -> None:
    none = np.zeros(0, np.int64)
    occurrences = occurrences_of(rule, "Europe/Paris")

    assert [len(each) for each in (occurrences.after(none, none), *occurrences.upto(none, 0, none))] == [
        0,
        0,
        0,
    ]


@pytest.mark.parametrize(
    "rule", ["* * * * *", "0 9 * * *", "every 1 day", "every 1 month", "every 15 minutes"]
)
def test_a_hundred_thousand_rows_take_no_loop(rule: str) -> None:
    asked = 1_774_000_000_000 - np.arange(100_000) * 3_456_789
    occurrences = occurrences_of(rule, "Europe/Paris")
    found = occurrences.after(asked, asked - 10 * DAY)

    assert (found > asked).all()
    assert (np.diff(occurrences.after(np.sort(asked), np.full(len(asked), 0))) >= 0).all()


def test_an_anchor_that_its_rrule_does_not_match_is_no_occurrence() -> None:
    tuesday = datetime(2026, 1, 6, 9, 0, 0, 250_000, tzinfo=UTC)
    found = occurrences_of("FREQ=WEEKLY;BYDAY=MO").between(0, LAST_MS, ms(tuesday), 2)

    assert [
        local(datetime.fromtimestamp(each / 1000, UTC), ZoneInfo("UTC")).isoformat() for each in found
    ] == [
        "2026-01-12T09:00:00.250000",
        "2026-01-19T09:00:00.250000",
    ]


@pytest.mark.parametrize(
    ("rule", "begin"),
    [("FREQ=DAILY;INTERVAL=7;BYDAY=SU", "2026-01-05"), ("FREQ=MINUTELY;INTERVAL=60;BYMINUTE=30", "2026-01-05"), ("FREQ=YEARLY;BYMONTH=2", "2026-01-30")],
)  # fmt: skip
def test_from_some_anchors_an_rrule_never_fires(rule: str, begin: str) -> None:
    anchor_ms = ms(datetime.fromisoformat(begin).replace(tzinfo=UTC))
    occurrences = occurrences_of(rule, "Europe/Paris")
    asked, anchor = np.array([anchor_ms - 1]), np.array([anchor_ms])

    assert occurrences.after(asked, anchor).tolist() == [NEVER]
    assert [each.tolist() for each in occurrences.upto(asked, anchor_ms + 10**11, anchor)] == [
        [0],
        asked.tolist(),
    ]


def test_a_rule_is_read_once() -> None:
    assert occurrences_of("@daily", "Europe/Paris") is occurrences_of("@daily", "Europe/Paris")
