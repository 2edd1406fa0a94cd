"""The streaming frame of commands from files and tables: columns, coordinates, times, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pandas as pd
import pytest
from pydantic import TypeAdapter
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession, functions as F

from wheel_udf.commands.kafka_presets import kafka_commands
from wheel_udf.common.errors import ConfigError, ContractError
from wheel_udf.job.models.source import SourceConfig
from wheel_udf.job.sources.commands import read_commands
from wheel_udf.job.sources.files import known_columns, open_files

SOURCE: TypeAdapter[SourceConfig] = TypeAdapter(SourceConfig)
Rows = Callable[[SourceConfig], list[Row]]
Run = Callable[[DataFrame], list[Row]]
FILE_TIME_S = 1_357_000_000  # 2013-01-01T00:26:40Z


def source(format_: str, path: Path, **more: Any) -> SourceConfig:
    return SOURCE.validate_python({"format": format_, "path": str(path), **more})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a frame to its end and gives what came."""

    def rows(frame: DataFrame) -> list[Row]:
        found: list[Row] = []
        writer = frame.writeStream.foreachBatch(lambda batch, _id: found.extend(batch.collect()))
        query = (
            writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return found

    return rows


@pytest.fixture
def rows_of(spark: SparkSession, run: Run) -> Rows:
    """Runs a source to its end and gives what came, by id."""

    def read(config: SourceConfig) -> list[Row]:
        return sorted(
            run(read_commands(spark, config)), key=lambda row: (row.schedule_id is None, row.schedule_id)
        )

    return read


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (FILE_TIME_S, FILE_TIME_S))
    return path


def test_parquet_keeps_its_columns_and_each_row_knows_its_file_and_place(
    spark: SparkSession, tmp_path: Path, rows_of: Rows
) -> None:
    frame = spark.createDataFrame([("a", "x"), ("b", "y")], "schedule_id string, destination string")
    frame.coalesce(1).write.parquet(str(tmp_path / "in"))
    (file,) = (tmp_path / "in").glob("*.parquet")
    os.utime(file, (FILE_TIME_S, FILE_TIME_S))
    found = rows_of(source("parquet", tmp_path / "in"))
    assert [(row.schedule_id, row.destination) for row in found] == [("a", "x"), ("b", "y")]
    assert [row.source_coordinates for row in found] == [f"file:{file}#0", f"file:{file}#1"]
    assert [row.event_time.isoformat() for row in found] == ["2013-01-01T00:26:40"] * 2


