"""A canary for each private API: it exercises the API itself, so that an upgrade of Spark or Delta says what broke before
a job does.

A failure names the entry of :mod:`wheel_udf.spark.private_api`: the version it was read in, what stops working, the
way taken instead.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.errors.exceptions import base
from pyspark.sql import SparkSession, functions as F, types as T

from tests.unit.checkpoint.damaged import flip
from wheel_udf.checkpoint.inspection import Inspection
from wheel_udf.checkpoint.source_logs import source_log
from wheel_udf.checkpoint.spark_logs import batch_at, committed_offsets, input_moved, planned_batch
from wheel_udf.checkpoint.state_files import StateDamage
from wheel_udf.spark import arrow_groups, jars, private_api as api, session
from wheel_udf.spark.failures import explain, quiet_sql
from wheel_udf.spark.hadoop_files import hadoop_folder
from wheel_udf.spark.jvm import (
    has_class,
    java_class,
    java_context,
    java_gateway,
    java_session,
    scala_map,
    scala_none,
    scala_seq,
    scala_some,
)
from wheel_udf.spark.private_api import PRIVATE_APIS, PrivateApi
from wheel_udf.stream.sharding import shard_keys
from wheel_udf.stream.worker import batch_of_task
from wheel_udf.tables import delta_log, log_checkpoints
from wheel_udf.tables.delta_files import File, FileList, rows_of_files
from wheel_udf.tables.delta_transaction import begin_transaction

Canary = Callable[[SparkSession, str], None]
CANARIES: dict[str, Canary] = {}
COLUMNS = T.StructType(
    [
        T.StructField("level", T.IntegerType(), nullable=False),
        T.StructField("slot", T.LongType(), nullable=False),
        T.StructField("value", T.StringType()),
    ]
)


def canary(entry: PrivateApi) -> Callable[[Canary], Canary]:
    def add(test: Canary) -> Canary:
        CANARIES[entry.name] = test
        return test

    return add


@pytest.fixture(scope="module")
def table(_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table as the slot store makes it: created empty, then one append of two rows in two partitions."""
    place = str(tmp_path_factory.mktemp("canaries") / "table")
    begin_transaction(_session, place).commit_creation(COLUMNS, ("level", "slot"), {"made.by": "a canary"})
    append(_session, place, 1)
    return place


def append(spark: SparkSession, place: str, batch_id: int) -> int:
    transaction = begin_transaction(spark, place)
    transaction.depend_on(["canary", "cursor"])
    rows = spark.createDataFrame([(0, 1, "a"), (2, 5, "b")], COLUMNS).coalesce(1)
    files = transaction.write_files(rows, {"compression": "zstd"})
    return transaction.commit_append(files, app_id="canary", batch_id=batch_id, marks={"cursor": 7})


@pytest.mark.parametrize("entry", PRIVATE_APIS, ids=lambda entry: f"{entry.used_in}: {entry.name}")
def test_the_private_api_is_there(spark: SparkSession, table: str, entry: PrivateApi) -> None:
    try:
        CANARIES[entry.name](spark, table)
    except Exception as fault:
        message = (
            f"{entry.name} (read in {entry.read_in}; installed: {api.installed_versions()}) has changed.\n"
            f"Used in wheel_udf/{entry.used_in}.py: {entry.why}.\n"
            f"Without it: {entry.risk}.\n"
            f"Instead: {entry.instead or 'there is no public way; follow the new version in that module'}."
        )
        raise AssertionError(message) from fault


def test_each_private_api_has_a_canary() -> None:
    assert CANARIES.keys() == {entry.name for entry in PRIVATE_APIS}


@canary(api.GATEWAY)
def the_gateway(spark: SparkSession, _: str) -> None:
    assert java_gateway(spark) is java_gateway(spark), "classes are kept by this object"
    assert java_class(spark, "java.lang.Math").max(3, 4) == 4
    assert has_class(spark, "java.util.Properties")
    assert not has_class(spark, "java.util.NoSuchProperties")
    assert java_context(spark).hadoopConfiguration().get("fs.defaultFS") == "file:///"
    assert java_session(spark).sessionState().conf() is not None


