"""Timed records: rows of a batch as the records that a sender gives to a client."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from wheel_udf.punctual.timed_records import TimedRecords

T0 = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def header(name: str, value: bytes | None) -> dict[str, Any]:
    return {"key": name, "value": value}


def table(due_ms: list[int], **columns: Any) -> pa.Table:
    count = len(due_ms)
    payload = {
        "topic": ["out"] * count,
        "key": pa.nulls(count, pa.binary()),
        "value": pa.nulls(count, pa.binary()),
        "headers": pa.nulls(count, HEADERS),
        "due_ms": pa.array(due_ms, pa.int64()),
    }
    ours = {
        f"wheel-{name.replace('_', '-')}": column for name, column in columns.items() if name not in payload
    }
    return pa.table(payload | {name: columns[name] for name in payload if name in columns} | ours)


def records(timed: TimedRecords, start: int = 0, stop: int | None = None) -> list[Any]:
    return list(timed.records(start, len(timed.due_ms) if stop is None else stop, b"now"))


def test_records_are_in_order_of_due_times_and_keep_nulls_and_bytes() -> None:
    found = TimedRecords.of(
        table(
            [7, 3],
            topic=["t", "u"],
            key=pa.array([None, b"k"], pa.binary()),
            value=pa.array([b"\xff", None], pa.binary()),
            id=["a", "b"],
        )
    )
    assert found.due_ms.tolist() == [3, 7]
    assert records(found) == [
        ("u", b"k", None, [("wheel-id", b"b")]),
        ("t", None, b"\xff", [("wheel-id", b"a")]),
    ]


def test_of_records_that_are_due_together_the_first_one_handed_over_comes_first() -> None:
    found = TimedRecords.of(table([5, 4, 5, 5], id=["a", "b", "c", "d"]))
    assert [headers[0][1] for _, _, _, headers in records(found)] == [b"b", b"a", b"c", b"d"]


def test_an_entrys_own_headers_come_first_and_may_have_any_name_once_or_twice() -> None:
    own = [header("né", None), header("trace", b"1"), header("trace", b"\xff")]
    found = TimedRecords.of(
        table([1, 2, 3], headers=pa.array([own, None, own[1:2]], HEADERS), id=["a", "b", "c"])
    )
    assert [headers for _, _, _, headers in records(found)] == [
        [("né", None), ("trace", b"1"), ("trace", b"\xff"), ("wheel-id", b"a")],
        [("wheel-id", b"b")],
        [("trace", b"1"), ("wheel-id", b"c")],
    ]


def test_the_instant_of_the_sending_keeps_its_place_among_our_headers() -> None:
    found = TimedRecords.of(table([1], id=["a"], fired_at=pa.nulls(1, pa.int64()), seq=["7"]))
    assert records(found) == [
        ("out", None, None, [("wheel-id", b"a"), ("wheel-fired-at", b"now"), ("wheel-seq", b"7")])
    ]


def test_an_instant_is_written_to_the_millisecond_also_one_of_many_records() -> None:
    found = TimedRecords.of(table([T0, T0, T0 + 1], deliver_at=pa.array([T0, T0, -1], pa.int64())))
    assert [headers[0][1] for _, _, _, headers in records(found)] == [
        b"2023-11-14T22:13:20.000Z",
        b"2023-11-14T22:13:20.000Z",
        b"1969-12-31T23:59:59.999Z",
    ]


def test_a_record_without_a_source_lacks_that_header_alone_whether_others_have_one_or_not() -> None:
    some = TimedRecords.of(table([1, 2], id=["a", "b"], source=pa.array([None, "t/0/1"])))
    none = TimedRecords.of(table([1], id=["a"], source=pa.array([None], pa.string())))
    assert [headers for _, _, _, headers in records(some)] == [
        [("wheel-id", b"a")],
        [("wheel-id", b"b"), ("wheel-source", b"t/0/1")],
    ]
    assert records(none) == [("out", None, None, [("wheel-id", b"a")])]


def test_a_part_of_timed_records_is_the_same_records() -> None:
    own = pa.array([[header("x", b"1")], None, [header("y", b"2"), header("z", b"3")]], HEADERS)
    found = TimedRecords.of(
        table([1, 2, 3], headers=own, id=["a", "b", "c"], source=pa.array(["s", None, "u"]))
    )
    assert records(found, 0, 1) + records(found, 1, 3) == records(found)
    assert records(found, 2, 2) == []
    for start in range(4):
        assert records(found.rest(start)) == records(found, start)
        assert found.rest(start).sizes.tolist() == found.sizes.tolist()[start:]


def test_timed_records_without_rows_has_no_records() -> None:
    assert records(TimedRecords.of(table([], id=pa.array([], pa.string())))) == []


def test_the_size_counts_payload_and_headers() -> None:
    found = TimedRecords.of(
        table([1, 2], value=pa.array([b"x" * 1_000, None], pa.binary()), id=["a", "b"], seq=["1", "2"])
    )
    assert found.sizes.tolist() == [1_500, 500]


def test_the_size_counts_the_values_of_an_entrys_own_headers() -> None:
    # They counted as a hundred bytes each, so rows with large headers found more room than the sender had.
    own = pa.array([[header("x", b"1" * 5_000), header("y", None)], None, [header("z", b"2" * 70)]], HEADERS)
    assert TimedRecords.of(table([1, 2, 3], headers=own)).sizes.tolist() == [5_500, 300, 470]
