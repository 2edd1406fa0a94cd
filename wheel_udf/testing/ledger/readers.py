"""Thin readers of what a run has read and written: Delta folders without Spark, files, records of a Kafka consumer.

A Spark DataFrame needs no reader: :func:`~wheel_udf.testing.ledger.check.check` takes it as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaProtocolError
from pyarrow.dataset import ParquetReadOptions

from wheel_udf.common.errors import ContractError, SinkError
from wheel_udf.testing.ledger.columns import Headers


def read_delta(folder: Path | str) -> pa.Table:
    """Reads a Delta table of the local file system without Spark; a column ``table`` has the folder's name.

    Args:
        folder: The table's folder; or one that holds tables, such as the ``path`` of a ``DeltaSink``: then all of
            them, one below the other.

    Raises:
        SinkError: There is no Delta table, or one with deletion vectors, column mapping or a checkpoint of version 2.
            Read such a table with Spark.
    """
    folder = Path(folder)
    found = [folder] if DeltaTable.is_deltatable(str(folder)) else sorted(folder.glob("*/_delta_log/.."))
    if not found:
        raise SinkError("no Delta table", field="folder", value=str(folder), rule="a folder with _delta_log")
    return pa.concat_tables([_of_table(each.resolve()) for each in found], promote_options="permissive")


def _of_table(folder: Path) -> pa.Table:
    table = DeltaTable(folder.as_uri())
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        raise _unreadable(folder, "The table has column mapping.")
    options = ParquetReadOptions(coerce_int96_timestamp_unit="us")
    try:
        rows = table.to_pyarrow_dataset(parquet_read_options=options).to_table()
    except DeltaProtocolError as fault:
        raise _unreadable(folder, str(fault)) from None
    return rows.append_column("table", pa.repeat(folder.name, rows.num_rows))


def _unreadable(folder: Path, what: str) -> SinkError:
    return SinkError(what, field="folder", value=str(folder), hint="read it with Spark")


def read_files(folder: Path | str) -> pa.Table:
    """Reads the Parquet or JSON files of a folder, by name; a column ``batch`` has the number of the file.

    As in Spark, files and folders whose names begin with ``_`` or ``.`` are left out, and a line that is no JSON
    object is a row with ``_corrupt_record``.

    Raises:
        ContractError: There are no such files.
    """
    folder = Path(folder)
    found = sorted(path for path in folder.rglob("*") if path.suffix in (".parquet", ".json", ".jsonl"))
    paths = [path for path in found if not any(part[0] in "_." for part in path.relative_to(folder).parts)]
    if not paths:
        raise ContractError(
            "no files", field="folder", value=str(folder), rule="*.parquet, *.json or *.jsonl"
        )
    parts = [_numbered(_read_file(path), number) for number, path in enumerate(paths)]
    return pa.concat_tables(parts, promote_options="permissive")


def _numbered(table: pa.Table, number: int) -> pa.Table:
    return table.append_column("batch", pa.array([number] * table.num_rows, pa.int64()))


def _read_file(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return pq.ParquetFile(path).read()
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    rows = [_json_row(line) for line in lines if line.strip()]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def _json_row(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    return row if isinstance(row, dict) else {"_corrupt_record": line}


# --- Kafka ----------------------------------------------------------------------------------------

Record = Any
"""A ``confluent_kafka.Message``, or a mapping: ``topic``, ``key``, ``value``, ``headers``, ``received_ms``."""


def fired_of_kafka(records: Iterable[Record]) -> list[dict[str, Any]]:
    """The fired rows and dead letters in Kafka topics, from the headers ``wheel-*``; with ``table``, ``at_least_once``.

    ``delivered_at_ms`` is a record's own timestamp where the broker has given it one, or its ``received_ms``.
    """
    return [_fired(topic, key, value, headers, at) for topic, key, value, headers, at in _records(records)]


def rejects_of_kafka(records: Iterable[Record]) -> list[dict[str, Any]]:
    """The rows of a rejects topic, from the headers ``wheel-*``."""
    return [_rejected(headers, key, value) for _, key, value, headers, _ in _records(records)]


def _records(
    records: Iterable[Record],
) -> Iterator[tuple[str, bytes | None, bytes | None, Headers, int | None]]:
    for record in records:
        if not isinstance(record, Mapping):
            kind, at_ms = record.timestamp()
            yield (
                record.topic(),
                record.key(),
                record.value(),
                _pairs(record.headers()),
                at_ms if kind else None,
            )
        else:
            payload = record.get("key"), record.get("value"), _pairs(record.get("headers"))
            yield record["topic"], *payload, record.get("received_ms")


def _pairs(headers: Any) -> Headers:
    return tuple(
        (each["key"], each["value"]) if isinstance(each, Mapping) else each for each in headers or ()
    )


def _fired(
    topic: str, key: bytes | None, value: bytes | None, headers: Headers, at_ms: int | None
) -> dict[str, Any]:
    told = _told(headers)
    return {
        "schedule_id": told.get("id"),
        "seq": told.get("seq"),
        "fire_id": told.get("fire-id"),
        "destination": topic,
        "table": topic,
        "key": key,
        "value": value,
        "headers": [pair for pair in headers if not pair[0].startswith("wheel-")],
        "deliver_at": told.get("deliver-at"),
        "fired_at": told.get("fired-at"),
        "scheduled_at": told.get("scheduled-at"),
        "level_error_ms": told.get("level-error-ms"),
        "occurrence": told.get("occurrence"),
        "missed_before": told.get("missed-before"),
        "attempt": told.get("attempt"),
        "origin": told.get("target"),
        "dead_at": told.get("dead-at"),
        "delivered_at_ms": at_ms,
        "at_least_once": True,
    }


def _rejected(headers: Headers, key: bytes | None, value: bytes | None) -> dict[str, Any]:
    told = _told(headers)
    return {
        "schedule_id": told.get("id"),
        "error_code": told.get("error-code"),
        "error_message": told.get("error-message"),
        "destination": told.get("destination"),
        "key": key,
        "value": value,
        "at_least_once": True,
    }


def _told(headers: Headers) -> dict[str, str]:
    """The scheduler's own headers; the last of a name counts."""
    return {
        name.removeprefix("wheel-"): value.decode()
        for name, value in headers
        if name.startswith("wheel-") and value is not None
    }
