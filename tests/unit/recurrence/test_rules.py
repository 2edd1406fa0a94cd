"""Rules: every accepted and refused form of a text, its zone and its policies."""

from __future__ import annotations

import subprocess
import sys

import pytest

from wheel_udf.common.errors import ConfigError
from wheel_udf.common.instants import parse_instant_ms
from wheel_udf.recurrence.rule import LONGEST_REPEAT, Kind, parse_rule
from wheel_udf.recurrence.steps import LONGEST_DAYS, LONGEST_MONTHS

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
CRON, ELAPSED, DAYS, MONTHS, RRULE = Kind.CRON, Kind.ELAPSED, Kind.DAYS, Kind.MONTHS, Kind.RRULE

CRONS = [
    ("* * * * *", "0 * * * * *"),
    ("0 9 * * MON-FRI", "0 0 9 * * MON-FRI"),
    ("0 9 * jan mon-fri", "0 0 9 * JAN MON-FRI"),
    ("*/15 8-18/2 1,15 * *", "0 */15 8-18/2 1,15 * *"),
    ("30 0 9 * * *", "30 0 9 * * *"),
    ("*/10 * * * * *", "*/10 * * * * *"),
    ("0 0 L * *", "0 0 0 L * *"),
    ("0 0 lw * *", "0 0 0 LW * *"),
    ("0 0 * * MON#2", "0 0 0 * * MON#2"),
    ("0 0 * * 5L", "0 0 0 * * 5L"),
    ("0 0 * * 7", "0 0 0 * * 7"),
    ("0 0 29 2 *", "0 0 0 29 2 *"),
    ("0 0 31 2 MON", "0 0 0 31 2 MON"),  # days or weekdays, where neither begins with *
    ("  0\t9  * * *\n", "0 0 9 * * *"),
    ("@yearly", "0 0 0 1 1 *"),
    ("@annually", "0 0 0 1 1 *"),
    ("@monthly", "0 0 0 1 * *"),
    ("@weekly", "0 0 0 * * 0"),
    ("@daily", "0 0 0 * * *"),
    ("@Midnight", "0 0 0 * * *"),
    ("@HOURLY", "0 0 * * * *"),
]

