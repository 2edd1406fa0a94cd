"""Any text gives a value or the error that the reader documents, and none takes long."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

import pytest
from hypothesis import example, given, strategies as st

from tests.hostile import BAD_NAMES, GOOD_NAMES, RESERVED_NAMES, mangled
from wheel_udf.common import secrets
from wheel_udf.common.durations import TOO_LONG_MS, parse_duration_ms
from wheel_udf.common.errors import ConfigError, SinkError
from wheel_udf.common.instants import instant_text, instant_text_ms, parse_instant_ms
from wheel_udf.common.names import AllowList, is_destination_name, is_destination_pattern
from wheel_udf.common.secrets import hide, resolve
from wheel_udf.spark.places import place_of

LONG = 100_000
DURATIONS = mangled(
    b"P1DT2H3M4.5S", b"10 minutes", b"-1.5h", b"PT-1H-30M", b" 0 ", b"interval 1 d 2h 3 m", b"-1 h -30 m"
).map(lambda octets: octets.decode(errors="surrogateescape"))
INSTANTS = mangled(b"2013-01-01T05:00:00.123456+01:00", b"9999-12-31T23:59:59Z", b"2013-W53-7").map(
    lambda octets: octets.decode(errors="surrogateescape")
)


@given(DURATIONS | st.text(max_size=20))
@example("9" * LONG)
@example("P" + "1D" * LONG)
@example(" " * LONG)
@example("1 w" + " " * 95 + "x")
@example("1 w" * 30)
def test_any_text_is_a_duration_within_the_bounds_or_refused(text: str) -> None:
    try:
        found_ms = parse_duration_ms(text)
    except ConfigError:
        return
    assert -TOO_LONG_MS <= found_ms <= TOO_LONG_MS
    assert re.search("[0-9]", text)


@given(INSTANTS | st.text(max_size=20))
@example("2" * LONG)
@example("9999-12-31T23:59:59-23:59")
@example("0001-01-01T00:00:00+23:59")
@example("9999-12-31T24:00:00Z")
@example("2013-01-01T00:00:00\ud800")
def test_any_text_is_an_instant_that_can_be_written_or_refused(text: str) -> None:
    try:
        found_ms = parse_instant_ms(text)
    except ValueError:
        return
    assert instant_text(found_ms)
    written = instant_text_ms(found_ms)
    assert written == f"{found_ms} ms" or parse_instant_ms(written) == found_ms


def test_there_are_a_hundred_hostile_names() -> None:
    assert len(set(BAD_NAMES)) >= 100


def test_a_hostile_name_is_no_destination_and_has_no_place() -> None:
    for name in BAD_NAMES:
        assert not is_destination_name(name), name
        with pytest.raises(SinkError, match="not a destination name"):
            place_of("root", name)


def test_a_name_that_delta_reserves_has_no_place() -> None:
    for name in RESERVED_NAMES:
        assert is_destination_name(name), name
        with pytest.raises(SinkError, match="reserved by Delta"):
            place_of("root", name)


@given(st.text(max_size=8) | st.sampled_from(GOOD_NAMES) | st.text("./\\%_-aA0\0\n", max_size=6))
def test_every_name_that_passes_has_a_place_of_one_step_below_the_root(name: str) -> None:
    try:
        place = place_of("/no/such/root", name)
    except SinkError:
        return
    assert PurePosixPath(place).parent == PurePosixPath("/no/such/root")
    assert ".." not in PurePosixPath(place).parts
    assert re.fullmatch("[A-Za-z0-9._-]{1,249}", name)


@given(st.text("ab*?", min_size=1, max_size=9), st.text("ab.", min_size=1, max_size=9))
@example("*ab*b", "abab")
@example("a**a", "a")
@example("*", "a")
def test_the_allow_list_matches_as_a_shell_does(pattern: str, name: str) -> None:
    allowed = AllowList([pattern])
    matches = fnmatchcase(name, pattern)

    assert (allowed.first(name) == pattern) == matches
    assert (allowed.expression is None) == (not set("*?") & set(pattern))
    assert allowed.expression is None or (re.fullmatch(allowed.expression, name) is not None) == matches


@pytest.mark.parametrize("stars", [8, 124])
def test_no_name_makes_the_match_of_a_pattern_with_many_stars_endless(stars: int) -> None:
    pattern, name = "*" + "a*" * (stars - 1) + "b", "a" * 249

    assert is_destination_pattern(pattern)
    assert AllowList([pattern]).first(name) is None
    assert AllowList([pattern]).first("a" * 248 + "b") == pattern


@given(mangled(b"${env:HOSTILE}", b"a${file:/no/such/file}b", b"user=\"x\" password='y\\' z'"))
@example(b"${file:\0}")
@example(b"${file:" + b"x" * 10_000 + b"}")
@example(b"a" * 200_000)
def test_any_text_of_a_setting_is_filled_in_or_stays_with_a_reason(octets: bytes) -> None:
    text = octets.decode(errors="replace")
    with secrets.forget_at_end():
        filled, faults = resolve({"password": text})
        assert filled == {"password": text}  # no such variable, no such file
        assert all(isinstance(fault, ConfigError) for fault in faults.values())
        assert len(text.strip()) < secrets.SHORTEST or hide(text) != text
