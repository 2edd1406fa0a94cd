"""Rows of the stateful operator as Arrow: what pyspark's own serializer reads and writes, and what it does after
``take_arrow``.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.serializers import CPickleSerializer, read_int
from pyspark.sql.pandas import serializers
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from wheel_udf.spark import arrow_groups
from wheel_udf.spark.arrow_groups import ArrowColumn, take_arrow

STATE = StructType([StructField("text", StringType())])
OUT = StructType(
    [StructField("id", StringType()), StructField("value", BinaryType()), StructField("due_ms", LongType())]
)
DATA = {
    "shard": pa.array([7, 7, 9], pa.int32()),
    "id": pa.array(["a", None, "c"]),
    "value": pa.array([b"\xff", b"", None], pa.binary()),
    "at": pa.array([0, None, 5_000_000], pa.timestamp("us", "UTC")),
}


def serializer(most: int = 10_000) -> Any:
    return serializers.ApplyInPandasWithStateSerializer(
        timezone="UTC",
        safecheck=False,
        assign_cols_by_name=True,
        prefer_int_ext_dtype=False,
        state_object_schema=STATE,
        arrow_max_records_per_batch=most,
        prefers_large_var_types=False,
        int_to_decimal_coercion_enabled=False,
    )


def group_state(text: str | None) -> Any:
    """The state of a group, as the JVM gives it."""
    return GroupState(
        optionalValue=(text,) if text is not None else None,
        batchProcessingTimeMs=0,
        eventTimeWatermarkMs=0,
        timeoutConf="NoTimeout",
        hasTimedOut=False,
        watermarkPresent=False,
        defined=text is not None,
        updated=False,
        removed=False,
        timeoutTimestamp=-1,
        keyAsUnsafe=b"key",
        valueSchema=STATE,
    )


def from_jvm() -> io.BytesIO:
    """Two groups, of two rows and of one, as the JVM writes them."""
    properties = json.loads(group_state("before").json())
    fields = [("properties", pa.string()), ("keyRowAsUnsafe", pa.binary()), ("object", pa.binary())]
    fields += [("startOffset", pa.int32()), ("numRows", pa.int32()), ("isLastChunk", pa.bool_())]
    pickled = CPickleSerializer().dumps(("before",))
    states = [
        {"properties": json.dumps(properties), "keyRowAsUnsafe": b"key", "object": pickled}
        | {"startOffset": start, "numRows": rows, "isLastChunk": True}
        for start, rows in ((0, 2), (2, 1))
    ]
    columns = DATA | {"!__state__!": pa.array([*states, None], pa.struct(fields))}
    stream = io.BytesIO()
    batch = pa.RecordBatch.from_pydict(columns)
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    stream.seek(0)
    return stream


def read(reading: Any) -> list[list[pd.DataFrame]]:
    """The frames of each group, as pyspark makes them for the function."""
    return [
        [pd.concat(series, axis=1) for (series, _) in rows] for rows, _ in reading.load_stream(from_jvm())
    ]


def written(writing: Any, groups: list[tuple[list[pd.DataFrame], Any]]) -> list[pa.RecordBatch]:
    """What the JVM gets."""
    stream = io.BytesIO()
    writing.dump_stream(([((iter(frames), state), OUT)] for frames, state in groups), stream)
    stream.seek(0)
    read_int(stream)
    return list(pa.ipc.open_stream(stream))


def frame(ids: list[str | None], *, arrow: bool) -> pd.DataFrame:
    """Rows that leave: with Arrow's columns, or with objects."""
    values = [None if each is None else each.encode() for each in ids]
    texts = {"id": pa.array(ids, pa.string()), "value": pa.array(values, pa.binary())}
    columns: dict[str, Any] = {
        name: ArrowColumn(each) if arrow else each.to_pandas() for name, each in texts.items()
    }
    return pd.DataFrame(columns | {"due_ms": [2**62 + place for place in range(len(ids))]})


def groups(*, arrow: bool) -> list[tuple[list[pd.DataFrame], Any]]:
    """What the function returns of four groups: rows, nothing, two frames, an empty one."""
    return [
        ([frame(["a", None, "c"], arrow=arrow)], group_state("one")),
        ([], group_state(None)),
        ([frame(["d"], arrow=arrow), frame(["e", "f"], arrow=arrow)], group_state("three")),
        ([pd.DataFrame()], group_state("four")),
    ]


