"""Reads Delta tables through their log: what is at a path, what a version of a table holds, which commits came later.

The format of the log is public (PROTOCOL.md of Delta). Every batch calls these functions; no Spark job runs. A first
look at a table reads its newest checkpoint and the commits since. A later one reads the new commits alone::

    0100.checkpoint.parquet   protocol, metadata, transactions, files of version 100    read once
    0101.json, 0102.json      the actions of these versions                             each read once
    0103.json                 not there: version 102 is the newest

The last commit that is known is read again by each look. If it is gone or another one, the log was cleaned up or the
table was created anew, and is read like an unknown one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from delta.tables import DeltaTable
from pyspark.sql import SparkSession, functions as F

from wheel_udf.common.errors import StoreError
from wheel_udf.spark.files import open_folder
from wheel_udf.spark.folder import Folder
from wheel_udf.spark.jvm import hadoop_configuration, java_class
from wheel_udf.tables.table_state import TableState

_LOG: Final = "_delta_log"
_LEFTOVERS: Final = re.compile(r"_delta_log|(?:\w\w/)?(?:part-.*\.parquet|\..*)")
_CHECKPOINT: Final = re.compile(
    r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10})|\.[0-9a-f-]{36})?\.(parquet|json)"
)

_VERSION: Final = re.compile(r"\d{20}\.(?:json|checkpoint)")

Action = dict[str, Any]
"""An action of the log: its kind, and its fields."""


def exists(spark: SparkSession, path: str) -> bool:
    """Whether there is a file or folder."""
    place, system = _hadoop(spark, path)
    return bool(system.exists(place))


def has_log(spark: SparkSession, place: str) -> bool:
    """Whether there is a Delta log, even if it is an empty one."""
    return exists(spark, f"{place}/{_LOG}")


def is_foreign(spark: SparkSession, place: str, *, or_leftovers: bool) -> bool:
    """Whether something other than a Delta table is at a place.

    Args:
        spark: The session.
        place: Path or URI.
        or_leftovers: Whether Parquet files alone count: a first write that was killed before its commit leaves some.
    """
    path, system = _hadoop(spark, place)
    if not system.exists(path):
        return False
    if system.getFileStatus(path).isFile():
        return True
    names = list(_names(system, path))
    return bool(names) and (or_leftovers or not all(_LEFTOVERS.fullmatch(name) for name in names))


def _names(system: Any, folder: Any) -> Iterator[str]:
    """The names in a folder, and in its folders of two characters, which column mapping may have made."""
    for status in system.listStatus(folder):
        name = status.getPath().getName()
        if status.isDirectory() and len(name) == 2:
            yield from (f"{name}/{inner}" for inner in _names(system, status.getPath()))
        else:
            yield name


@dataclass(frozen=True, slots=True)
class _Known:
    """A state, and the content of the commit that made it."""

    state: TableState
    commit: bytes


_known: Final[dict[str, _Known]] = {}
"""By place, the newest state that was read. Reading one twice does no harm: no lock is held meanwhile."""


def snapshot(place: str) -> TableState:
    """The newest version of a table."""
    log = _folder(place)
    known = _known.get(place)
    if known is None or (log.read(_name_of(known.state.version)) or b"") != known.commit:
        known = _read(log)
    else:
        known = _replayed(log, known, None)
    if known is None:
        _known.pop(place, None)
        return TableState()
    _known[place] = known
    return known.state


def snapshot_at(place: str, version: int) -> TableState:
    """A table as it was at a version.

    Raises:
        StoreError: The log does not have it.
    """
    found = _read(_folder(place), version)
    if found is None or found.state.version != version:
        raise StoreError("the table's log does not have this version", field=place, value=version)
    return found.state


def version_at(spark: SparkSession, place: str, instant_ms: int) -> int | None:
    """The newest version of a table that had been committed by an instant (UTC epoch ms); None before the first one.

    Raises:
        StoreError: The log does not go back that far.
    """
    commits = (
        DeltaTable.forPath(spark, place).history().select("version", F.unix_millis("timestamp").alias("at"))
    )
    found = commits.agg(
        F.max(F.when(F.col("at") <= instant_ms, F.col("version"))), F.min("version")
    ).collect()[0]
    if found[0] is None and found[1]:
        raise StoreError(
            "the table's log does not go back so far",
            field=place,
            value=f"version {found[1]} is the oldest on record",
            rule="delta.logRetentionDuration says how long commits are kept",
        )
    version: int | None = found[0]
    return version


def tables_read(offsets: Iterable[Any]) -> set[str]:
    """Ids of the Delta tables that a query reads, from the offsets of its sources in its checkpoint."""
    return {
        str(offset["reservoirId"])
        for offset in offsets
        if isinstance(offset, Mapping) and "reservoirId" in offset
    }


def position_after(table_id: str, version: int) -> dict[str, Any]:
    """The offset of a stream that has read a table up to this version, as Delta writes it into a checkpoint."""
    return {
        "sourceVersion": 1,
        "reservoirId": table_id,
        "reservoirVersion": version + 1,
        "index": -1,
        "isStartingVersion": False,
    }


def commits_after(place: str, version: int) -> list[tuple[int, list[Action]]]:
    """The commits after a version, by rising version: the fields of all their actions.

    Raises:
        StoreError: The log no longer has them.
    """
    log = _folder(place)
    found = [
        (number, [fields for _, fields in _actions(content, log.name(_name_of(number)))])
        for number, content in _commits(log, version)
    ]
    if not found and log.read(_name_of(max(version, 0))) is None:
        raise StoreError("the table's log no longer has these commits", field=place, value=version + 1)
    return found


def files_of(place: str, to: int | None = None) -> tuple[int, list[Action]]:
    """The newest version of a table up to one, and the fields of the ``add`` action of each of its files."""
    log = _folder(place)
    version, rows = _checkpoint(log, ("add",), to)
    files = {str(action["path"]): action for kind, action in rows if kind == "add"}
    for number, content in _commits(log, version, to):
        version = number
        for kind, action in _actions(content, log.name(_name_of(number))):
            if kind == "add":
                files[str(action["path"])] = action
            elif kind == "remove":
                files.pop(str(action["path"]), None)
    return version, list(files.values())


def commit(place: str, version: int, actions: Iterable[tuple[str, Mapping[str, Any]]]) -> bool:
    """Writes a commit as a whole. Returns False, and writes nothing, if the table has that version."""
    lines = [
        json.dumps({kind: fields}, separators=(",", ":"), ensure_ascii=False) for kind, fields in actions
    ]
    # Not flushed to the disk, as the data files are not.
    return _folder(place).create(_name_of(version), ("\n".join(lines) + "\n").encode(), flush=False)


def _folder(place: str) -> Folder:
    return open_folder(f"{place}/{_LOG}")


def _name_of(version: int) -> str:
    return f"{version:020}.json"


def _read(log: Folder, version: int | None = None) -> _Known | None:
    """A version of a table from its last checkpoint on; None if there is none."""
    start, rows = _checkpoint(log, ("protocol", "metaData", "txn"), version)
    state = _changed(TableState(start), start, rows)
    newest = log.read(_name_of(start)) if start >= 0 else None
    found = _replayed(log, _Known(state, newest or b""), version)
    if found is None and version is None and any(_VERSION.match(name) for name in log.names()):
        raise StoreError(
            "the log of the table has no beginning: neither its first commit nor a whole checkpoint",
            field=log.name(""),
            hint="restore the log from a copy",
        )
    return found


def _replayed(log: Folder, known: _Known, version: int | None) -> _Known | None:
    for number, content in _commits(log, known.state.version, version):
        actions = _actions(content, log.name(_name_of(number)))
        known = _Known(_changed(known.state, number, actions), content)
    return None if known.state.version < 0 else known


def _changed(state: TableState, version: int, actions: Iterable[tuple[str, Action]]) -> TableState:
    marks, changes = dict(state.marks), {}
    for kind, fields in actions:
        if kind == "txn":
            marks[fields["appId"]] = fields["version"]
        elif kind in {"protocol", "metaData"}:
            changes["metadata" if kind == "metaData" else kind] = fields
    return replace(state, version=version, marks=marks, **changes)


def _commits(log: Folder, after: int, to: int | None = None) -> Iterator[tuple[int, bytes]]:
    number = after + 1
    while (to is None or number <= to) and (content := log.read(_name_of(number))) is not None:
        yield number, content
        number += 1


def _actions(content: bytes, what: str = "") -> Iterator[tuple[str, Action]]:
    try:
        for line in content.splitlines():
            yield from json.loads(line).items()
    except (ValueError, AttributeError):
        hint = "restore the file from a copy; without one, the table from before this version"
        raise StoreError("a commit of the table is damaged", field=what, hint=hint) from None


def _checkpoint(
    log: Folder, kinds: Iterable[str], to: int | None = None
) -> tuple[int, Iterable[tuple[str, Action]]]:
    """The newest checkpoint that is whole, up to a version: its version, and its actions of some kinds.

    -1 and no actions if there is none.
    """
    found: dict[tuple[int, str], list[str]] = {}
    for name in log.names():
        part = _CHECKPOINT.fullmatch(name)
        if part is not None and (to is None or int(part[1]) <= to):
            found.setdefault((int(part[1]), part[2] or name), []).append(name)
    for (version, parts), names in sorted(found.items(), reverse=True):
        if not parts.isdigit() or int(parts) == len(names):
            # A damaged one is passed over: it only makes the log shorter to read.
            with suppress(pa.ArrowException, ValueError, StoreError):
                return version, [action for name in sorted(names) for action in _saved(log, name, kinds)]
    return -1, ()


def _saved(log: Folder, name: str, kinds: Iterable[str]) -> Iterator[tuple[str, Action]]:
    content = log.read(name) or b""
    if name.endswith(".json"):
        yield from ((kind, fields) for kind, fields in _actions(content) if kind in kinds)
        return
    file = pq.ParquetFile(pa.BufferReader(content))
    there = [kind for kind in kinds if kind in file.schema_arrow.names]
    table = file.read(columns=there)
    for kind in there:
        for fields in table.column(kind).drop_null().to_pylist(maps_as_pydicts="strict"):
            yield kind, fields


def _hadoop(spark: SparkSession, path: str) -> tuple[Any, Any]:
    place = java_class(spark, "org.apache.hadoop.fs.Path")(path)
    return place, place.getFileSystem(hadoop_configuration(spark))