@canary(api.SCALA_VALUES)
def scala_values(spark: SparkSession, _: str) -> None:
    assert scala_none(spark).isEmpty()
    assert scala_some(spark, "a").get() == "a"
    assert scala_seq(spark, ["a", "b"]).appended("c").mkString("-") == "a-b-c"
    assert scala_map(spark, {"a": "b"}).get("a").get() == "b"


@canary(api.CHECKPOINT_FILES)
def checkpoint_files(spark: SparkSession, table: str) -> None:
    folder = hadoop_folder(f"file://{table}-checkpoint")
    assert folder.read("wheel.json") is None
    for content in (b"one", b"two"):
        folder.replace("wheel.json", content)
    assert (folder.read("wheel.json"), folder.names()) == (b"two", ["wheel.json"])


@canary(api.PLAIN_RENAMES)
def plain_renames(spark: SparkSession, table: str) -> None:
    spark.conf.unset("spark.sql.streaming.checkpointFileManagerClass")
    session.use_plain_renames(spark, f"file://{table}")
    chosen = spark.conf.get("spark.sql.streaming.checkpointFileManagerClass", None)
    assert chosen == session._PLAIN_RENAMES, "the class is there, and chosen"


@canary(api.CHECKPOINT_FORMAT)
def checkpoint_logs(spark: SparkSession, table: str) -> None:
    checkpoint = f"{table}-query"
    Path(f"{table}-input").mkdir()
    Path(f"{table}-input", "a.json").write_text('{"id": 1}\n', encoding="utf-8")
    frame = spark.readStream.schema("id long").json(f"{table}-input")
    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    assert committed_offsets(checkpoint) == [{"logOffset": 0}]
    assert planned_batch(checkpoint) is None
    assert input_moved(checkpoint, 0, lambda _: False)
    assert batch_at(checkpoint, 2**62) is not None
    assert "id" in json.loads(Path(checkpoint, "metadata").read_text(encoding="utf-8"))


@canary(api.SOURCE_LOGS)
def _source_logs(spark: SparkSession, table: str) -> None:
    folder = Path(table).parent / "files"
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "1.txt").write_text("a line")
    lines = spark.readStream.text(str(folder / "in")).writeStream.format("noop")
    query = lines.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    ((name, log),) = source_log(str(folder / "checkpoint"), 0)
    version, entry = log.decode().splitlines()
    assert (name, version, json.loads(entry)["batchId"]) == ("0", "v1", 0)
    assert json.loads(entry)["path"].endswith("/in/1.txt")
    assert committed_offsets(str(folder / "checkpoint")) == [{"logOffset": 0}]


@canary(api.STATE_FILES)
def state_files(spark: SparkSession, table: str) -> None:
    folder = Path(table).parent / "state of a query"
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "1.txt").write_text("a line", encoding="utf-8")
    spark.conf.set("spark.sql.shuffle.partitions", 1)  # one folder of state, which has the line
    lines = spark.readStream.text(str(folder / "in")).dropDuplicates(["value"]).writeStream.format("noop")
    query = lines.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    found = Inspection(str(folder / "checkpoint"))
    newest = max(found.commits)
    ((place, listed),) = found.state.partitions.items()
    assert (place, found.state.ids[newest]) == ("state/0/0", {"0": [[listed[0].writer]]})
    assert (listed[0].version, listed[0].is_changes) == (newest + 1, True)
    assert (found.state.unchecked, found.damage, found.irreplaceable) == (0, (), ())
    for hidden in (folder / "checkpoint" / place).glob(".*.crc"):
        hidden.unlink()  # Hadoop's: those of Spark are left
    flip(folder / "checkpoint" / listed[0].name)
    damage = Inspection(str(folder / "checkpoint")).state.damage(newest + 1)
    assert damage == StateDamage(listed[0].name, "it does not match its checksum", newest + 1)


@canary(api.ERROR_TEXTS)
def error_texts(spark: SparkSession, _: str) -> None:
    failing = spark.range(1).rdd.map(_fail)
    with pytest.raises(Exception, match="the table is gone") as failure:
        failing.collect()
    assert explain(failure.value).sentence == "the table is gone: /somewhere"
    assert "SQLQueryContextLogger" in inspect.getsource(base), "the logger that quiet_sql turns off"
    with pytest.raises(Exception, match="nosuch") as failure, quiet_sql():
        spark.range(1).select("nosuch")
    assert re.match(r"A column.*`nosuch` cannot be resolved", explain(failure.value).sentence)


