"""Rules across changes of clocks, as a table: what fires when. Of the past, so that no new time zone data changes it."""

from __future__ import annotations

import numpy as np
import pytest

from wheel_udf.common.instants import instant_text, parse_instant_ms
from wheel_udf.recurrence.local_times import NEVER
from wheel_udf.recurrence.occurrences import LAST_MS, occurrences_of

NEW_YORK, PARIS, LORD_HOWE = "America/New_York", "Europe/Paris", "Australia/Lord_Howe"

# New York 2025: 9 March, 07:00Z, 02:00 -> 03:00; 2 November, 06:00Z, 02:00 -> 01:00.
# Paris 2025: 30 March, 01:00Z, 02:00 -> 03:00; 26 October, 01:00Z, 03:00 -> 02:00.
# rule, zone, on_gap, on_fold, from (for rules with an anchor: the anchor), the occurrences from there on
CASES = [
    # ---- a daily time in the gap
    ("30 2 * * *", NEW_YORK, "shift", "first", "2025-03-08T00:00", "2025-03-08T07:30 2025-03-09T07:00 2025-03-10T06:30"),
    ("30 2 * * *", NEW_YORK, "skip", "first", "2025-03-08T00:00", "2025-03-08T07:30 2025-03-10T06:30 2025-03-11T06:30"),
    ("30 2 * * *", PARIS, "shift", "first", "2025-03-29T00:00", "2025-03-29T01:30 2025-03-30T01:00 2025-03-31T00:30"),
    ("30 2 * * *", PARIS, "skip", "first", "2025-03-29T00:00", "2025-03-29T01:30 2025-03-31T00:30 2025-04-01T00:30"),
    ("every 1 day", NEW_YORK, "shift", "first", "2025-03-08T07:30", "2025-03-08T07:30 2025-03-09T07:00 2025-03-10T06:30"),
    ("every 1 day", NEW_YORK, "skip", "first", "2025-03-08T07:30", "2025-03-08T07:30 2025-03-10T06:30 2025-03-11T06:30"),
    ("R/P1D", PARIS, "skip", "first", "2025-03-29T01:30", "2025-03-29T01:30 2025-03-31T00:30 2025-04-01T00:30"),
    ("FREQ=DAILY", NEW_YORK, "shift", "first", "2025-03-08T07:30", "2025-03-08T07:30 2025-03-09T07:00 2025-03-10T06:30"),
    ("FREQ=DAILY", NEW_YORK, "skip", "first", "2025-03-08T07:30", "2025-03-08T07:30 2025-03-10T06:30 2025-03-11T06:30"),
    # ---- several times in the gap, and its end: one instant
    ("0,15,30 2,3 * * *", PARIS, "shift", "first", "2025-03-30T00:00", "2025-03-30T01:00 2025-03-30T01:15 2025-03-30T01:30 2025-03-31T00:00"),
    ("15,30 2 * * *", PARIS, "shift", "first", "2025-03-30T00:00", "2025-03-30T01:00 2025-03-31T00:15 2025-03-31T00:30"),
    ("59 1-3 * * *", PARIS, "shift", "first", "2025-03-30T00:00", "2025-03-30T00:59 2025-03-30T01:00 2025-03-30T01:59 2025-03-30T23:59"),
    ("59 1-3 * * *", PARIS, "skip", "first", "2025-03-30T00:00", "2025-03-30T00:59 2025-03-30T01:59 2025-03-30T23:59"),
    ("30 2 30 3 *", PARIS, "skip", "first", "2024-01-01T00:00", "2024-03-30T01:30 2026-03-30T00:30"),
    # ---- a daily time in the fold
    ("30 1 * * *", NEW_YORK, "shift", "first", "2025-11-01T00:00", "2025-11-01T05:30 2025-11-02T05:30 2025-11-03T06:30"),
    ("30 1 * * *", NEW_YORK, "shift", "last", "2025-11-01T00:00", "2025-11-01T05:30 2025-11-02T06:30 2025-11-03T06:30"),
    ("30 1 * * *", NEW_YORK, "shift", "both", "2025-11-01T00:00", "2025-11-01T05:30 2025-11-02T05:30 2025-11-02T06:30 2025-11-03T06:30"),
    ("30 2 * * *", PARIS, "shift", "first", "2025-10-25T00:00", "2025-10-25T00:30 2025-10-26T00:30 2025-10-27T01:30"),
    ("30 2 * * *", PARIS, "shift", "last", "2025-10-25T00:00", "2025-10-25T00:30 2025-10-26T01:30 2025-10-27T01:30"),
    ("30 2 * * *", PARIS, "skip", "both", "2025-10-25T00:00", "2025-10-25T00:30 2025-10-26T00:30 2025-10-26T01:30 2025-10-27T01:30"),
    ("every 1 day", NEW_YORK, "shift", "last", "2025-11-01T05:30", "2025-11-01T05:30 2025-11-02T06:30 2025-11-03T06:30"),
    ("every 1 day", NEW_YORK, "shift", "both", "2025-11-01T05:30", "2025-11-01T05:30 2025-11-02T05:30 2025-11-02T06:30 2025-11-03T06:30"),
    ("FREQ=DAILY", NEW_YORK, "shift", "both", "2025-11-01T05:30", "2025-11-01T05:30 2025-11-02T05:30 2025-11-02T06:30 2025-11-03T06:30"),
    # ---- several times in the fold: first all of the first hour, then all of the second
    ("15,45 2 * * *", PARIS, "shift", "both", "2025-10-26T00:00", "2025-10-26T00:15 2025-10-26T00:45 2025-10-26T01:15 2025-10-26T01:45 2025-10-27T01:15"),
    ("15,45 2 * * *", PARIS, "shift", "last", "2025-10-26T00:00", "2025-10-26T01:15 2025-10-26T01:45 2025-10-27T01:15"),
    ("0 2,3 * * *", PARIS, "shift", "both", "2025-10-26T00:00", "2025-10-26T00:00 2025-10-26T01:00 2025-10-26T02:00 2025-10-27T01:00"),
    ("0 2,3 * * *", PARIS, "shift", "last", "2025-10-26T00:00", "2025-10-26T01:00 2025-10-26T02:00 2025-10-27T01:00"),
    # ---- asked from the second hour of the fold
    ("30 1 * * *", NEW_YORK, "shift", "first", "2025-11-02T06:10", "2025-11-03T06:30"),
    ("30 1 * * *", NEW_YORK, "shift", "last", "2025-11-02T06:10", "2025-11-02T06:30 2025-11-03T06:30"),
    # ---- an anchor in the fold is itself, whatever the policy is
    ("every 1 day", NEW_YORK, "shift", "last", "2025-11-02T05:30", "2025-11-02T05:30 2025-11-03T06:30"),
    ("every 1 day", NEW_YORK, "shift", "first", "2025-11-02T06:30", "2025-11-02T06:30 2025-11-03T06:30"),
    ("every 1 day", NEW_YORK, "shift", "both", "2025-11-02T05:30", "2025-11-02T05:30 2025-11-03T06:30"),
    ("FREQ=DAILY", NEW_YORK, "shift", "first", "2025-11-02T06:30", "2025-11-02T06:30 2025-11-03T06:30"),
    # ---- hours that begin with * go by elapsed time, and no policy changes that
    ("0 * * * *", NEW_YORK, "shift", "first", "2025-11-02T04:00", "2025-11-02T04:00 2025-11-02T05:00 2025-11-02T06:00 2025-11-02T07:00"),
    ("0 * * * *", NEW_YORK, "shift", "first", "2025-03-09T05:00", "2025-03-09T05:00 2025-03-09T06:00 2025-03-09T07:00 2025-03-09T08:00"),
    ("@hourly", PARIS, "skip", "last", "2025-10-25T23:30", "2025-10-26T00:00 2025-10-26T01:00 2025-10-26T02:00"),
    ("*/30 * * * *", PARIS, "shift", "first", "2025-03-30T00:30", "2025-03-30T00:30 2025-03-30T01:00 2025-03-30T01:30"),
    ("0 */2 * * *", PARIS, "shift", "first", "2025-03-29T23:00", "2025-03-29T23:00 2025-03-30T02:00 2025-03-30T04:00"),
    ("0 */2 * * *", PARIS, "shift", "last", "2025-10-25T22:00", "2025-10-25T22:00 2025-10-26T00:00 2025-10-26T01:00 2025-10-26T03:00"),
    ("*/20 2 * * *", PARIS, "skip", "first", "2025-03-30T00:00", "2025-03-31T00:00 2025-03-31T00:20 2025-03-31T00:40"),
    # ---- so do periods of hours
    ("every 12 hours", PARIS, "shift", "first", "2025-03-29T12:00", "2025-03-29T12:00 2025-03-30T00:00 2025-03-30T12:00"),
    ("every 24 hours", PARIS, "shift", "first", "2025-03-29T12:00", "2025-03-29T12:00 2025-03-30T12:00 2025-03-31T12:00"),
    ("every 1 day", PARIS, "shift", "first", "2025-03-29T12:00", "2025-03-29T12:00 2025-03-30T11:00 2025-03-31T11:00"),
    ("every 2 weeks", PARIS, "shift", "first", "2025-03-20T12:00", "2025-03-20T12:00 2025-04-03T11:00 2025-04-17T11:00"),
    # ---- half an hour: Lord Howe, 6 April 2025 02:00 -> 01:30 (5 April, 15:00Z); 5 October 02:00 -> 02:30 (4 October, 15:30Z)
    ("45 1 * * *", LORD_HOWE, "shift", "first", "2025-04-05T00:00", "2025-04-05T14:45 2025-04-06T15:15"),
    ("45 1 * * *", LORD_HOWE, "shift", "last", "2025-04-05T00:00", "2025-04-05T15:15 2025-04-06T15:15"),
    ("45 1 * * *", LORD_HOWE, "shift", "both", "2025-04-05T00:00", "2025-04-05T14:45 2025-04-05T15:15 2025-04-06T15:15"),
    ("15 2 * * *", LORD_HOWE, "shift", "first", "2025-10-04T00:00", "2025-10-04T15:30 2025-10-05T15:15"),
    ("15 2 * * *", LORD_HOWE, "skip", "first", "2025-10-04T00:00", "2025-10-05T15:15"),
    ("0 * * * *", LORD_HOWE, "shift", "first", "2025-04-05T14:00", "2025-04-05T14:00 2025-04-05T15:30 2025-04-05T16:30"),
    ("45 * * * *", LORD_HOWE, "shift", "first", "2025-04-05T14:00", "2025-04-05T14:45 2025-04-05T15:15 2025-04-05T16:15"),
    # ---- negative daylight saving: Dublin's winter is the exception; 30 March 2025 01:00 -> 02:00, 26 October 02:00 -> 01:00
    ("30 1 * * *", "Europe/Dublin", "shift", "first", "2025-03-29T00:00", "2025-03-29T01:30 2025-03-30T01:00 2025-03-31T00:30"),
    ("30 1 * * *", "Europe/Dublin", "skip", "both", "2025-10-25T00:00", "2025-10-25T00:30 2025-10-26T00:30 2025-10-26T01:30 2025-10-27T01:30"),
    # ---- Casablanca leaves its +01:00 for the Ramadan: 10 March 2024 03:00 -> 02:00, 14 April 02:00 -> 03:00
    ("30 2 * * *", "Africa/Casablanca", "shift", "first", "2024-03-09T00:00", "2024-03-09T01:30 2024-03-10T01:30 2024-03-11T02:30"),
    ("30 2 * * *", "Africa/Casablanca", "shift", "both", "2024-03-10T00:00", "2024-03-10T01:30 2024-03-10T02:30 2024-03-11T02:30"),
    ("30 2 * * *", "Africa/Casablanca", "shift", "first", "2024-04-13T00:00", "2024-04-13T02:30 2024-04-14T02:00 2024-04-15T01:30"),
    # ---- a gap at midnight, 4 November 2018 00:00 -> 01:00; and no change of clocks any more since 17 February 2019
    ("0 0 * * *", "America/Sao_Paulo", "shift", "first", "2018-11-03T00:00", "2018-11-03T03:00 2018-11-04T03:00 2018-11-05T02:00"),
    ("0 0 * * *", "America/Sao_Paulo", "skip", "first", "2018-11-03T00:00", "2018-11-03T03:00 2018-11-05T02:00"),
    ("30 23 * * *", "America/Sao_Paulo", "shift", "both", "2019-02-16T00:00", "2019-02-16T01:30 2019-02-17T01:30 2019-02-17T02:30 2019-02-18T02:30"),
    ("0 12 4 11 *", "America/Sao_Paulo", "shift", "first", "2017-01-01T00:00", "2017-11-04T14:00 2018-11-04T14:00 2019-11-04T15:00"),
    # ---- Istanbul stays at +03:00 from 2016 on: no fold in its last autumn
    ("30 3 30 10 *", "Europe/Istanbul", "shift", "both", "2014-01-01T00:00", "2014-10-30T01:30 2015-10-30T00:30 2016-10-30T00:30 2017-10-30T00:30"),
    ("30 3 8 11 *", "Europe/Istanbul", "shift", "both", "2015-01-01T00:00", "2015-11-08T00:30 2015-11-08T01:30 2016-11-08T00:30"),
    # ---- a whole day is skipped: Apia has no 30 December 2011
    ("0 9 * * *", "Pacific/Apia", "shift", "first", "2011-12-29T00:00", "2011-12-29T19:00 2011-12-30T10:00 2011-12-30T19:00"),
    ("0 9 * * *", "Pacific/Apia", "skip", "first", "2011-12-29T00:00", "2011-12-29T19:00 2011-12-30T19:00 2011-12-31T19:00"),
    ("0 0 * * *", "Pacific/Apia", "shift", "first", "2011-12-29T00:00", "2011-12-29T10:00 2011-12-30T10:00 2011-12-31T10:00"),
    ("every 1 day", "Pacific/Apia", "shift", "first", "2011-12-28T19:00", "2011-12-28T19:00 2011-12-29T19:00 2011-12-30T10:00 2011-12-30T19:00"),
    ("FREQ=DAILY", "Pacific/Apia", "skip", "first", "2011-12-28T19:00", "2011-12-28T19:00 2011-12-29T19:00 2011-12-30T19:00"),
    # ---- a day is repeated: Kwajalein crossed the date line back in 1969, 30 September, 13:00Z, +11:00 -> -12:00
    ("0 12 * * *", "Pacific/Kwajalein", "shift", "both", "1969-09-29T02:00", "1969-09-30T01:00 1969-10-01T00:00 1969-10-02T00:00"),
    # ---- days that not all years and months have
    ("0 0 29 2 *", "UTC", "shift", "first", "2095-01-01T00:00", "2096-02-29T00:00 2104-02-29T00:00"),
    ("every 1 year", "UTC", "shift", "first", "2096-02-29T06:00", "2096-02-29T06:00 2097-02-28T06:00 2098-02-28T06:00 2099-02-28T06:00 2100-02-28T06:00 2101-02-28T06:00 2102-02-28T06:00 2103-02-28T06:00 2104-02-29T06:00"),
    ("FREQ=YEARLY", "UTC", "shift", "first", "2096-02-29T06:00", "2096-02-29T06:00 2104-02-29T06:00"),
    ("every 1 month", "UTC", "shift", "first", "2023-12-31T06:00", "2023-12-31T06:00 2024-01-31T06:00 2024-02-29T06:00 2024-03-31T06:00 2024-04-30T06:00"),
    ("every 6 months", PARIS, "shift", "first", "2025-01-31T11:00", "2025-01-31T11:00 2025-07-31T10:00 2026-01-31T11:00"),
    ("R/P1M", PARIS, "shift", "first", "2025-01-30T01:30", "2025-01-30T01:30 2025-02-28T01:30 2025-03-30T01:00 2025-04-30T00:30"),
    ("0 0 L 2 *", "UTC", "shift", "first", "2099-01-01T00:00", "2099-02-28T00:00 2100-02-28T00:00 2101-02-28T00:00"),
    ("0 0 LW 2 *", "UTC", "shift", "first", "2024-01-01T00:00", "2024-02-29T00:00 2025-02-28T00:00 2026-02-27T00:00"),
    ("0 0 * * FRI#5", "UTC", "shift", "first", "2025-01-01T00:00", "2025-01-31T00:00 2025-05-30T00:00 2025-08-29T00:00"),
    ("0 0 * 2 7L", "UTC", "shift", "first", "2025-01-01T00:00", "2025-02-23T00:00 2026-02-22T00:00"),
    # ---- fixed offsets, and zones of fifteen minutes and of seconds
    ("0 9 * * *", "+05:30", "shift", "first", "2025-03-30T00:00", "2025-03-30T03:30 2025-03-31T03:30"),
    ("0 9 * * *", "-0330", "shift", "first", "2025-03-30T00:00", "2025-03-30T12:30 2025-03-31T12:30"),
    ("0 9 * * *", "Pacific/Chatham", "shift", "first", "2025-04-04T00:00", "2025-04-04T19:15 2025-04-05T20:15"),
    ("0 9 * * *", "Africa/Monrovia", "shift", "first", "1972-01-06T00:00", "1972-01-06T09:44:30 1972-01-07T09:00"),
    # ---- seconds, and seconds of the anchor
    ("15,45 59 1 * * *", PARIS, "shift", "first", "2025-03-30T00:00", "2025-03-30T00:59:15 2025-03-30T00:59:45 2025-03-30T23:59:15"),
    ("FREQ=WEEKLY;BYDAY=SU,MO", PARIS, "shift", "first", "2025-03-23T08:15:07", "2025-03-23T08:15:07 2025-03-24T08:15:07 2025-03-30T07:15:07"),
    ("FREQ=WEEKLY;BYDAY=MO,SU;BYSETPOS=2", "UTC", "shift", "first", "2026-01-06T09:00", "2026-01-11T09:00 2026-01-18T09:00"),
    ("FREQ=WEEKLY;BYDAY=SU;BYHOUR=1,2,3;BYMINUTE=30", PARIS, "shift", "first", "2025-03-28T12:00:07", "2025-03-30T00:30:07 2025-03-30T01:00 2025-03-30T01:30:07"),
    ("FREQ=MONTHLY;BYDAY=-1SU;BYHOUR=2;BYMINUTE=30;BYSECOND=0", PARIS, "shift", "both", "2025-03-01T00:00", "2025-03-30T01:00 2025-04-27T00:30"),
    ("FREQ=HOURLY;INTERVAL=6", PARIS, "shift", "first", "2025-03-29T11:00", "2025-03-29T11:00 2025-03-29T17:00 2025-03-29T23:00 2025-03-30T04:00"),
    # ---- far away: the rules of zones go on
    ("30 2 * * *", PARIS, "shift", "first", "2199-03-30T12:00", "2199-03-31T01:00 2199-04-01T00:30"),
    ("30 2 * * *", PARIS, "shift", "both", "2999-10-26T12:00", "2999-10-27T00:30 2999-10-27T01:30 2999-10-28T01:30"),
    ("0 0 1 1 *", PARIS, "shift", "first", "9998-12-01T00:00", "9998-12-31T23:00"),
    ("0 12 * * *", PARIS, "shift", "first", "1890-06-01T00:00", "1890-06-01T11:50:39 1890-06-02T11:50:39"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "zone", "on_gap", "on_fold", "begin", "expected"), CASES)
