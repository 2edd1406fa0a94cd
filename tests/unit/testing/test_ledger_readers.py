"""Thin readers of the ledger checker: Delta folders without Spark, files, records of a Kafka consumer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from wheel_udf.common.errors import ContractError, SinkError
from wheel_udf.testing.ledger import Rules, check, fired_of_kafka, read_delta, read_files, rejects_of_kafka

ROW = {"schedule_id": "a", "seq": 1, "deliver_at_ms": 200, "destination": "out", "value": b"v"}


def test_a_delta_table_is_its_live_files_with_their_partition_values(tmp_path: Path) -> None:
    table = tmp_path / "out"
    for mode, ids in (("append", ["a", "b"]), ("overwrite", ["c"]), ("append", ["d"])):
        rows = pa.table({"schedule_id": ids, "day": ["day 1"] * len(ids)})
        write_deltalake(str(table), rows, mode=mode, partition_by=["day"])
    found = sorted(tuple(row.values()) for row in read_delta(table).to_pylist())
    assert found == [("c", "day 1", "out"), ("d", "day 1", "out")]


def test_a_folder_of_delta_tables_is_all_of_them(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "one"), pa.table({"schedule_id": ["a"]}))
    write_deltalake(str(tmp_path / "two"), pa.table({"schedule_id": ["b"], "seq": [1]}))
    (tmp_path / "notes").mkdir()
    assert read_delta(tmp_path).to_pylist() == [
        {"schedule_id": "a", "table": "one", "seq": None},
        {"schedule_id": "b", "table": "two", "seq": 1},
    ]


@pytest.mark.parametrize(
    ("setting", "what"),
    [("enableDeletionVectors", "deletionVectors"), ("columnMapping.mode", "column mapping")],
)
def test_a_delta_table_that_needs_spark_is_refused(setting: str, what: str, tmp_path: Path) -> None:
    write_deltalake(
        str(tmp_path), pa.table({"a": [1]}), configuration={"delta.enableDeletionVectors": "true"}
    )
    log = tmp_path / "_delta_log" / f"{0:020}.json"
    if setting == "columnMapping.mode":  # deltalake does not write it
        text = log.read_text().replace(
            '"delta.enableDeletionVectors":"true"', '"delta.columnMapping.mode":"name"'
        )
        log.write_text(text)
    with pytest.raises(SinkError, match=f"The table has .*{what}.*hint: read it with Spark"):
        read_delta(tmp_path)


def test_what_is_no_delta_table_is_refused_and_an_empty_one_has_no_rows(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="no Delta table"):
        read_delta(tmp_path)
    write_deltalake(str(tmp_path), pa.table({"a": pa.array([], pa.int64())}))
    assert read_delta(tmp_path).num_rows == 0


def test_files_are_read_by_name_and_numbered(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([ROW]), tmp_path / "0.parquet")
    (tmp_path / "1.json").write_text('{"schedule_id": "b", "delay": "1 s"}\n\n')
    rows = read_files(tmp_path).to_pylist()
    assert [(row["schedule_id"], row["batch"], row["delay"]) for row in rows] == [
        ("a", 0, None),
        ("b", 1, "1 s"),
    ]
    with pytest.raises(ContractError, match="no files"):
        read_files(tmp_path / "1.json")


HEADERS = [
    ("trace", b"t"), ("wheel-id", b"a"), ("wheel-fire-id", b"f"), ("wheel-seq", b"1"),
    ("wheel-deliver-at", b"1970-01-01T00:00:00.200Z"), ("wheel-fired-at", b"1970-01-01T00:00:00.250Z"),
]  # fmt: skip


class Message:
    """As a consumer gives it."""

    def __init__(self, received_ms: int, topic: str = "out") -> None:
        self._received_ms, self._topic = received_ms, topic

    def topic(self) -> str:
        return self._topic

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> list[tuple[str, bytes]]:
        return HEADERS

    def timestamp(self) -> tuple[int, int]:
        return 1, self._received_ms


@pytest.mark.parametrize(
    ("messages", "counts", "repetitions"),
    [
        ([Message(260)], {}, 0),
        ([Message(260), Message(300)], {}, 1),
        ([Message(199)], {"early": 1}, 0),
        ([Message(260, topic="in")], {"wrong_destination": 1}, 0),
        ([{"topic": "out", "value": b"v", "headers": HEADERS[1:], "received_ms": 300}], {"altered": 1}, 0),
    ],
)
def test_deliveries_of_a_topic_are_checked_by_their_headers(
    messages: list[Any], counts: dict[str, int], repetitions: int
) -> None:
    command = ROW | {"headers": [("trace", b"t"), ("wheel-own", b"not delivered")]}
    report = check([command], fired_of_kafka(messages), rules=Rules(until_ms=1_000))
    assert (report.counts, report.repetitions) == (counts, repetitions)


def test_rejects_of_a_topic_are_read_from_their_headers() -> None:
    headers = [("wheel-id", b"a"), ("wheel-error-code", b"no_destination"), ("wheel-error-message", b"why")]
    rejects = rejects_of_kafka([{"topic": "rejects", "value": b"v", "headers": headers}] * 2)
    assert rejects[0]["error_code"] == "no_destination"
    assert check([ROW | {"destination": None}], [], rejects, rules=Rules(until_ms=1_000)).ok