@canary(api.LOADED_STATES)
def loaded_states(spark: SparkSession, _: str) -> None:
    session.close_states(spark)
    states = java_class(spark, "org.apache.spark.sql.execution.streaming.state.StateStore")
    assert not states.isMaintenanceRunning()


def _fail(_: Any) -> str:
    from wheel_udf.common.errors import SinkError

    raise SinkError("the table is gone: /somewhere")


class _Columns:
    """Says of which class the columns are that it gets."""

    def __setstate__(self, settings: object) -> None:
        arrow_groups.take_arrow()

    def __getstate__(self) -> object:
        return {"any": "thing"}

    def __call__(self, _: tuple[int], frames: Iterator[pd.DataFrame], group: Any) -> Iterator[pd.DataFrame]:
        classes = {name: type(column.array).__name__ for frame in frames for name, column in frame.items()}
        group.update((len(classes),))
        yield pd.DataFrame({"found": [json.dumps(classes, sort_keys=True)]})


@canary(api.GROUPS_AS_ARROW)
def groups_as_arrow(spark: SparkSession, table: str) -> None:
    rows = spark.readStream.format("delta").load(table)
    classes = rows.groupBy("level").applyInPandasWithState(
        _Columns(), "found string", "columns int", "append", "NoTimeout"
    )
    query = classes.writeStream.format("memory").queryName("classes").trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    found = json.loads(spark.table("classes").distinct().collect()[0].found)
    assert found == {"level": "NumpyExtensionArray", "slot": "NumpyExtensionArray", "value": "ArrowColumn"}


class _Batch:
    """Yields the batch and the query of its task."""

    def __call__(self, _: tuple[int], frames: Iterator[pd.DataFrame], group: Any) -> Iterator[pd.DataFrame]:
        group.update((sum(map(len, frames)),))
        batch_id, query_id = batch_of_task()
        yield pd.DataFrame({"batch": [batch_id], "query": [query_id]})


@canary(api.BATCH_PROPERTIES)
def batch_properties(spark: SparkSession, table: str) -> None:
    rows = spark.readStream.format("delta").load(table)
    found = rows.groupBy("level").applyInPandasWithState(
        _Batch(), "batch long, query string", "n int", "append", "NoTimeout"
    )
    query = found.writeStream.format("memory").queryName("batches").trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert {tuple(row) for row in spark.table("batches").collect()} == {(0, query.id)}


@canary(api.SHARD_PLACEMENT)
def shard_placement(spark: SparkSession, _: str) -> None:
    keys = spark.createDataFrame([(key,) for key in shard_keys(6)], "key int")
    placed = keys.repartition(3, "key").withColumn("place", F.spark_partition_id())
    assert dict(placed.collect()) == {key: number % 3 for number, key in enumerate(shard_keys(6))}


@canary(api.IVY)
def ivy(spark: SparkSession, _: str) -> None:
    assert list((jars.pyspark_folder() / "jars").glob("ivy-*.jar"))


@canary(api.DELTA_SNAPSHOT)
def delta_snapshot(spark: SparkSession, table: str) -> None:
    now = delta_log.log_snapshot(spark, table)
    assert now.version >= 1
    assert now.properties()["made.by"] == "a canary"
    assert [column["name"] for column in now.columns()] == ["level", "slot", "value"]
    assert now.partition_columns() == ("level", "slot")
    assert now.transactions().keys() >= {"canary", "cursor"}
    assert now._computed_transactions().keys() >= {"canary", "cursor"}
    assert {file["partitionValues"]["slot"] for file in now.all_files()} == {"1", "5"}
    first = delta_log.snapshot_at(spark, table, 0)
    assert (first.version, first.transactions()) == (0, {})


@canary(api.DELTA_CHECKSUM)
def delta_checksum(spark: SparkSession, table: str) -> None:
    now = delta_log.log_snapshot(spark, table)
    known, files = now.known_transactions(), now.listed_files()
    assert known is not None
    assert known["cursor"] == 7
    assert files is not None
    assert json.loads(files[0]["stats"])["numRecords"] == 1