def test_a_rule_keeps_to_the_clock_of_its_zone(
    rule: str, zone: str, on_gap: str, on_fold: str, begin: str, expected: str
) -> None:
    occurrences, from_ms = occurrences_of(rule, zone, on_gap, on_fold), parse_instant_ms(begin)
    texts = expected.split()
    found = occurrences.between(from_ms - 1, LAST_MS, from_ms, len(texts))

    assert [instant_text(each).removesuffix("Z").removesuffix(":00") for each in found.tolist()] == texts


@pytest.mark.parametrize(("rule", "zone", "on_gap", "on_fold", "begin", "expected"), CASES)
def test_what_has_passed_is_counted_across_the_change(
    rule: str, zone: str, on_gap: str, on_fold: str, begin: str, expected: str
) -> None:
    occurrences, from_ms = occurrences_of(rule, zone, on_gap, on_fold), parse_instant_ms(begin)
    instants = [parse_instant_ms(text) for text in expected.split()]
    for number, upto_ms in enumerate(instants):
        for early_ms in (0, 1):
            passed = number + 1 - early_ms
            count, newest = occurrences.upto(np.array([from_ms - 1]), upto_ms - early_ms, np.array([from_ms]))

            assert (count[0], newest[0]) == (passed, instants[passed - 1] if passed else from_ms - 1)


def test_after_the_last_year_there_is_none() -> None:
    occurrences = occurrences_of("0 0 1 1 *", "Europe/Paris")
    last = np.array([parse_instant_ms("9999-12-31T23:00")])

    assert occurrences.after(last, last).tolist() == [NEVER]
