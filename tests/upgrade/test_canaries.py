"""A canary for each private API: it exercises the API itself, so that an upgrade of Spark or Delta says what broke before
a job does.

A failure names the entry of ``wheel_udf/spark/private_api.toml``: the version it was read in, what stops working, the
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
from wheel_udf.checkpoint.spark_logs import (
    batch_at,
    committed_offsets,
    input_moved,
    planned_batch,
    source_log,
)
from wheel_udf.checkpoint.state_files import Finding
from wheel_udf.spark import arrow_groups, jars, session
from wheel_udf.spark.failures import explain, quiet_sql
from wheel_udf.spark.hadoop_files import hadoop_folder
from wheel_udf.spark.jvm import (
    hadoop_configuration,
    has_class,
    java_class,
    java_gateway,
)
from wheel_udf.spark.private_api import installed_versions, private_apis
from wheel_udf.spark.versions import checkpoint_class, minor_version
from wheel_udf.stream.sharding import shard_keys
from wheel_udf.stream.worker import batch_of_task
from wheel_udf.tables import delta_log
from wheel_udf.tables.delta_transaction import Transaction

Canary = Callable[[SparkSession, str], None]
CANARIES: dict[str, Canary] = {}
COLUMNS = T.StructType(
    [
        T.StructField("level", T.IntegerType(), nullable=False),
        T.StructField("slot", T.LongType(), nullable=False),
        T.StructField("value", T.StringType()),
    ]
)


def canary(key: str) -> Callable[[Canary], Canary]:
    def add(test: Canary) -> Canary:
        CANARIES[key] = test
        return test

    return add


@pytest.fixture(scope="module")
def table(_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table as the slot store makes it: created empty, then one append of two rows in two partitions."""
    place = str(tmp_path_factory.mktemp("canaries") / "table")
    Transaction(place).commit_creation(COLUMNS, ("level", "slot"), {"made.by": "a canary"})
    append(_session, place, 1)
    return place


def append(spark: SparkSession, place: str, batch_id: int) -> int:
    transaction = Transaction(place)
    rows = spark.createDataFrame([(0, 1, "a"), (2, 5, "b")], COLUMNS).coalesce(1)
    files = transaction.write_files(rows, {"compression": "zstd"})
    return transaction.commit_append(files, app_id="canary", batch_id=batch_id, marks={"cursor": 7})


@pytest.mark.parametrize("key", private_apis())
def test_the_private_api_is_there(spark: SparkSession, table: str, key: str) -> None:
    try:
        CANARIES[key](spark, table)
    except Exception as fault:
        entry = private_apis()[key]
        message = (
            f"{entry['name']} (read in {entry['read_in']}; installed: {installed_versions()}) has changed.\n"
            f"Used in wheel_udf/{entry['used_in']}.py: {entry['why']}.\n"
            f"Without it: {entry['risk']}.\n"
            f"Instead: {entry.get('instead', 'there is no public way; follow the new version in that module')}."
        )
        raise AssertionError(message) from fault


def test_each_private_api_has_a_canary() -> None:
    assert CANARIES.keys() == private_apis().keys()


@canary("gateway")
def the_gateway(spark: SparkSession, _: str) -> None:
    assert java_gateway(spark) is java_gateway(spark), "classes are kept by this object"
    assert java_class(spark, "java.lang.Math").max(3, 4) == 4
    assert has_class(spark, "java.util.Properties")
    assert not has_class(spark, "java.util.NoSuchProperties")
    assert hadoop_configuration(spark).get("fs.defaultFS") == "file:///"


@canary("checkpoint_files")
def checkpoint_files(spark: SparkSession, table: str) -> None:
    folder = hadoop_folder(f"file://{table}-checkpoint")
    assert folder.read("wheel.json") is None
    for content in (b"one", b"two"):
        folder.replace("wheel.json", content)
    assert (folder.read("wheel.json"), folder.names()) == (b"two", ["wheel.json"])


