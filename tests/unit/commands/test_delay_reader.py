"""The delay of commands that name no due time: of their topic, or by default. No Spark."""

from __future__ import annotations

import pyarrow as pa

from wheel_udf.commands.delay_reader import DelayReader

ROWS = [
    # topic, deliver_at, delay, repeat, and the delays: by default, of the topic, both
    ("orders", None, None, None, "5 ms", None, "5 ms"),
    ("orders", None, b"1 s", None, "1 s", "1 s", "1 s"),
    ("orders", "2026-01-01", None, None, None, None, None),
    ("orders", None, None, b"@daily", None, None, None),
    ("in-1m", None, None, None, "5 ms", "60000 ms", "60000 ms"),
    ("in-1m", None, b"1 s", None, "1 s", "1 s", "1 s"),
    ("in-1m", "2026-01-01", None, None, None, None, None),
    ("in-1m", "2026-01-01", b"1 s", None, "1 s", "1 s", "1 s"),
    (None, None, None, None, "5 ms", None, "5 ms"),
]
TOPICS, DUES, DELAYS, REPEATS, BY_DEFAULT, OF_TOPIC, BOTH = (list(each) for each in zip(*ROWS, strict=True))
COLUMNS = {
    "kafka": pa.array([{"topic": topic} for topic in TOPICS], pa.struct([("topic", pa.string())])),
    "deliver_at": pa.array(DUES, pa.string()),
    "delay": pa.array(DELAYS, pa.binary()),
    "repeat": pa.array(REPEATS, pa.binary()),
}


def made(reader: DelayReader) -> pa.RecordBatch:
    columns = [COLUMNS[name] for name in reader.names]
    times = pa.array([0] * len(ROWS), pa.int64())
    return reader.read(pa.RecordBatch.from_arrays([*columns, times], names=[*reader.names, "batch_ms"]))


def test_a_command_without_a_due_time_has_the_delay_of_its_topic_or_the_default_one() -> None:
    names = tuple(COLUMNS)
    for default_ms, levels, expected in (
        (5, {}, BY_DEFAULT),
        (None, {"in-1m": 60_000}, OF_TOPIC),
        (5, {"in-1m": 60_000}, BOTH),
    ):
        read = made(DelayReader(names, default_ms, levels))
        assert read.schema.names == list(names)
        assert read.column("delay").to_pylist() == expected


def test_a_series_that_says_when_it_starts_takes_no_delay_of_its_topic() -> None:
    topics = pa.array([{"topic": "in-1m"}] * 3, pa.struct([("topic", pa.string())]))
    columns = [topics, pa.array(["@daily", "@daily", None]), pa.array(["2026-02-01", None, None])]
    names = ["kafka", "repeat", "starts_at"]
    batch = pa.RecordBatch.from_arrays([*columns, pa.array([0, 0, 0])], names=[*names, "batch_ms"])
    read = DelayReader(tuple(names), 5, {"in-1m": 60_000}).read(batch)

    assert read.column("delay").to_pylist() == [None, "60000 ms", "60000 ms"]


def test_a_column_delay_is_added_at_the_end_where_there_was_none() -> None:
    read = made(DelayReader(("deliver_at", "kafka"), 5, {}))
    assert read.schema.names == ["deliver_at", "kafka", "delay"]
    assert read.column("delay").to_pylist() == [None if due else "5 ms" for due in DUES]


def test_a_delay_that_is_no_utf8_stays_as_it_is() -> None:
    reader = DelayReader(("delay",), 5, {})
    read = reader.read(
        pa.RecordBatch.from_arrays([pa.array([b"\xff"]), pa.array([0])], names=["delay", "ms"])
    )
    assert read.column("delay").cast(pa.binary()).to_pylist() == [b"\xff"]
