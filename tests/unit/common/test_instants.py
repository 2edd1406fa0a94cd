"""Instants: ISO texts to UTC epoch ms and back."""

from __future__ import annotations

import pytest

from wheel_udf.common.instants import instant_text, instant_text_ms, parse_instant_ms


@pytest.mark.parametrize(
    ("text", "instant_ms"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01 00:00:01.0019", 1_001),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:59:59.999", -1),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ("0001-01-01", -62_135_596_800_000),
    ],
)
def test_instants_are_utc_unless_they_say_otherwise(text: str, instant_ms: int) -> None:
    assert parse_instant_ms(text) == instant_ms


@pytest.mark.parametrize("text", ["", "tomorrow", "2013-13-01", "1356998400", "10000-01-01"])
def test_other_texts_are_no_instants(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_instant_ms(text)


@pytest.mark.parametrize(
    ("instant_ms", "to_the_second", "to_the_ms"),
    [
        (0, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59Z", "1969-12-31T23:59:59.999Z"),
        (1_709_251_199_999, "2024-02-29T23:59:59Z", "2024-02-29T23:59:59.999Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "253402300800000 ms", "253402300800000 ms"),
        (2**63 - 1, "9223372036854775807 ms", "9223372036854775807 ms"),
    ],
)
def test_instants_are_written_in_utc(instant_ms: int, to_the_second: str, to_the_ms: str) -> None:
    assert instant_text(instant_ms) == to_the_second
    assert instant_text_ms(instant_ms) == to_the_ms


def test_no_instant_is_a_dash() -> None:
    assert instant_text(None) == "-"
