"""The log of a table in its public format: written here, read here, and read the same by delta-rs. No JVM."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import types as T

from tests.hostile import PATH_NAME
from wheel_udf.common.errors import StoreError
from wheel_udf.tables import delta_log, log_checkpoints
from wheel_udf.tables.delta_files import File
from wheel_udf.tables.delta_transaction import ConflictError, Transaction

COLUMNS = T.StructType(
    [
        T.StructField("level", T.IntegerType(), nullable=False),
        T.StructField("slot", T.LongType(), nullable=False),
        T.StructField("value", T.StringType()),
    ]
)
NO_SPARK: Any = None


def begin(place: str) -> Transaction:
    return Transaction(place, keeps_log=True)


def snapshot(place: str) -> Any:
    return delta_log.snapshot(place)


def file(name: str, slot: int = 7) -> dict[str, Any]:
    return {
        "path": f"{name}.parquet",
        "partitionValues": {"level": "2", "slot": str(slot)},
        "size": 100,
        "modificationTime": 5,
        "dataChange": True,
        "stats": json.dumps({"numRecords": 3, "minValues": {}, "maxValues": {}, "nullCount": {}}),
    }


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A table without rows."""
    place = str(tmp_path / "a table")
    begin(place).commit_creation(COLUMNS, ("level", "slot"), {"made.by": "a test"})
    return place


def append(place: str, batch_id: int, *files: dict[str, Any], app_id: str = "job") -> int:
    return begin(place).commit_append(
        [*files], app_id=app_id, batch_id=batch_id, marks={"cursor": 10 * batch_id}
    )


def log_of(place: str) -> Path:
    return Path(place, "_delta_log")


def paths(place: str) -> list[str]:
    return sorted(action["path"] for action in delta_log.files_of(place)[1])


def test_a_table_is_what_its_commits_say(place: str) -> None:
    append(place, 3, file("a"), file("b", 8))
    append(place, 4, file("c"))

    state = snapshot(place)
    assert (state.version, state.transactions()) == (2, {"job": 4, "cursor": 40})
    assert state.columns() == COLUMNS.jsonValue()["fields"]
    assert (state.partition_columns(), state.properties()) == (("level", "slot"), {"made.by": "a test"})
    assert state.beyond_plain() is None
    assert delta_log.snapshot_at(place, 1).transactions() == {"job": 3, "cursor": 30}
    assert paths(place) == ["a.parquet", "b.parquet", "c.parquet"]
    ((number, actions),) = delta_log.commits_after(place, 1)
    assert number == 2
    assert {action["path"] for action in actions if "path" in action} == {"c.parquet"}
    assert delta_log.commits_after(place, 2) == []


def test_the_name_of_the_folder_makes_no_difference(tmp_path: Path) -> None:
    place = str(tmp_path / PATH_NAME)
    begin(place).commit_creation(COLUMNS, ("level", "slot"), {})
    append(place, 3, file("a"))

    assert (snapshot(place).version, paths(place)) == (1, ["a.parquet"])


def test_delta_rs_reads_the_same(place: str) -> None:
    append(place, 3, file("a"), file("b", 8))
    begin(place).commit_deletion([("a.parquet", File((2, 7), 3, 100))], app_id="drop")
    begin(place).commit_rewrite([("b.parquet", File((2, 8), 3, 100))], [file("c", 8)])

    table = DeltaTable(Path(place).as_uri())
    assert table.version() == 3
    assert table.metadata().id == snapshot(place).table_id
    assert table.metadata().configuration == {"made.by": "a test"}
    assert {name: table.transaction_version(name) for name in ("job", "cursor", "drop")} == {
        "job": 3,
        "cursor": 30,
        "drop": 2,
    }
    assert [Path(uri).name for uri in table.file_uris()] == ["c.parquet"]
    assert [commit["operation"] for commit in table.history()] == [
        "OPTIMIZE",
        "DELETE",
        "STREAMING UPDATE",
        "CREATE TABLE",
    ]


def test_of_two_commits_of_one_version_the_second_adds_nothing(place: str) -> None:
    first, second = begin(place), begin(place)
    first.commit_append([file("a")], app_id="one", batch_id=0)

    with pytest.raises(ConflictError, match="version 1 was committed by another writer"):
        second.commit_append([file("b")], app_id="two", batch_id=0)
    assert paths(place) == ["a.parquet"]
    assert [name.name for name in log_of(place).iterdir() if not name.name.startswith("0")] == [], (
        "no draft is left"
    )


