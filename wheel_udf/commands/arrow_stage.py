"""A frame through a reader of Arrow batches, in Spark's Python workers.

::

    Order_ID string, eta interval, ...  --> in0 string, in1 struct<_json: string>, ..., batch_ms long
                                        --mapInArrow(reader.read_all)--> the reader's columns

A reader is tried on a batch without rows while the query is made: so a column of an impossible type is an error before
anything runs, and the types of the output are those that it gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions as F, types as T
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type

from wheel_udf.commands.columns import batch_ms
from wheel_udf.commands.inputs import UnfitTypeError
from wheel_udf.commands.values import VERBATIM
from wheel_udf.common.errors import ContractError

_LEAVES = (
    T.NullType, T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType,
    T.DecimalType, T.StringType, T.CharType, T.VarcharType, T.BinaryType, T.DateType, T.TimestampType,
    T.TimestampNTZType,
)  # fmt: skip


class Reader(Protocol):
    """What reads batches, and can be sent to a worker."""

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Reads the columns of a frame by their places, and at last the time of the batch (int64, UTC epoch ms)."""

    def read_all(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function of ``mapInArrow``."""


def through_arrow(frame: DataFrame, reader: Reader, what: str) -> DataFrame:
    """Passes a frame through a reader.

    Args:
        frame: Of a batch or a stream.
        reader: The reader.
        what: The noun for the rows.

    Raises:
        ContractError: A column has a type that no valid value can have.
    """
    fields = frame.schema.fields
    named = frame.toDF(*(f"in{at}" for at in range(len(fields))))
    carried = named.select(
        *(_carried(F.col(f"in{at}"), each.dataType).alias(f"in{at}") for at, each in enumerate(fields)),
        batch_ms().alias("batch_ms"),
    )
    nothing = [pa.array([], _arrow_type(each.dataType)) for each in fields]
    names = [f"in{at}" for at in range(len(nothing))]
    try:
        made = reader.read(
            pa.RecordBatch.from_arrays([*nothing, pa.array([], pa.int64())], names=[*names, "batch_ms"])
        )
    except UnfitTypeError as fault:
        kind = next(each.dataType for each in fields if each.name.lower() == fault.name)
        raise ContractError(
            f"a column of the {what} has a type that no valid value can have",
            field=fault.name,
            value=kind.simpleString(),
            rule=fault.rule,
            hint="cast the column, or drop it",
        ) from None
    return carried.mapInArrow(reader.read_all, from_arrow_schema(made.schema))


def _carried(column: Column, kind: T.DataType) -> Column:
    """A column in a type that Arrow has; of other types the JSON (:data:`wheel_udf.commands.values.VERBATIM`)."""
    if _is_carried(kind):
        return column
    whole = F.to_json(F.struct(column.alias("v")))
    inner = F.substring(whole, F.lit(6), F.length(whole) - 6)  # {"v":...}
    return F.when(column.isNotNull(), F.struct(inner.alias(VERBATIM)))


def _is_carried(kind: T.DataType) -> bool:
    if isinstance(kind, T.ArrayType):
        return _is_carried(kind.elementType)
    if isinstance(kind, T.MapType):
        return _is_carried(kind.keyType) and _is_carried(kind.valueType)
    if isinstance(kind, T.StructType):
        return len(set(kind.names)) == len(kind) and all(_is_carried(each.dataType) for each in kind)
    return isinstance(kind, _LEAVES)


def _arrow_type(kind: T.DataType) -> pa.DataType:
    return to_arrow_type(kind, timezone="UTC") if _is_carried(kind) else pa.struct([(VERBATIM, pa.string())])