def of_jvm(batch: pa.RecordBatch) -> tuple[list[Any], list[Any]]:
    """The rows and the states that the JVM takes from a batch: as many as the counts say."""
    counts, rows, states = (column.to_pylist() for column in batch.columns)
    assert len(counts) == len(rows) == len(states)
    return rows[: counts[0]["dataCount"]], states[: counts[0]["stateCount"]]


def arrow_serializer(most: int = 10_000) -> Any:
    """One that has read a function which takes Arrow."""
    found = serializer(most)
    take_arrow()
    found.load_stream(io.BytesIO())
    return found


def test_texts_and_binary_values_arrive_as_arrow_has_them() -> None:
    take_arrow()
    (first, second) = read(serializer())
    (rows,) = first
    assert {name: type(column.array) for name, column in rows.items() if name in ("id", "value")} == {
        "id": ArrowColumn,
        "value": ArrowColumn,
    }
    assert pa.array(rows["id"].array).to_pylist() == ["a", None]
    assert pa.array(rows["value"].array).to_pylist() == [b"\xff", b""]
    assert pa.array(second[0]["value"].array).to_pylist() == [None]


def test_numbers_and_instants_arrive_as_without() -> None:
    plain = read(serializer())
    take_arrow()
    for with_arrow, without in zip(read(serializer()), plain, strict=True):
        pd.testing.assert_frame_equal(with_arrow[0][["shard", "at"]], without[0][["shard", "at"]])


def test_only_the_function_that_was_announced_gets_arrow() -> None:
    take_arrow()
    read(serializer())
    assert read(serializer())[0][0]["id"].tolist() == ["a", None]


def test_what_another_function_reads_meanwhile_is_not_changed_for_good() -> None:
    before = serializers.ArrowBatchTransformer
    take_arrow()
    reading = serializer().load_stream(from_jvm())
    next(reading)
    reading.close()
    assert serializers.ArrowBatchTransformer is before


@pytest.mark.parametrize("most", [10_000, 2])
@pytest.mark.filterwarnings("ignore:The behavior of DataFrame concatenation:FutureWarning")
def test_the_jvm_gets_the_batches_that_pyspark_itself_writes(most: int) -> None:
    plain = written(serializer(most), groups(arrow=False))
    batches = written(arrow_serializer(most), groups(arrow=True))
    assert [of_jvm(each) for each in batches] == [of_jvm(each) for each in plain]
    assert [each.schema for each in batches] == [each.schema for each in plain]
    assert len(batches) == (1 if most > 2 else 3)


def test_states_without_rows_are_written() -> None:
    ((batch),) = written(arrow_serializer(), [([], group_state(str(number))) for number in range(3)])
    rows, states = of_jvm(batch)
    assert (rows, len(states)) == ([], 3)
    assert [CPickleSerializer().loads(each["object"]) for each in states] == [("0",), ("1",), ("2",)]


def test_a_state_is_written_as_the_function_leaves_it_when_it_ends() -> None:
    state = group_state("before")

    def changing() -> Iterator[pd.DataFrame]:
        yield frame(["a"], arrow=True)
        state.update(("after",))

    ((batch),) = written(arrow_serializer(), [(changing(), state)])  # type: ignore[list-item]  # any iterator
    assert [CPickleSerializer().loads(each["object"]) for each in of_jvm(batch)[1]] == [("after",)]


def test_frames_of_objects_may_be_mixed_with_those_of_arrow() -> None:
    of_both = [([frame(["a"], arrow=True), frame([None], arrow=False)], group_state("one"))]
    ((batch),) = written(arrow_serializer(), of_both)
    assert [row["id"] for row in of_jvm(batch)[0]] == ["a", None]


def test_another_version_of_pyspark_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_groups, "READ_IN", "3.5.")
    take_arrow()
    assert read(serializer())[0][0]["id"].tolist() == ["a", None]


def test_a_serializer_that_lacks_a_part_is_left_as_it_is() -> None:
    other = serializer()
    del other.result_state_df_type
    take_arrow()
    assert read(other)[0][0]["id"].tolist() == ["a", None]