@canary("plain_renames")
def plain_renames(spark: SparkSession, table: str) -> None:
    spark.conf.unset("spark.sql.streaming.checkpointFileManagerClass")
    session.fit_to_checkpoint(spark, f"file://{table}")
    chosen = spark.conf.get("spark.sql.streaming.checkpointFileManagerClass", None)
    assert chosen == checkpoint_class(session._PLAIN_RENAMES), "the class is there, and chosen"
    if minor_version() in ("4.0", "4.1"):
        return  # no files of checksums there
    assert spark.conf.get(session._CHECKSUM_FILES) == "true", "the setting is there"
    try:
        session.fit_to_checkpoint(spark, "s3a://bucket/checkpoint")
        assert spark.conf.get(session._CHECKSUM_FILES) == "false"
    finally:
        spark.conf.unset(session._CHECKSUM_FILES)


@canary("checkpoint_format")
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


@canary("source_logs")
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


@canary("state_files")
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
    if (folder / "checkpoint" / f"{listed[0].name}.crc").is_file():  # Spark 4.0 has none of its own
        for hidden in (folder / "checkpoint" / place).glob(".*.crc"):
            hidden.unlink()  # Hadoop's: those of Spark are left
    flip(folder / "checkpoint" / listed[0].name)
    damage = Inspection(str(folder / "checkpoint")).state.damage(newest + 1)
    assert damage == Finding(listed[0].name, "it does not match its checksum")


@canary("error_texts")
def error_texts(spark: SparkSession, _: str) -> None:
    failing = spark.range(1).rdd.map(_fail)
    with pytest.raises(Exception, match="the table is gone") as failure:
        failing.collect()
    assert explain(failure.value).sentence == "the table is gone: /somewhere"
    assert "SQLQueryContextLogger" in inspect.getsource(base), "the logger that quiet_sql turns off"
    with pytest.raises(Exception, match="nosuch") as failure, quiet_sql():
        spark.range(1).select("nosuch")
    assert re.match(r"A column.*`nosuch` cannot be resolved", explain(failure.value).sentence)


@canary("loaded_states")
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


@canary("groups_as_arrow")
def groups_as_arrow(spark: SparkSession, table: str) -> None:
    rows = spark.readStream.format("delta").load(table)
    classes = rows.groupBy("level").applyInPandasWithState(
        _Columns(), "found string", "columns int", "append", "NoTimeout"
    )
    query = classes.writeStream.format("memory").queryName("classes").trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    found = json.loads(spark.table("classes").distinct().collect()[0].found)
    text = "ArrowColumn" if spark.version.startswith(arrow_groups.READ_IN) else "NumpyExtensionArray"
    assert found == {"level": "NumpyExtensionArray", "slot": "NumpyExtensionArray", "value": text}


class _Batch:
    """Yields the batch and the query of its task."""

    def __call__(self, _: tuple[int], frames: Iterator[pd.DataFrame], group: Any) -> Iterator[pd.DataFrame]:
        group.update((sum(map(len, frames)),))
        batch_id, query_id = batch_of_task()
        yield pd.DataFrame({"batch": [batch_id], "query": [query_id]})


@canary("batch_properties")
def batch_properties(spark: SparkSession, table: str) -> None:
    rows = spark.readStream.format("delta").load(table)
    found = rows.groupBy("level").applyInPandasWithState(
        _Batch(), "batch long, query string", "n int", "append", "NoTimeout"
    )
    query = found.writeStream.format("memory").queryName("batches").trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert {tuple(row) for row in spark.table("batches").collect()} == {(0, query.id)}


@canary("shard_placement")
def shard_placement(spark: SparkSession, _: str) -> None:
    keys = spark.createDataFrame([(key,) for key in shard_keys(6)], "key int")
    placed = keys.repartition(3, "key").withColumn("place", F.spark_partition_id())
    assert dict(placed.collect()) == {key: number % 3 for number, key in enumerate(shard_keys(6))}


@canary("ivy")
def ivy(spark: SparkSession, _: str) -> None:
    assert list((jars.pyspark_folder() / "jars").glob("ivy-*.jar"))


@canary("delta_offsets")
def delta_offsets(spark: SparkSession, table: str) -> None:
    checkpoint = f"{table}-reader"
    writer = spark.readStream.format("delta").load(table).writeStream.format("noop")
    assert (
        writer.option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
        .awaitTermination(120)
    )
    now, offsets = delta_log.snapshot(table), committed_offsets(checkpoint)
    assert delta_log.tables_read(offsets or ()) == {now.table_id}
    assert offsets == [delta_log.position_after(now.table_id, now.version)]
