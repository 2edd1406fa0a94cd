"""The grammar of durations, as plain Python reads it."""

from __future__ import annotations

import pytest

from wheel_udf.common.durations import LONGEST_TEXT, TOO_LONG_MS, parse_duration_ms
from wheel_udf.common.errors import ConfigError

SECOND, MINUTE, HOUR, DAY, WEEK = 1_000, 60_000, 3_600_000, 86_400_000, 604_800_000

# tests/spark/commands/test_parse.py holds Spark's reader against this table and the next one.
GOOD = [
    # a number and a unit
    ("10 minutes", 10 * MINUTE),
    ("1 minute", MINUTE),
    ("10minutes", 10 * MINUTE),
    ("10m", 10 * MINUTE),
    ("10 min", 10 * MINUTE),
    ("2 mins", 2 * MINUTE),
    ("250 ms", 250),
    ("250millis", 250),
    ("1 millisecond", 1),
    ("5s", 5 * SECOND),
    ("5 sec", 5 * SECOND),
    ("5 secs", 5 * SECOND),
    ("+5 Seconds", 5 * SECOND),
    ("3h", 3 * HOUR),
    ("3 hr", 3 * HOUR),
    ("3 hrs", 3 * HOUR),
    ("3 HOURS", 3 * HOUR),
    ("730 days", 730 * DAY),
    ("1D", DAY),
    ("2 weeks", 2 * WEEK),
    ("2w", 2 * WEEK),
    (" \t1 s\r\n", SECOND),
    # several units, the longest first
    ("1 hour 30 minutes", 90 * MINUTE),
    ("10 minutes 30 seconds", 10 * MINUTE + 30 * SECOND),
    ("1h30m", 90 * MINUTE),
    ("1H 30m", 90 * MINUTE),
    ("1 week 2 days 3 hours 4 minutes 5 seconds 6 milliseconds", WEEK + 2 * DAY + 3 * HOUR + 245_006),
    ("1w2d3h4m5s6ms", WEEK + 2 * DAY + 3 * HOUR + 245_006),
    ("interval 1 hour 30 minutes", 90 * MINUTE),
    ("INTERVAL  5 s", 5 * SECOND),
    ("1 day 0.5 hours", DAY + HOUR // 2),
    ("1 s 0.5 ms", 1_001),
    ("-1 hour -30 minutes", -90 * MINUTE),
    ("-1h-30m", -90 * MINUTE),
    ("-1 s -0.5 ms", -SECOND),
    ("interval -1 day -1 ms", -DAY - 1),
    ("0 days 0 hours", 0),
    (" 2 m   1 s\t", 2 * MINUTE + SECOND),
    ("0.0001 s 0.9 ms", 1),  # 0.1 + 0.9 ms: rounded once, at the end
    ("99999999999999999999 w 1 ms", TOO_LONG_MS),
    # ISO 8601
    ("PT10M", 10 * MINUTE),
    ("P2D", 2 * DAY),
    ("P1W", WEEK),
    ("P1DT2H3M4.5S", DAY + 2 * HOUR + 3 * MINUTE + 4_500),
    ("pt5s", 5 * SECOND),
    ("PT0.5H", HOUR // 2),
    ("PT0S", 0),
    # negative
    ("-5 seconds", -5 * SECOND),
    ("-PT5S", -5 * SECOND),
    ("PT-5S", -5 * SECOND),
    ("PT-1H-30M", -HOUR - 30 * MINUTE),
    ("P-1DT-1H", -DAY - HOUR),
    # zero
    ("0", 0),
    ("0.0", 0),
    ("-0", 0),
    ("000", 0),
    ("0s", 0),
    # fractions of a ms go up
    ("1.5h", 90 * MINUTE),
    ("0.0001 ms", 1),
    ("-0.9 ms", 0),
    ("-1.1 ms", -1),
    ("0.000000001 w", 1),
    ("PT0.0000001S", 1),
    ("PT1.0005S", 1_001),
    ("P0.000000001WT0.0004S", 2),  # 0.6048 + 0.4 ms: rounded once, at the end
    # hostile sizes
    ("2147483648 ms", 2**31),
    ("9007199254740993 ms", 2**53 + 1),
    ("9223372036854775807 ms", TOO_LONG_MS),
    ("-9223372036854775808 ms", -TOO_LONG_MS),
    ("99999999999999999999 weeks", TOO_LONG_MS),
    ("-P99999999999999999999999D", -TOO_LONG_MS),
    ("P99999999999999999999WT1S", TOO_LONG_MS),
    ("1152921504606846975 ms", TOO_LONG_MS - 1),
    ("1152921504606846975.000000001 ms", TOO_LONG_MS),
    ("0" * 60 + "1 s", SECOND),
    ("9" * 95 + " ms", TOO_LONG_MS),
]

BAD = [
    *("", " ", "text", "soon", "NaN", "inf", "-inf", "true", "None", "null"),
    *("5", "-1", "1.5", "2147483648", "1e308", "1e3 s", "1.0E308"),
    *("1 month", "2 months", "P1M", "P1Y", "P1Y2M", "1 year", "10M", "10 M", "1 fortnight", "5 µs"),
    *("P", "PT", "P1DT", "PT1D", "P1H", "1P", "PT5", "P5", "P1D2H", "PT1S1M", "PT1M1M", "P T1S"),
    *("-PT-5S", "PT-1H30M", "PT1H-30M", "PT+5S", "--5s", "- 5 s", "+-5s"),
    *(
        ".5 s",
        "5. s",
        "1,5 s",
        "1.0000000001 s",
        "1 000 s",
        "1_000 s",
        "5 ss",
        "5 s s",
        "5ms s",
    ),
    # several units: in another order, twice, with one sign for all or with other words between them
    *("30 minutes 1 hour", "1 h 1 h", "1 s 1 m", "5 ms 1 s", "1 hour 30", "1 30 minutes", "hour 30 minutes"),
    *("-1 hour 30 minutes", "+1 hour 30 minutes", "1 hour -30 minutes", "-1h30m", "-1 h +30 m", "+1 h +30 m"),
    *("1 hour, 30 minutes", "1 hour and 30 minutes", "1 h\t30 m", "1 h\n30 m", "1 month 2 days", "1h30"),
    *(
        "interval",
        "interval 5",
        "interval 0",
        "interval1 s",
        "interval '1' hour",
        "INTERVAL '1 2' DAY TO HOUR",
    ),
    *("interval interval 1 s", "1 s interval", "interval PT1S", "-interval 1 s", "interval - 1 s", "1 h P1D"),
    *("\u0665 s", "\uff15 s", "5\u00a0s", "5\ns", "1,,,,,", ",,,,,5", "10,0,0,0,0,0"),
    "1" + "0" * LONGEST_TEXT + " ms",
]


@pytest.mark.parametrize(("text", "expected_ms"), GOOD)
def test_a_duration_is_whole_milliseconds(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", BAD)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not a duration"):
        parse_duration_ms(text)


def test_the_error_names_the_value_and_the_rule() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_duration_ms("1 month")

    assert str(caught.value) == (
        "not a duration: duration = '1 month'; rule: numbers with units (ms, s, m, h, d, w or their words), "
        "the longest first, such as 1 hour 30 minutes, or ISO 8601 such as PT10M; no months or years"
    )
