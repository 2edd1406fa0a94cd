"""Local times and instants of hard zones, as zoneinfo says; and the version of its data."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import tzdata
from hypothesis import given, strategies as st

from tests.unit.recurrence.slow_reference import EPOCH, instants, local, ms
from wheel_udf.recurrence.local_times import NEVER, pieces_of, to_instants_ms, to_local_ms
from wheel_udf.recurrence.time_zone_data import time_zone_data_version

HARD_ZONES = (
    "Africa/Casablanca", "Africa/Freetown", "Africa/Monrovia", "America/Caracas", "America/New_York", "America/Recife",
    "America/Sao_Paulo", "Antarctica/Troll", "Asia/Gaza", "Asia/Kathmandu", "Asia/Pyongyang", "Australia/Lord_Howe",
    "Europe/Dublin", "Europe/Istanbul", "Europe/London", "Europe/Paris", "Pacific/Apia", "Pacific/Kwajalein", "Etc/GMT+12",
)  # fmt: skip
HOUR = 3_600_000


@pytest.mark.parametrize("zone", HARD_ZONES)
def test_clocks_show_what_zoneinfo_says_from_1800_to_9998(zone: str) -> None:
    asked = [datetime(1800, 1, 2, tzinfo=UTC) + timedelta(hours=number * 100_003) for number in range(718)]
    hours = [datetime(1900 + number // 20, 1 + number % 12, 1 + number % 28, number % 24, tzinfo=UTC) for number in range(4000)]  # fmt: skip
    for moments in (asked, hours):
        found = to_local_ms(np.array([ms(each) for each in moments]), zone)
        read = zoneinfo.ZoneInfo(zone)

        assert found.tolist() == [ms(local(each, read).replace(tzinfo=UTC)) for each in moments]


@pytest.mark.parametrize("zone", HARD_ZONES)
def test_no_change_of_a_clock_is_missed(zone: str) -> None:
    pieces, read = pieces_of(zone, "shift", "first", 0), zoneinfo.ZoneInfo(zone)
    days = [datetime(1900, 1, 1, tzinfo=UTC) + timedelta(days=number) for number in range(55_000)]
    offsets = [each.astimezone(read).utcoffset() for each in days]
    changed = [ms(days[number]) for number in range(1, len(days)) if offsets[number] != offsets[number - 1]]
    ours = pieces.at_ms[(pieces.at_ms > ms(days[0])) & (pieces.at_ms <= ms(days[-1]))]

    assert [day_ms for day_ms in changed if not ((ours > day_ms - 24 * HOUR) & (ours <= day_ms)).any()] == []
    assert len(ours) == len(changed)
    for at_ms, offset_ms, before_ms in zip(
        pieces.at_ms[1:], pieces.offset_ms[1:], pieces.offset_ms, strict=False
    ):
        at = EPOCH + timedelta(milliseconds=int(at_ms))
        shown = [(at + timedelta(seconds=second)).astimezone(read).utcoffset() for second in (-1, 0)]
        assert shown == [timedelta(milliseconds=int(before_ms)), timedelta(milliseconds=int(offset_ms))]


@pytest.mark.parametrize("zone", HARD_ZONES)
def test_pieces_follow_each_other(zone: str) -> None:
    for upto_ms in (0, 10**13):
        pieces = pieces_of(zone, "shift", "both", upto_ms)

        assert (np.diff(pieces.at_ms) > 0).all()
        assert (np.diff(pieces.begins_ms) > 0).all()
        assert (np.diff(pieces.ends_ms) > 0).all()
        assert (pieces.begins_ms < pieces.ends_ms).all()


@given(
    zone=st.sampled_from(["America/New_York", "Europe/Paris", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "UTC"]),
    on_gap=st.sampled_from(["shift", "skip"]), on_fold=st.sampled_from(["first", "last", "both"]),
    change=st.integers(0, 60), minutes=st.integers(-26 * 60, 26 * 60),
)  # fmt: skip
def test_local_times_near_a_change_happen_as_the_policies_say(
    zone: str, on_gap: str, on_fold: str, change: int, minutes: int
) -> None:
    pieces = pieces_of(zone, on_gap, on_fold, 0)
    recent = pieces.at_ms[
        (pieces.at_ms > ms(datetime(1990, 1, 1, tzinfo=UTC))) & (pieces.at_ms < 1_900_000_000_000)
    ]
    at_ms = int(recent[change % len(recent)]) if len(recent) else 1_774_000_000_000
    moment = (EPOCH + timedelta(milliseconds=at_ms, minutes=minutes)).replace(tzinfo=None)
    expected = [ms(each) for each in instants(moment, zoneinfo.ZoneInfo(zone), on_gap, on_fold)]
    found = to_instants_ms(np.array([ms(moment.replace(tzinfo=UTC))]), zone, on_gap, on_fold)

    assert [int(each[0]) for each in found] == [*expected, NEVER, NEVER][:2]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The one folder in which zoneinfo looks for zones."""
    (tmp_path / "Europe").mkdir()
    (tmp_path / "Europe" / "Paris").write_bytes(b"TZif")
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath([tmp_path])
    yield tmp_path
    zoneinfo.reset_tzpath(before)


def test_the_version_of_the_data_is_that_of_the_folder_of_zones(folder: Path) -> None:
    (folder / "tzdata.zi").write_text("# version 2025b\n# This zic input file is in the public domain.\n")
    (folder / "+VERSION").write_text("2024a\n")

    assert time_zone_data_version() == "2025b"


def test_some_systems_write_the_version_into_a_file_of_its_own(folder: Path) -> None:
    (folder / "+VERSION").write_text("2024a\n")

    assert time_zone_data_version() == "2024a"


@pytest.mark.parametrize("content", [b"", b"# redo posix_only\n", b"\xff\xfe"])
def test_the_version_is_unknown_where_no_file_says_it(folder: Path, content: bytes) -> None:
    (folder / "tzdata.zi").write_bytes(content)

    assert time_zone_data_version() == "unknown"


def test_without_zones_of_the_system_it_is_that_of_the_package(folder: Path) -> None:
    (folder / "Europe" / "Paris").unlink()

    assert time_zone_data_version() == tzdata.IANA_VERSION