PERIODS = [
    # elapsed time
    ("every 15 minutes", ELAPSED, 15 * MINUTE),
    ("EVERY 15 Minutes", ELAPSED, 15 * MINUTE),
    ("every\t15m", ELAPSED, 15 * MINUTE),
    ("every minute", ELAPSED, MINUTE),
    ("every hour", ELAPSED, HOUR),
    ("every h", ELAPSED, HOUR),
    ("every 1 hour 30 minutes", ELAPSED, 90 * MINUTE),
    ("every 1h30m", ELAPSED, 90 * MINUTE),
    ("every PT15M", ELAPSED, 15 * MINUTE),
    ("every 1.5h", ELAPSED, 90 * MINUTE),
    ("every 24 hours", ELAPSED, DAY),
    ("every PT24H", ELAPSED, DAY),
    ("every 1 day 0 hours", ELAPSED, DAY),
    ("every P1DT0S", ELAPSED, DAY),
    ("every 0.5 days", ELAPSED, DAY // 2),
    ("every 1.5 days", ELAPSED, 36 * HOUR),
    ("every 0.5 w 0.5 d", ELAPSED, 4 * DAY),  # whole in sum, not as written
    ("every 0.999999999 d", ELAPSED, DAY),  # whole in ms only
    ("every 1 ms", ELAPSED, 1),
    ("every 0.0001 ms", ELAPSED, 1),
    ("every 99999999999999999999 hours", ELAPSED, 2**60),
    # days
    ("every day", DAYS, 1),
    ("every 1 day", DAYS, 1),
    ("every 2d", DAYS, 2),
    ("every 1.0 day", DAYS, 1),
    ("every 2 weeks", DAYS, 14),
    ("every week", DAYS, 7),
    ("every 1 week 1 day", DAYS, 8),
    ("every P1D", DAYS, 1),
    ("every P2W", DAYS, 14),
    ("every P1W2D", DAYS, 9),
    ("every 99999999999999999999 weeks", DAYS, LONGEST_DAYS),
    # months
    ("every month", MONTHS, 1),
    ("every 3 months", MONTHS, 3),
    ("every year", MONTHS, 12),
    ("every 2 YEARS", MONTHS, 24),
    ("every 1 year 6 months", MONTHS, 18),
    ("every P1M", MONTHS, 1),
    ("every P1Y6M", MONTHS, 18),
    ("every 999999999 years", MONTHS, LONGEST_MONTHS),
]

# text, kind, size, count, start
REPEATING = [
    ("R/PT15M", ELAPSED, 15 * MINUTE, None, None),
    ("r/pt15m", ELAPSED, 15 * MINUTE, None, None),
    ("R/P1D", DAYS, 1, None, None),
    ("R/P1M", MONTHS, 1, None, None),
    ("R/P1Y", MONTHS, 12, None, None),
    ("R5/PT15M", ELAPSED, 15 * MINUTE, 5, None),
    ("R1/P1D", DAYS, 1, 1, None),
    ("R/2026-01-01T09:00:00Z/P1D", DAYS, 1, None, "2026-01-01T09:00:00Z"),
    ("R3/2026-01-01T09:00:00+02:00/PT1H", ELAPSED, HOUR, 3, "2026-01-01T07:00:00Z"),
    ("R/20260101T090000Z/P1D", DAYS, 1, None, "2026-01-01T09:00:00Z"),
    ("R/2025-07-01T09:00/P1D", DAYS, 1, None, "2025-07-01T07:00:00Z"),  # Paris, in summer
    ("R/2025-01-01/P1D", DAYS, 1, None, "2024-12-31T23:00:00Z"),
    ("R/2025-03-30T02:30/P1D", DAYS, 1, None, "2025-03-30T01:00:00Z"),  # in the gap
    ("R/2025-10-26T02:30/P1D", DAYS, 1, None, "2025-10-26T00:30:00Z"),  # in the fold
]

RRULES = [
    ("RRULE:FREQ=WEEKLY;BYDAY=MO,WE", {"FREQ": "WEEKLY", "BYDAY": "MO,WE"}),
    ("FREQ=WEEKLY;BYDAY=MO,WE", {"FREQ": "WEEKLY", "BYDAY": "MO,WE"}),
    ("rrule:interval=2;freq=daily", {"FREQ": "DAILY", "INTERVAL": "2"}),
    ("FREQ=MONTHLY;BYDAY=-1FR", {"FREQ": "MONTHLY", "BYDAY": "-1FR"}),
    ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", {"FREQ": "MONTHLY", "BYDAY": "MO,TU,WE,TH,FR", "BYSETPOS": "-1"}),
    ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29", {"FREQ": "YEARLY", "BYMONTH": "2", "BYMONTHDAY": "29"}),
    ("FREQ=YEARLY;BYDAY=53MO", {"FREQ": "YEARLY", "BYDAY": "53MO"}),
    ("FREQ=YEARLY;BYWEEKNO=53;WKST=SU", {"FREQ": "YEARLY", "BYWEEKNO": "53", "WKST": "SU"}),
    ("FREQ=YEARLY;BYYEARDAY=-1", {"FREQ": "YEARLY", "BYYEARDAY": "-1"}),
    ("FREQ=HOURLY;BYMINUTE=0,30;BYSECOND=0", {"FREQ": "HOURLY", "BYMINUTE": "0,30", "BYSECOND": "0"}),
    ("FREQ=MINUTELY;INTERVAL=90;BYHOUR=9", {"FREQ": "MINUTELY", "INTERVAL": "90", "BYHOUR": "9"}),
]  # fmt: skip

REFUSED = [
    # nothing, or no rule at all
    *("", " ", "\n", "soon", "15 minutes", "PT15M", "P1D", "daily", "every", "every ", "R", "R/", "@", "RRULE:"),
    "0 9 * * " + ",".join(["MON"] * 63),
    # cron
    *("* * * *", "* * * * * * *", "60 * * * *", "* 24 * * *", "* * 32 * *", "* * 0 * *", "* * * 13 *", "* * * * 8"),
    *("0 0 31 2 *", "0 0 30 FEB *", "0 0 31 4,6,9,11 *", "0 0 30 2 */1", "*/0 * * * *", "5-1 * * * *", "a * * * *"),
    *("0 0 ? * MON", "0 0 * * MON#6", "0 0 * * 1#2/3", "0 0 * * ²L", "-1 * * * *", "1.5 * * * *", "٣ * * * *"),
    *("@reboot", "@every 5m", "@daily 5", "H H * * *", "0 0 1W * *"),
    # periods
    *("every 0 minutes", "every -5 minutes", "every 0 months", "every 0 years", "every -1 month", "every P0D"),
    *("every 1.5 months", "every 1 month 2 days", "every P1M2D", "every P1Y1W", "every P1MT1H", "every 1 month 1 year"),
    *("every 5", "every 10M", "every M", "every fortnight", "every other day", "every day at 9", "every 1e3 s"),
    *("every 9999999999 months", "every P", "every PT", "every P1H", "every every 1 day", "every R/P1D"),
    # repeating intervals
    *("R0/P1D", "R-1/P1D", "R/P1D/2026-01-01", "R/2026-01-01/2026-01-02", "R/2026-13-01/P1D", "R/now/P1D"),
    *("R/15 minutes", "R/P0D", "R/-P1D", "R//P1D", "R/2026-01-01T09:00:00Z/P1D/P1D", "R9999999999/P1D", "R/P1M1D"),
    # RRULE
    *("RRULE:BYDAY=MO", "FREQ=", "FREQ=OFTEN", "FREQ=SECONDLY", "FREQ=DAILY;COUNT=3", "FREQ=DAILY;UNTIL=20270101"),
    *("DTSTART:20260101T090000 RRULE:FREQ=DAILY", "RRULE:DTSTART=20260101;FREQ=DAILY", "FREQ=DAILY;EXDATE=20260101"),
    *("FREQ=DAILY;FREQ=DAILY", "FREQ=DAILY;", "FREQ=DAILY;INTERVAL", "FREQ=DAILY;INTERVAL=0", "FREQ=DAILY;INTERVAL=-1"),
    *("FREQ=DAILY;INTERVAL=36501", "FREQ=YEARLY;INTERVAL=101", "FREQ=DAILY;BYEASTER=0", "FREQ=DAILY;WKST=MON"),
    *("FREQ=DAILY;BYHOUR=24", "FREQ=DAILY;BYMINUTE=60", "FREQ=DAILY;BYSECOND=60", "FREQ=DAILY;BYMONTH=13"),
    *("FREQ=DAILY;BYMONTHDAY=0", "FREQ=DAILY;BYMONTHDAY=-32", "FREQ=YEARLY;BYYEARDAY=367", "FREQ=YEARLY;BYWEEKNO=54"),
    *("FREQ=WEEKLY;BYDAY=MON", "FREQ=WEEKLY;BYDAY=", "FREQ=WEEKLY;BYDAY=2MO", "FREQ=MONTHLY;BYDAY=6MO"),
    *("FREQ=YEARLY;BYMONTH=3;BYDAY=6MO", "FREQ=YEARLY;BYDAY=54MO", "FREQ=YEARLY;BYDAY=0MO", "FREQ=DAILY;BYSETPOS=1"),
    *("FREQ=YEARLY;BYWEEKNO=1;BYDAY=1MO", "FREQ=MONTHLY;BYDAY=MO;BYSETPOS=0", "FREQ=DAILY;BYHOUR=٣"),
    *("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "FREQ=DAILY;BYMONTH=4;BYMONTHDAY=31", "FREQ=MONTHLY;BYDAY=MO;BYSETPOS=6"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "cron"), CRONS)
def test_a_cron_rule_is_six_fields(text: str, cron: str) -> None:
    rule = parse_rule(text)

    assert (rule.repeat, rule.kind, rule.cron, rule.is_anchored) == (text, CRON, cron, False)


@pytest.mark.parametrize(("text", "kind", "size"), PERIODS)
def test_a_period_counts_milliseconds_days_or_months_as_it_is_written(
    text: str, kind: Kind, size: int
) -> None:
    rule = parse_rule(text)

    assert (rule.kind, rule.size, rule.count, rule.starts_ms, rule.is_anchored) == (
        kind,
        size,
        None,
        None,
        True,
    )


@pytest.mark.parametrize(("text", "kind", "size", "count", "start"), REPEATING)
def test_a_repeating_interval_may_have_a_count_and_a_start(
    text: str, kind: Kind, size: int, count: int | None, start: str | None
) -> None:
    rule = parse_rule(text, "Europe/Paris")
    starts_ms = None if start is None else parse_instant_ms(start)

    assert (rule.kind, rule.size, rule.count, rule.starts_ms) == (kind, size, count, starts_ms)


def test_a_start_in_a_fold_is_the_second_instant_if_the_last_one_is_wanted() -> None:
    rule = parse_rule("R/2025-10-26T02:30/P1D", "Europe/Paris", "skip", "last")

    assert rule.starts_ms == parse_instant_ms("2025-10-26T01:30:00Z")


@pytest.mark.parametrize(("text", "parts"), RRULES)
def test_an_rrule_is_its_parts(text: str, parts: dict[str, str]) -> None:
    rule = parse_rule(text)

    assert (rule.kind, dict(rule.parts), rule.parts[0][0]) == (RRULE, parts, "FREQ")


@pytest.mark.parametrize("text", REFUSED)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_rule(text)

    assert (caught.value.field, caught.value.value) == ("repeat", text)
    assert caught.value.rule


HINTS = [
    ("0 0 30 2 *", "hint: Bad day-of-month"),
    ("0 0 ? * MON", "write *"),
    ("PT15M", "hint: write every PT15M"),
    ("2 months", "hint: write every 2 months"),
    ("every 1 month 2 days", "hint: months and years stand alone"),
    ("every 0 s", "hint: a period is at least 1 ms"),
    ("R0/P1D", "hint: it fires at least once"),
    ("R/P1D/2026-01-01", "hint: a repeating interval is R/PT15M"),
    ("@reboot", "hint: one of @yearly"),
    ("FREQ=DAILY;COUNT=3", "hint: use the column count; omit COUNT"),
    ("FREQ=DAILY;UNTIL=20270101", "hint: use the column until; omit UNTIL"),
    ("DTSTART:20260101T090000;FREQ=DAILY", "omit DTSTART"),
    ("FREQ=SECONDLY", "for seconds write every 1 second"),
    ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "hint: no day matches it"),
    ("x" * (LONGEST_REPEAT + 1), "hint: it has 1 to 256 characters"),
]


@pytest.mark.parametrize(("text", "hint"), HINTS)
def test_the_error_says_what_to_do(text: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_rule(text)

    assert hint in str(caught.value)


@pytest.mark.parametrize(
    "zone",
    ["UTC", "Z", "Europe/Paris", "America/Argentina/Buenos_Aires", "Etc/GMT+5", "+02:00", "-0330", "+05", "-18:00"],
)  # fmt: skip
def test_a_zone_is_a_name_or_an_offset(zone: str) -> None:
    assert parse_rule("@daily", zone).zone == zone


@pytest.mark.parametrize(
    "zone",
    [
        *("", " ", "Europe", "Europe/", "Europe/Atlantis", "europe\\paris", "../UTC", "/etc/passwd", "Europe/../UTC"),
        *("tzdata.zi", "zone.tab", "right/UTC", "posix/UTC", "localtime", "posixrules", "Factory", "x" * 10_000),
        *("\x00", "UTC\x00", "\ud800", "Europe/Paris ", "+2", "+02:60", "+18:01", "-19:00", "02:00", "+٠٢:٠٠", "UTC+2"),
    ],
)  # fmt: skip
def test_no_other_zone_is_known(zone: str) -> None:
    with pytest.raises(ConfigError, match="not a time zone") as caught:
        parse_rule("@daily", zone)

    assert caught.value.field == "time_zone"


@pytest.mark.parametrize(
    ("field", "policies"),
    [
        ("on_gap", ("", "first")),
        ("on_gap", ("SHIFT", "first")),
        ("on_fold", ("shift", "")),
        ("on_fold", ("shift", "all")),
    ],
)
def test_no_other_policy_is_known(field: str, policies: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match="rule: ") as caught:
        parse_rule("@daily", "UTC", *policies)

    assert caught.value.field == field


@pytest.mark.parametrize(
    ("module", "text", "message"),
    [
        ("cronsim", "0 0 * * *", "the package cronsim is not installed: repeat = '0 0 * * *'; hint: pip install 'cronsim>=2.7,<3'"),
        ("dateutil", "FREQ=DAILY", "the package dateutil is not installed: repeat; hint: pip install 'wheel-udf[rrule]'"),
    ],
)  # fmt: skip
def test_a_missing_package_is_named(module: str, text: str, message: str) -> None:
    # The finder of the child hides the package, as if it were not installed.
    program = f"""
import sys
from importlib.machinery import PathFinder
class Hiding:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name.split(".")[0] == {module!r} else PathFinder.find_spec(name, path, target)
sys.meta_path = [each for each in sys.meta_path if each is not PathFinder] + [Hiding]
from wheel_udf.recurrence.occurrences import occurrences_of
occurrences_of("every 1 day")
try:
    occurrences_of({text!r})
except Exception as fault:
    print(f"{{type(fault).__name__}}|{{fault}}")
"""
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)

    assert answer.stdout.strip() == f"ConfigError|{message}"


def test_the_packages_are_imported_by_the_first_rule_that_needs_them() -> None:
    program = (
        "import sys; from wheel_udf.recurrence.occurrences import occurrences_of; "
        "loaded = lambda: {'cronsim', 'dateutil'} & set(sys.modules); "
        "occurrences_of('every 1 day', 'Europe/Paris'); assert not loaded(); "
        "occurrences_of('@daily'); assert loaded() == {'cronsim'}; "
        "occurrences_of('FREQ=DAILY'); assert loaded() == {'cronsim', 'dateutil'}"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
