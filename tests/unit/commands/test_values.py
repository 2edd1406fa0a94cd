"""Single values as text and as JSON, in the forms that Spark writes: literal values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from wheel_udf.commands.values import json_of, readable, text_of, utc_text

US = 1_000_000


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (10_000_000.0, pa.float64(), "1.0E7"),
        (1_234_567.0, pa.float64(), "1234567.0"),
        (0.001, pa.float64(), "0.001"),
        (0.000_15, pa.float64(), "1.5E-4"),
        (99_999_999.5, pa.float64(), "9.99999995E7"),
        (-9_999_999_999.0, pa.float64(), "-9.999999999E9"),
        (0.000_999_999_999, pa.float64(), "9.99999999E-4"),
        (5e-324, pa.float64(), "5.0E-324"),
        (1e30, pa.float32(), "1.0E30"),
        (-0.0, pa.float64(), "-0.0"),
        (float("nan"), pa.float64(), "NaN"),
        (float("-inf"), pa.float64(), "-Infinity"),
        (0.1, pa.float32(), "0.1"),
        (Decimal("1.500"), pa.decimal128(10, 3), "1.500"),
        (True, pa.bool_(), "true"),
        (7, pa.int8(), "7"),
        (b"\xffx", pa.binary(), "\ufffdx"),
        (0, pa.date32(), "1970-01-01"),
        (-719_528 - 1, pa.date32(), "-0001-12-31"),
        (US // 2, pa.timestamp("us", "Europe/Rome"), "1970-01-01 00:00:00.5Z"),
        (-US, pa.timestamp("us"), "1969-12-31 23:59:59"),
        (None, pa.string(), None),
    ],
)
def test_a_value_as_text(value: Any, kind: pa.DataType, expected: str | None) -> None:
    raw = (
        pa.array([value], pa.int64() if pa.types.is_timestamp(kind) else pa.int32())
        if (pa.types.is_temporal(kind))
        else pa.array([value], kind)
    )

    assert text_of(raw.cast(kind)[0]) == expected


def test_instants_go_as_far_as_those_of_spark() -> None:
    assert utc_text((2**63 - 1) // 1_000 * 1_000) == "+294247-01-10 04:00:54.775Z"
    assert utc_text(-(2**63)) == "-290308-12-21 19:59:05.224192Z"
    assert utc_text(253_402_300_800 * US) == "+10000-01-01 00:00:00Z"


def test_an_object_leaves_out_nulls_and_keeps_bytes_that_are_no_text() -> None:
    inner = pa.struct([("d", pa.binary())])
    kind = pa.struct(
        [
            *(
                ("a", pa.int32()),
                ("b", pa.binary()),
                ("c", pa.list_(inner)),
                ("m", pa.map_(pa.string(), pa.binary())),
            ),
            *(("t", pa.list_(pa.string())), ("at", pa.timestamp("us", "UTC")), ("wall", pa.timestamp("us"))),
        ]
    )
    value = {
        "a": None, "b": b"\xff", "c": [{"d": b"x"}, None, {"d": b"\xff"}], "m": [("k", b"v"), ("n", None)],
        "t": ['"', None], "at": 1_500_000, "wall": 0,
    }  # fmt: skip

    assert json_of(pa.array([value], kind)[0]) == (
        '{"b":"base64:/w==","c":[{"d":"x"},null,{"d":"base64:/w=="}],"m":{"k":"dg==","n":null},'
        '"t":["\\"",null],"at":"1970-01-01T00:00:01.500000Z","wall":"1970-01-01T00:00:00.000000"}'
    )


def test_json_of_a_type_that_arrow_does_not_have_stands_as_spark_wrote_it() -> None:
    kind = pa.struct([("wait", pa.struct([("_json", pa.string())]))])

    assert json_of(pa.array([{"wait": {"_json": "\"INTERVAL '1' DAY\""}}], kind)[0]) == (
        '{"wait":"INTERVAL \'1\' DAY"}'
    )


def test_bytes_that_look_like_base64_are_written_in_base64() -> None:
    assert [readable(each) for each in (b"plain", b"base64:eA==", b"\xff")] == [
        "plain",
        "base64:YmFzZTY0OmVBPT0=",
        "base64:/w==",
    ]