@canary(api.DELTA_CHANGES)
def delta_changes(spark: SparkSession, table: str) -> None:
    (version, actions), *_ = delta_log.commits_after(spark, table, 0)
    assert version == 1
    marks = {action["appId"]: action["version"] for action in actions if "appId" in action}
    assert marks == {"canary": 1, "cursor": 7}
    assert sum("modificationTime" in action and action["dataChange"] for action in actions) == 2


@canary(api.DELTA_ROWS)
def delta_rows(spark: SparkSession, table: str) -> None:
    files = FileList(spark, table).current()
    assert sorted(map(tuple, rows_of_files(spark, table, files).collect())) == [(0, 1, "a"), (2, 5, "b")]
    one = {path: file for path, file in files.items() if file.place == (2, 5)}
    assert [tuple(row) for row in rows_of_files(spark, table, one).collect()] == [(2, 5, "b")]
    assert rows_of_files(spark, table, {}).collect() == []


@canary(api.DELTA_APPEND)
def delta_append(spark: SparkSession, table: str) -> None:
    version = delta_log.log_snapshot(spark, table).version
    transaction = begin_transaction(spark, table)
    assert transaction.before.version == version
    transaction.depend_on(["canary"])
    late = begin_transaction(spark, table)
    late.depend_on(["canary"])
    transaction.append_rows(spark.createDataFrame([], COLUMNS), app_id="canary", batch_id=100)
    assert delta_log.log_snapshot(spark, table).transactions()["canary"] == 100
    with pytest.raises(Exception, match="ConcurrentTransactionException"):
        late.append_rows(spark.createDataFrame([], COLUMNS), app_id="canary", batch_id=100)


@canary(api.DELTA_LOG_CHECKPOINTS)
def delta_log_checkpoints(spark: SparkSession, table: str) -> None:
    place = f"{table}-rarely"
    begin_transaction(spark, place).commit_creation(COLUMNS, (), {"delta.checkpointInterval": "1000"})
    assert append(spark, place, 1) == 1
    log_checkpoints._write(spark, delta_log.delta_log(spark, place), keeps_log=False)
    assert [file.name for file in Path(place, "_delta_log").glob("[0-9]*.checkpoint.parquet")] == [
        f"{1:020}.checkpoint.parquet"
    ]


@canary(api.DELTA_OFFSETS)
def delta_offsets(spark: SparkSession, table: str) -> None:
    checkpoint = f"{table}-reader"
    writer = spark.readStream.format("delta").load(table).writeStream.format("noop")
    assert (
        writer.option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
        .awaitTermination(120)
    )
    now, offsets = delta_log.log_snapshot(spark, table), committed_offsets(checkpoint)
    assert delta_log.tables_read(offsets or ()) == {now.table_id}
    assert offsets == [delta_log.position_after(now.table_id, now.version)]


@canary(api.DELTA_COMMITS)
def delta_commits(spark: SparkSession, table: str) -> None:
    files = FileList(spark, table)
    (path, file), *_ = sorted(files.current().items())
    rewrite = begin_transaction(spark, table)
    rows = spark.createDataFrame([(*file.place, "a")], COLUMNS).coalesce(1)
    rewrite.commit_rewrite([(path, file)], rewrite.write_files(rows, {"compression": "zstd"}))
    (path, file) = next((path, now) for path, now in files.current().items() if now.place == file.place)
    assert isinstance(file, File)
    begin_transaction(spark, table).commit_deletion([(path, file)], app_id="drop")
    assert file.place not in {now.place for now in files.current().values()}
    assert delta_log.log_snapshot(spark, table).known_transactions() is not None, "there is a checksum"
    assert commit_of(table)["operationMetrics"]["numDeletedRows"] == "1"
    append(spark, table, 200)  # the other canaries find two partitions


def commit_of(table: str) -> dict[str, Any]:
    newest = max(Path(table, "_delta_log").glob("*.json"))
    found: dict[str, Any] = json.loads(newest.read_text(encoding="utf-8").splitlines()[0])["commitInfo"]
    return found
