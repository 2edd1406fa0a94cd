"""Output rows as a pandas frame of Arrow's columns, and what pyspark's serializer makes of them."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.conversion import PandasToArrowConversion
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from wheel_udf.stream.arrow_frame import as_frame

SCHEMA = pa.schema(
    [("kind", pa.string()), ("value", pa.binary()), ("headers", pa.string()), ("due_ms", pa.int64())]
)
SPARK_TYPES = {pa.string(): StringType(), pa.binary(): BinaryType(), pa.int64(): LongType()}
STRUCT = StructType([StructField(field.name, SPARK_TYPES[field.type]) for field in SCHEMA])

FIRED = pa.table([["fired", "fired"], [b"\x00\xff", None], pa.nulls(2, pa.string()), [2**62 + 1, 5]], SCHEMA)
STATUS = pa.table([["status"], [None], ["{}"], [-(2**63)]], SCHEMA)
BOTH = [
    {"kind": "fired", "value": b"\x00\xff", "headers": None, "due_ms": 2**62 + 1},
    {"kind": "fired", "value": None, "headers": None, "due_ms": 5},
    {"kind": "status", "value": None, "headers": "{}", "due_ms": -(2**63)},
]


def serialized(*frames: pd.DataFrame) -> pa.RecordBatch:
    """What pyspark does with the frames of a batch (``ApplyInPandasWithStateSerializer``)."""
    nothing = pd.DataFrame(dict.fromkeys(STRUCT.names), index=[])
    merged = pd.concat([*frames, nothing], ignore_index=True)
    whole = StructType([StructField("_1", STRUCT)])
    return PandasToArrowConversion.convert(
        [merged], whole, timezone="UTC", arrow_cast=True, assign_cols_by_name=True
    )


def rows_of(batch: pa.RecordBatch) -> list[dict[str, object]]:
    return batch.column(0).to_pylist()


@pytest.mark.filterwarnings("ignore:The behavior of DataFrame concatenation:FutureWarning")
def test_the_rows_of_a_group_reach_the_jvm_as_they_are() -> None:
    assert rows_of(serialized(as_frame([FIRED, SCHEMA.empty_table(), STATUS]))) == BOTH


@pytest.mark.filterwarnings("ignore:The behavior of DataFrame concatenation:FutureWarning")
def test_the_frames_of_two_groups_are_joined() -> None:
    assert rows_of(serialized(as_frame([FIRED]), as_frame([STATUS]))) == BOTH


@pytest.mark.filterwarnings("ignore:The behavior of DataFrame concatenation:FutureWarning")
def test_a_column_of_numbers_with_nulls_keeps_its_digits() -> None:
    rows = pa.table([["fired"] * 2, [None] * 2, [None] * 2, [2**62 + 1, None]], SCHEMA)
    assert [row["due_ms"] for row in rows_of(serialized(as_frame([rows])))] == [2**62 + 1, None]


def test_no_column_holds_python_objects() -> None:
    assert "object" not in set(map(str, as_frame([FIRED, STATUS]).dtypes))