def test_a_table_that_two_create_is_created_once(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    first, second = begin(place), begin(place)
    first.commit_creation(COLUMNS, (), {})

    with pytest.raises(ConflictError):
        second.commit_creation(COLUMNS, ("level",), {})
    assert snapshot(place).partition_columns() == ()


@pytest.mark.parametrize("looked_before", [False, True], ids=["a new reader", "one that has looked before"])
def test_a_log_is_read_from_its_checkpoint_on_where_the_commits_before_are_gone(
    place: str, *, looked_before: bool
) -> None:
    append(place, 3, file("a"), app_id="early")
    if looked_before:
        assert snapshot(place).version == 1
    append(place, 4, file("b"))
    log_checkpoints.write_checkpoint(place, keeps_log=True)
    append(place, 5, file("c"))
    for version in range(3):
        (log_of(place) / f"{version:020}.json").unlink()

    state = snapshot(place)
    assert (state.version, state.transactions()) == (3, {"early": 3, "job": 5, "cursor": 50})
    assert state.properties() == {"made.by": "a test"}
    assert snapshot(place) == state
    assert paths(place) == ["a.parquet", "b.parquet", "c.parquet"]
    with pytest.raises(StoreError, match="no longer has these commits"):
        delta_log.commits_after(place, 0)
    with pytest.raises(StoreError, match="does not have this version"):
        delta_log.snapshot_at(place, 1)


def test_a_checkpoint_in_parts_counts_once_all_are_there(place: str) -> None:
    append(place, 3, file("a"))
    log_checkpoints.write_checkpoint(place, keeps_log=True)
    whole = log_of(place) / f"{1:020}.checkpoint.parquet"
    saved = pq.read_table(whole)
    names = [f"{1:020}.checkpoint.{part:010}.{2:010}.parquet" for part in (1, 2)]
    pq.write_table(saved.slice(0, 2), log_of(place) / names[0])
    pq.write_table(saved.slice(2), log_of(place) / names[1])
    whole.unlink()
    append(place, 4, file("b"))
    for version in range(2):
        (log_of(place) / f"{version:020}.json").unlink()
    assert snapshot(place).transactions() == {"job": 4, "cursor": 40}
    assert paths(place) == ["a.parquet", "b.parquet"]

    (log_of(place) / names[1]).unlink()
    place = shutil.copytree(place, f"{place} as a new reader finds it")
    with pytest.raises(StoreError, match="has no beginning: neither its first commit nor a whole checkpoint"):
        snapshot(place)


@pytest.mark.parametrize("content", [b"", b"PAR1 and then nothing", b"\x00" * 100])
def test_a_damaged_checkpoint_is_passed_over(place: str, content: bytes) -> None:
    append(place, 3, file("a"))
    log_checkpoints.write_checkpoint(place, keeps_log=True)
    append(place, 4, file("b"))
    (log_of(place) / f"{1:020}.checkpoint.parquet").write_bytes(content)

    assert snapshot(place).transactions() == {"job": 4, "cursor": 40}
    assert paths(place) == ["a.parquet", "b.parquet"]


def test_a_torn_commit_is_named(place: str) -> None:
    append(place, 3, file("a"))
    name = log_of(place) / f"{1:020}.json"
    name.write_bytes(name.read_bytes()[:200])

    with pytest.raises(StoreError, match=f"a commit of the table is damaged: .*{1:020}.json; hint: restore"):
        snapshot(place)


def test_a_table_that_forgets_old_transactions_keeps_those_of_today_in_a_checkpoint(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    begin(place).commit_creation(COLUMNS, (), {"delta.setTransactionRetentionDuration": "interval 7 days"})
    append(place, 9)
    log_checkpoints.write_checkpoint(place, keeps_log=True)
    saved = pq.read_table(log_of(place) / f"{1:020}.checkpoint.parquet")["txn"].drop_null().to_pylist()

    assert {each["appId"] for each in saved} == {"job", "cursor"}
    # Delta's own writer drops those without a time.
    assert all(each["lastUpdated"] > 1_700_000_000_000 for each in saved)


def test_a_checkpoint_of_the_second_kind_is_read(place: str) -> None:
    append(place, 3, file("a"))
    lines = [
        json.loads(line)
        for n in (0, 1)
        for line in (log_of(place) / f"{n:020}.json").read_text().splitlines()
    ]
    saved = [line for line in lines if "commitInfo" not in line and "add" not in line]
    name = f"{1:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    (log_of(place) / name).write_text("\n".join(map(json.dumps, saved)))
    for version in range(2):
        (log_of(place) / f"{version:020}.json").unlink()

    assert snapshot(place).transactions() == {"job": 3, "cursor": 30}


def test_a_table_that_was_created_anew_is_another_one(place: str, tmp_path: Path) -> None:
    append(place, 3, file("a"))
    old = snapshot(place).table_id
    Path(place).rename(tmp_path / "old")
    assert snapshot(place).version == -1
    begin(place).commit_creation(COLUMNS, (), {})
    append(place, 9)

    assert snapshot(place).table_id != old
    assert snapshot(place).transactions() == {"job": 9, "cursor": 90}


def test_a_checkpoint_without_a_column_of_transactions_has_none(place: str) -> None:
    log_checkpoints.write_checkpoint(place, keeps_log=True)
    whole = log_of(place) / f"{0:020}.checkpoint.parquet"
    pq.write_table(pq.read_table(whole).drop_columns(["txn"]), whole)
    place = shutil.copytree(place, f"{place} as a new reader finds it")

    assert snapshot(place).transactions() == {}
    assert isinstance(pq.read_table(whole), pa.Table)


PLAIN = {"minReaderVersion": 1, "minWriterVersion": 2}


def features(*names: str) -> dict[str, Any]:
    return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": [*names]}


@pytest.mark.parametrize(
    ("protocol", "properties", "reason"),
    [
        ({"minReaderVersion": 1, "minWriterVersion": 6}, {}, None),
        (features("appendOnly", "invariants", "deletionVectors", "changeDataFeed"), {}, None),
        (features("columnMapping", "timestampNtz"), {"delta.columnMapping.mode": "none"}, None),
        (
            features("columnMapping"),
            {"delta.columnMapping.mode": "id"},
            "the property delta.columnMapping.mode",
        ),
        (PLAIN, {"delta.constraints.sane": "id > 0"}, "the property delta.constraints.sane"),
        (
            PLAIN,
            {"delta.autoOptimize.optimizeWrite": "true"},
            "the property delta.autoOptimize.optimizeWrite",
        ),
        (PLAIN, {"delta.autoOptimize.optimizeWrite": "false"}, None),
        *(
            (features("appendOnly", name), {}, f"the table features {name}")
            for name in (
                "allowColumnDefaults",
                "catalogManaged",
                "checkpointProtection",
                "clustering",
                "coordinatedCommits-preview",
                "domainMetadata",
                "icebergCompatV2",
                "inCommitTimestamp",
                "rowTracking",
                "typeWidening",
                "v2Checkpoint",
                "variantType",
                "a feature of the future",
            )
        ),
    ],
)
def test_what_an_append_without_delta_would_not_honour_is_found_in_protocol_and_properties(
    place: str, protocol: dict[str, Any], properties: dict[str, str], reason: str | None
) -> None:
    metadata = {**snapshot(place).metadata, "configuration": properties}
    delta_log.commit(place, 1, [("protocol", protocol), ("metaData", metadata)])

    assert snapshot(place).beyond_plain() == reason


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ({"delta.generationExpression": "level + 1"}, "a value or a rule of the column value"),
        ({"delta.identity.start": 1}, "a value or a rule of the column value"),
        ({"CURRENT_DEFAULT": "'x'"}, "a value or a rule of the column value"),
        ({"delta.invariants": "{}"}, "a value or a rule of the column value"),
        ({"comment": "its value"}, None),
    ],
)
def test_what_an_append_without_delta_would_not_honour_is_found_in_the_columns(
    place: str, column: dict[str, Any], reason: str | None
) -> None:
    fields = COLUMNS.jsonValue()["fields"]
    fields[2]["metadata"] = column
    changed = {**snapshot(place).metadata, "schemaString": json.dumps({"type": "struct", "fields": fields})}
    delta_log.commit(place, 1, [("protocol", PLAIN), ("metaData", changed)])

    assert snapshot(place).beyond_plain() == reason


def test_partitions_by_a_time_are_left_to_delta(place: str) -> None:
    fields = COLUMNS.jsonValue()["fields"]
    fields[1]["type"] = "timestamp"
    changed = {**snapshot(place).metadata, "schemaString": json.dumps({"type": "struct", "fields": fields})}
    delta_log.commit(place, 1, [("metaData", changed)])

    assert snapshot(place).beyond_plain() == "partitions of the type timestamp"
