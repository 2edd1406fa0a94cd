"""The verb ``next`` without a config: the next occurrences of a rule, as lines."""

from __future__ import annotations

import io

import pytest

from wheel_udf.job.cli import main


def said(*arguments: str) -> tuple[int, list[str], str]:
    """The exit code, the lines and what went wrong."""
    out, err = io.StringIO(), io.StringIO()
    code = main(["next", *arguments], out=out, err=err)
    return code, out.getvalue().splitlines(), err.getvalue()


def test_each_occurrence_is_a_line_in_utc_and_in_local_time() -> None:
    rule = ("--repeat", "30 2 * * *", "--time-zone", "Europe/Paris", "--from", "2026-03-28T01:30Z")
    assert said(*rule, "-n", "2") == (
        0,
        [
            "2026-03-29T01:00:00.000Z  2026-03-29T03:00:00.000+02:00 Europe/Paris",
            "2026-03-30T00:30:00.000Z  2026-03-30T02:30:00.000+02:00 Europe/Paris",
        ],
        "",
    )
    _, lines, _ = said(*rule, "-n", "1", "--on-gap", "skip")
    assert lines == ["2026-03-30T00:30:00.000Z  2026-03-30T02:30:00.000+02:00 Europe/Paris"]


def test_a_period_counts_from_the_asked_instant_or_from_its_own_start_and_ends_with_its_count() -> None:
    _, lines, _ = said("--repeat", "R3/PT15M", "--from", "2026-01-01")
    assert [line[11:16] for line in lines] == ["00:15", "00:30", "00:45"]
    _, lines, _ = said("--repeat", "R/2026-01-31T09:00:00Z/P1M", "--from", "2026-02-01", "-n", "2")
    assert [line[:10] for line in lines] == ["2026-02-28", "2026-03-31"]


def test_what_a_rule_with_a_start_has_had_counts() -> None:
    rule = ("--repeat", "R3/2026-01-31T09:00:00Z/P1M", "--from")
    for instant, months in (
        ("2026-01-01", ["2026-01-31", "2026-02-28", "2026-03-31"]),
        ("2026-03-01", ["2026-03-31"]),
        ("2027-01-01", ["no occurre"]),
    ):
        assert [line[:10] for line in said(*rule, instant)[1]] == months


def test_at_the_ends_of_the_calendar_there_is_the_instant_alone() -> None:
    code, lines, _ = said(
        "--repeat", "every 1 hour", "--time-zone", "+14:00", "--from", "9999-12-31T12:00Z", "-n", "1"
    )
    assert (code, lines) == (0, ["9999-12-31T13:00:00.000Z  (outside the years of local times, +14:00)"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--repeat, or --config and --id"),
        (["--repeat", "61 * * * *"], "not a cron expression: repeat = '61 * * * *'"),
        (["--repeat", "@daily", "--time-zone", "Mars/Base"], "not a time zone: time_zone = 'Mars/Base'"),
        (["--repeat", "@daily", "-n", "0"], "-n = 0; rule: 1 to"),
        (["--repeat", "@daily", "--id", "a"], "--repeat, or --config and --id"),
    ],
)
def test_what_is_no_question_is_refused(arguments: list[str], words: str) -> None:
    code, lines, err = said(*arguments)
    assert (code, lines) == (2, [])
    assert words in err
