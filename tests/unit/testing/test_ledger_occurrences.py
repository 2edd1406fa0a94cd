"""The ledger's own reading of rules: what the page about recurring schedules says, and the same instants as the wheel's."""

from __future__ import annotations

from datetime import datetime
from itertools import islice

import numpy as np
import pytest

from wheel_udf.recurrence.occurrences import occurrences_of
from wheel_udf.testing.ledger.occurrences import Occurrences, read_rule


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def rule_of(repeat: str, zone: str = "UTC", on_gap: str = "shift", on_fold: str = "first") -> Occurrences:
    rule = read_rule(repeat, zone, on_gap, on_fold)
    assert rule is not None
    return rule


@pytest.mark.parametrize(
    ("repeat", "zone", "anchor", "first"),
    [
        ("0 9 * * MON-FRI", "UTC", "2026-01-02T10:00Z", ["2026-01-05T09:00Z", "2026-01-06T09:00Z"]),
        ("30 2 * * *", "Europe/Paris", "2026-03-28T00:00Z", ["2026-03-28T01:30Z", "2026-03-29T01:00Z"]),
        ("every 15 minutes", "UTC", "2026-01-01T10:01Z", ["2026-01-01T10:16Z", "2026-01-01T10:31Z"]),
        ("every 1 month", "UTC", "2026-01-31T09:00Z", ["2026-02-28T09:00Z", "2026-03-31T09:00Z"]),
        ("RRULE:FREQ=MONTHLY;BYDAY=-1FR", "UTC", "2026-01-01T10:00Z", ["2026-01-30T10:00Z", "2026-02-27T10:00Z"]),
    ],
)  # fmt: skip
def test_rules_are_read_as_the_page_about_recurring_schedules_says(
    repeat: str, zone: str, anchor: str, first: list[str]
) -> None:
    found = rule_of(repeat, zone).after(ms(anchor), ms(anchor))
    assert list(islice(found, 2)) == [ms(each) for each in first]


@pytest.mark.parametrize("policies", [("shift", "first"), ("skip", "last"), ("shift", "both")])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris", "Australia/Lord_Howe", "+05:30"])
@pytest.mark.parametrize(
    "repeat",
    [
        "30 1,2,3 * * *", "*/50 * * * *", "0 0 L * *", "0 12 * * 5#3", "@hourly", "every 90 minutes", "every 1 day",
        "every 24 hours", "every 2 weeks", "R5/P1M", "R/2026-01-01T02:30/P1D", "RRULE:FREQ=DAILY;BYHOUR=2;BYMINUTE=30",
        "FREQ=WEEKLY;BYDAY=MO,WE",
    ],
)  # fmt: skip
@pytest.mark.parametrize("at", ["2026-03-27T01:30:00.250Z", "2026-10-24T15:10Z"])
def test_instants_are_those_of_the_wheel(repeat: str, zone: str, policies: tuple[str, str], at: str) -> None:
    rule, other = rule_of(repeat, zone, *policies), occurrences_of(repeat, zone, *policies)
    assert rule.starts_ms == other.rule.starts_ms
    anchor_ms = ms(at) if rule.starts_ms is None else rule.starts_ms
    for begin_ms in (ms(at) - 1, ms(at), ms(at) + 5_000_000):
        expected = other.between(begin_ms, 2**62, anchor_ms, 12)
        assert np.array_equal(list(islice(rule.after(begin_ms, anchor_ms), 12)), expected)


@pytest.mark.parametrize(
    ("repeat", "zone"),
    [
        ("61 * * * *", "UTC"), ("every fortnight", "UTC"), ("every 0 s", "UTC"), ("soon", "UTC"), ("RRULE:FREQ=X", "UTC"),
        ("R/soon/P1D", "UTC"), ("@daily", "Europe/Atlantis"), ("@daily", "+99:00"),
    ],
)  # fmt: skip
def test_what_it_does_not_read_is_none(repeat: str, zone: str) -> None:
    assert read_rule(repeat, zone, "shift", "first") is None


@pytest.mark.parametrize("package", ["cronsim", "dateutil.rrule"])
def test_without_its_package_a_rule_is_none(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    repeat = "1 2 3 4 *" if package == "cronsim" else "RRULE:FREQ=DAILY;COUNT=77"
    monkeypatch.setitem(__import__("sys").modules, package, None)
    assert read_rule(repeat, "UTC", "shift", "first") is None