def test_the_columns_that_a_source_has_are_known_but_not_those_of_an_empty_folder(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.createDataFrame([("a", "0", "x")], "schedule_id string, DELAY string, value string")
    frame.write.parquet(str(tmp_path / "parquet"))
    frame.write.format("delta").save(str(tmp_path / "delta"))
    write(tmp_path / "csv" / "1.csv", "schedule_id,delay,Value,note\na,0,x,y\n")
    ddl = "schedule_id STRING, delay STRING, value STRING"
    (tmp_path / "empty").mkdir()

    def known(format_: str, name: str, **more: Any) -> list[str]:
        return known_columns(read_commands(spark, source(format_, tmp_path / name, **more)))

    assert [known(name, name) for name in ("parquet", "delta")] == [["delay", "value"]] * 2
    assert known("csv", "csv") == ["delay", "note", "value"]
    assert known("json", "empty", schema=ddl) == ["delay", "value"]
    assert [known(format_, "empty") for format_ in ("parquet", "csv")] == [[], []]


def test_an_event_time_that_is_given_stays_and_a_null_one_is_the_files(
    spark: SparkSession, tmp_path: Path, rows_of: Rows
) -> None:
    frame = spark.createDataFrame([("a", 1_000), ("b", None)], "schedule_id string, ms long")
    frame = frame.select("schedule_id", F.timestamp_millis("ms").alias("event_time"))
    frame.coalesce(1).write.parquet(str(tmp_path / "in"))
    (file,) = (tmp_path / "in").glob("*.parquet")
    os.utime(file, (FILE_TIME_S, FILE_TIME_S))
    found = rows_of(source("parquet", tmp_path / "in"))
    assert [row.event_time.isoformat() for row in found] == ["1970-01-01T00:00:01", "2013-01-01T00:26:40"]


def test_json_is_texts_of_the_contract_with_the_files_time_as_text(tmp_path: Path, rows_of: Rows) -> None:
    file = write(
        tmp_path / "in" / "1.json",
        '{"schedule_id": "a", "seq": 7, "deliver_at": "2013-01-01T05:00Z", "value": {"n": 1.50}, "headers": [{"key": "k", "value": "v"}]}\n'
        '{"schedule_id": "b", "event_time": "2013-01-01", "other": 1}\n',
    )
    first, second = rows_of(source("json", tmp_path / "in"))
    assert (first.seq, first.deliver_at, first.value) == ("7", "2013-01-01T05:00Z", '{"n": 1.50}')
    assert first.headers == [Row(key="k", value=b"v")]
    assert (first.event_time, second.event_time) == ("2013-01-01T00:26:40.000Z", "2013-01-01")
    assert first.source_coordinates == f"file:{file}"


def test_a_line_of_json_that_does_not_parse_keeps_its_text_and_a_torn_one_has_no_id(
    tmp_path: Path, rows_of: Rows
) -> None:
    lines = [
        '{"schedule_id": "a", "delay": "0"}',
        '{"schedule_id": "b", "headers": 5}',
        '{"schedule_id": "c',
        "rubbish",
    ]
    write(tmp_path / "in" / "1.json", "\n".join(lines) + "\n")
    good, *bad = rows_of(source("json", tmp_path / "in"))
    assert (good.schedule_id, good._corrupt_record) == ("a", None)
    assert {row.schedule_id for row in bad} == {None}
    assert sorted(row._corrupt_record for row in bad) == sorted(lines[1:])


@pytest.mark.sentinel
def test_a_line_of_json_gives_what_the_record_of_kafka_gives(
    spark: SparkSession, tmp_path: Path, rows_of: Rows
) -> None:
    lines = [
        '{"schedule_id": "a", "delay": "0", "value": {"n": 0.10 , "m": 1E400}, "headers": {"x": -0, "y": "1.0"}}',
        '{"schedule_id": "b", "value": 12345678901234567890.123456789, "headers": [{"key": "x", "value": [ ]}]}',
        r'{"schedule_id": "c", "v\u0061lue": ["\u0041"], "headers": null}',
        *('{"schedule_id": "d"} {"schedule_id": "e"}', '[{"schedule_id": "f"}]', "{'schedule_id': 'g'}"),
        *('{"schedule_id": "h", "value": NaN}', '{"schedule_id": "i", "headers": [1]}', "null"),
    ]
    # A byte order mark at the beginning and blank lines are of files alone.
    write(tmp_path / "in" / "1.json", "\ufeff" + "\r\n \t\n".join(lines) + "\n\n")
    records = [(b"", line.encode(), "t", 0, 0, None, None) for line in lines]
    ddl = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, headers array<struct<key: string, value: binary>>"
    of_kafka = kafka_commands(spark.createDataFrame(records, ddl), "json").collect()

    def read(rows: list[Row]) -> list[tuple[Any, ...]]:
        parts = [
            (row.schedule_id, row._corrupt_record, None if row._corrupt_record else row.value, row.headers)
            for row in rows
        ]
        octets = [
            (*rest, value.encode() if isinstance(value, str) else value, headers)
            for *rest, value, headers in parts
        ]
        return sorted(octets, key=str)

    found = read(rows_of(source("json", tmp_path / "in")))
    assert found == read(of_kafka)
    assert [each[:3] for each in found[:3]] == [
        ("a", None, b'{"n": 0.10 , "m": 1E400}'),
        ("b", None, b"12345678901234567890.123456789"),
        ("c", None, rb'["\u0041"]'),
    ]
    assert [each[1] for each in found[3:]] == sorted(lines[3:], key=lambda line: str((None, line)))


def test_with_options_of_its_parser_spark_reads_json_itself(tmp_path: Path, rows_of: Rows) -> None:
    write(
        tmp_path / "in" / "1.json",
        '[{"schedule_id": "a",\n "delay": "0"}, {"schedule_id": "b", "value": 0.10}]',
    )
    a, b = rows_of(source("json", tmp_path / "in", options={"multiLine": "true"}))
    assert (a.schedule_id, b.schedule_id, b.value) == ("a", "b", "0.10")


def test_a_value_that_is_not_of_its_columns_type_names_the_column_and_the_line_keeps_its_id(
    tmp_path: Path, rows_of: Rows
) -> None:
    lines = [
        '{"schedule_id": "a", "seq": "abc", "delay": "0"}',
        '{"schedule_id": "b", "seq": 7, "delay": "0", "deliver_at": "soon", "headers": {"k": 5}}',
        '{"schedule_id": "c", "seq": 8, "delay": "0"}',
        '{"schedule_id": "d", "seq": "torn',
    ]
    write(tmp_path / "j" / "1.json", "\n".join(lines) + "\n")
    ddl = "schedule_id STRING, seq BIGINT, delay STRING, deliver_at TIMESTAMP, headers ARRAY<STRUCT<key: STRING, value: STRING>>"
    a, b, c, torn = rows_of(source("json", tmp_path / "j", schema=ddl))
    assert (a.schedule_id, a._misread_columns, a._corrupt_record) == ("a", "seq = abc, not bigint", lines[0])
    assert b._misread_columns == (
        'deliver_at = soon, not timestamp; headers = {"k":5}, not array<struct<key:string,value:string>>'
    )
    assert (b.schedule_id, b.seq) == ("b", 7)
    assert (c.schedule_id, c._misread_columns, c._corrupt_record) == ("c", None, None)
    assert (torn.schedule_id, torn._misread_columns, torn._corrupt_record) == (None, None, lines[3])
    (tmp_path / "checkpoint").rename(tmp_path / "used")
    write(tmp_path / "c" / "1.csv", "schedule_id;seq;delay\na;abc;0\nb;7;0\nc\n")
    csv = source(
        "csv", tmp_path / "c", schema="schedule_id STRING, seq BIGINT, delay STRING", options={"sep": ";"}
    )
    a, b, torn = rows_of(csv)
    assert (a.schedule_id, a._misread_columns) == ("a", "seq = abc, not bigint")
    assert (b.schedule_id, b._misread_columns, b.seq) == ("b", None, 7)
    assert (torn.schedule_id, torn._misread_columns, torn._corrupt_record) == (None, None, "c")


def test_csv_takes_its_columns_from_the_header_and_a_torn_line_has_no_id(
    tmp_path: Path, rows_of: Rows
) -> None:
    write(tmp_path / "in" / "1.csv", "destination,schedule_id,seq\nx,a,1\ny,b\n")
    good, bad = rows_of(source("csv", tmp_path / "in"))
    assert (good.schedule_id, good.destination, good.seq) == ("a", "x", "1")
    assert (bad.schedule_id, bad._corrupt_record) == (None, "y,b")


def test_a_delta_table_is_read_with_its_own_schema(
    spark: SparkSession, tmp_path: Path, rows_of: Rows
) -> None:
    frame = spark.createDataFrame([("a", 1)], "schedule_id string, seq long")
    frame.write.format("delta").save(str(tmp_path / "table"))
    (row,) = rows_of(source("delta", tmp_path / "table"))
    assert row.asDict() == {"schedule_id": "a", "seq": 1, "source_coordinates": str(tmp_path / "table")}


@pytest.mark.parametrize("format_", ["parquet", "json", "csv"])
def test_an_empty_folder_is_a_stream_with_the_columns_of_the_contract(
    tmp_path: Path, rows_of: Rows, spark: SparkSession, format_: str
) -> None:
    (tmp_path / "in").mkdir()
    config = source(format_, tmp_path / "in")
    assert {"schedule_id", "op", "seq", "deliver_at", "delay", "event_time", "destination", "value"} <= set(
        read_commands(spark, config).columns
    )
    assert rows_of(config) == []


def test_a_schema_of_the_config_is_taken_as_it_is(tmp_path: Path, rows_of: Rows) -> None:
    write(tmp_path / "in" / "1.json", '{"schedule_id": "a", "seq": 3}\n')
    (row,) = rows_of(source("json", tmp_path / "in", schema="schedule_id STRING, seq BIGINT"))
    assert (row.schedule_id, row.seq) == ("a", 3)


@pytest.mark.parametrize("format_", ["parquet", "json", "csv"])
def test_a_folder_is_read_under_its_very_name_and_not_the_others_that_its_wildcards_match(
    spark: SparkSession, tmp_path: Path, rows_of: Rows, format_: str
) -> None:
    for folder, name in (("[ab]*/x", "right"), ("ab/x", "wrong"), ("a/x", "wrong")):
        frame = spark.sql(f"SELECT '{name}' AS schedule_id, '1 minute' AS delay, 7 AS part")
        writer = frame.coalesce(1).write.format(format_).option("header", "true").partitionBy("part")
        writer.save(str(tmp_path / folder))
    columns = "schedule_id string, delay string, part int"
    found = rows_of(source(format_, tmp_path / "[ab]*" / "x", schema=columns))
    assert [(row.schedule_id, row.part) for row in found] == [("right", 7)]
    assert rows_of(source(format_, tmp_path / "[ab]*" / "x")) == []  # that checkpoint has read the file


def test_wildcards_of_a_path_that_is_no_folder_are_those_of_spark(tmp_path: Path, rows_of: Rows) -> None:
    for day in ("1", "2"):
        write(tmp_path / day / "in" / "1.json", f'{{"schedule_id": "{day}", "delay": "1 minute"}}\n')
    assert [row.schedule_id for row in rows_of(source("json", tmp_path / "[12]" / "in"))] == ["1", "2"]


@pytest.mark.parametrize("format_", ["parquet", "json", "csv", "delta"])
def test_a_path_with_nothing_there_is_a_fault_of_the_config(
    spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    with pytest.raises(ConfigError, match=r"there is nothing to read: source\.path = .*nowhere"):
        read_commands(spark, source(format_, tmp_path / "nowhere"))


NAMES = (
    "plain",
    *("what?", "what*", "what[12]", "{1,2}", "what\\", "[", "{", "]"),
    *("2013-01-01T10:00:00", "1:what", "http:x", "a:b?"),
    *("with space", "what%3F", "%201", "täg#1", "a,b+c|d", "new\nline"),
)


@pytest.mark.parametrize("format_", ["parquet", "json", "csv"])
def test_a_file_is_read_once_and_its_neighbours_too_whatever_is_in_its_name(
    tmp_path: Path, rows_of: Rows, format_: str
) -> None:
    (tmp_path / "in").mkdir()
    for number, name in enumerate(NAMES):
        file, frame = (
            tmp_path / "in" / f"{name}.{format_}",
            pd.DataFrame({"schedule_id": [f"{number:02}"], "delay": "0"}),
        )
        if format_ == "parquet":
            frame.to_parquet(file)
        else:
            file.write_text(
                frame.to_csv(index=False) if format_ == "csv" else frame.to_json(orient="records", lines=True)
            )
    found = rows_of(source(format_, tmp_path / "in"))
    assert [row.schedule_id for row in found] == [f"{number:02}" for number in range(len(NAMES))]
    assert unquote(found[1].source_coordinates.partition("#")[0]) == f"file:{tmp_path}/in/what?.{format_}"


def test_events_and_operations_are_read_once_likewise(spark: SparkSession, tmp_path: Path, run: Run) -> None:
    for name in ("a", "b", "what?"):
        write(tmp_path / "in" / f"{name}.json", f'{{"group": "g", "key": "{name}", "amount": 60}}\n')
    rows = run(open_files(spark, source("json", tmp_path / "in"), "group STRING, key STRING, amount STRING"))
    assert sorted((row.key, row.amount) for row in rows) == [("a", "60"), ("b", "60"), ("what?", "60")]


def test_files_of_subfolders_are_not_read_and_a_partition_that_comes_late_stops_the_stream(
    spark: SparkSession, tmp_path: Path, run: Run
) -> None:
    write(tmp_path / "in" / "1.json", '{"schedule_id": "a", "delay": "0"}\n')
    write(tmp_path / "in" / "done" / "[0].json", '{"schedule_id": "b", "delay": "0"}\n')
    frame = read_commands(spark, source("json", tmp_path / "in"))
    assert [row.schedule_id for row in run(frame)] == ["a"]
    write(tmp_path / "in" / "op=x" / "2.json", '{"schedule_id": "c", "delay": "0"}\n')
    with pytest.raises(
        StreamingQueryException, match=r"start again to read the new partition of file:.*/op=x/2\.json"
    ):
        run(frame)


def test_a_file_of_a_partition_is_read_once_and_has_its_column(tmp_path: Path, rows_of: Rows) -> None:
    for name, line in (("x/a", "a"), ("y/b", "b"), ("y/c?", "c")):
        write(tmp_path / "in" / f"destination={name}.json", f'{{"schedule_id": "{line}", "delay": "0"}}\n')
    found = rows_of(source("json", tmp_path / "in"))
    assert [(row.schedule_id, row.destination) for row in found] == [("a", "x"), ("b", "y"), ("c", "y")]


@pytest.mark.parametrize("options", [{"cleanSource": "delete"}, {"fileNameOnly": "true"}])
def test_with_options_for_files_that_were_read_a_name_with_a_wildcard_is_an_error_that_names_the_file(
    spark: SparkSession, tmp_path: Path, run: Run, options: dict[str, str]
) -> None:
    for name in ("a", "what?"):
        write(tmp_path / "in" / f"{name}.json", '{"schedule_id": "a", "delay": "0"}\n')
    with pytest.raises(StreamingQueryException, match=r"rename this file: file:.*/in/what%3F\.json"):
        run(read_commands(spark, source("json", tmp_path / "in", options=options)))


def test_files_without_schedule_id_are_refused_with_what_was_found(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.createDataFrame([(1, 2)], "id long, at long").write.parquet(str(tmp_path / "p"))
    spark.createDataFrame([(1, 2)], "id long, at long").write.format("delta").save(str(tmp_path / "d"))
    write(tmp_path / "j" / "1.json", '{"id": 1}\n{"at": 2}\n')
    write(tmp_path / "c" / "1.csv", "id,at\n1,2\n")
    for format_, name, found in (
        ("parquet", "p", "id, at"),
        ("delta", "d", "id, at"),
        ("json", "j", "at, id"),
        ("csv", "c", "id, at"),
    ):
        with pytest.raises(ContractError) as caught:
            read_commands(spark, source(format_, tmp_path / name))
        assert str(caught.value).startswith("the source has no column schedule_id")
        assert str(caught.value).endswith(f"hint: found: {found}")


def test_lines_of_json_that_all_lack_a_due_time_are_refused_unless_they_cancel(
    spark: SparkSession, tmp_path: Path
) -> None:
    cancel = '{"schedule_id": "a", "op": "Cancel", "note": "x"}\n'
    write(tmp_path / "in" / "1.json", cancel)
    read_commands(spark, source("json", tmp_path / "in"))
    write(tmp_path / "in" / "2.json", '{"schedule_id": "b", "dealy": "1m"}\n{"schedule_id": "c"}\n')
    with pytest.raises(ContractError) as caught:
        read_commands(spark, source("json", tmp_path / "in"))
    assert str(caught.value) == (
        "the commands have no column with a due time: columns found = 'dealy, schedule_id'; "
        "rule: a column deliver_at or delay; hint: rename dealy to delay"
    )
    write(tmp_path / "in" / "3.json", '{"schedule_id": "d", "delay": "1m"}\n')
    read_commands(spark, source("json", tmp_path / "in"))


def test_the_hint_names_the_column_that_is_nearly_the_id(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in" / "1.csv", "scheduleId,delay\na,0\n")
    with pytest.raises(ContractError, match=r"found: scheduleId, delay; rename scheduleId to schedule_id$"):
        read_commands(spark, source("csv", tmp_path / "in"))


@pytest.mark.parametrize("ddl", ["schedule_id", "INT", "schedule_id STRIN", "(("])
def test_a_schema_that_is_no_ddl_is_a_fault_of_the_config(
    spark: SparkSession, tmp_path: Path, ddl: str
) -> None:
    with pytest.raises(ConfigError, match=r"not a schema: source\.schema"):
        read_commands(spark, source("json", tmp_path, schema=ddl))


def test_lines_may_not_be_dropped_in_silence(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="dropped silently"):
        read_commands(spark, source("json", tmp_path, options={"MODE": "dropMalformed"}))
