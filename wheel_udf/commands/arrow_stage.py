"""A frame through a reader of Arrow batches, in Spark's Python workers.

::

    Order_ID string, eta interval, ...  --> in0 string, in1 struct<_json: string>, ..., batch_ms long
                                        --mapInArrow(reader.read_all)--> the reader's columns

A reader is tried on a batch without rows while the query is made: so a column of an impossible type is an error before
anything runs, and the types of the output are those that it gives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions as F, types as T
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type

from wheel_udf.commands.columns import batch_ms
from wheel_udf.commands.in_turn import BATCH_MS, InTurn, Reader
from wheel_udf.commands.inputs import UnfitTypeError
from wheel_udf.commands.values import VERBATIM
from wheel_udf.common.errors import ContractError

_LEAVES = (
    T.NullType, T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType,
    T.DecimalType, T.StringType, T.CharType, T.VarcharType, T.BinaryType, T.DateType, T.TimestampType,
    T.TimestampNTZType,
)  # fmt: skip


@dataclass(frozen=True)
class _Stage:
    """A frame that can go to Python, and what reads it there.

    Args:
        carried: The frame: its columns by their places, in types that Arrow has, and the time of the batch.
        kinds: The Arrow types of its columns.
        reader: The reader.
    """

    carried: DataFrame
    kinds: tuple[pa.DataType, ...]
    reader: Reader

    def made(self) -> DataFrame:
        """What the reader makes of the frame.

        Raises:
            UnfitTypeError: A column has a type that no valid value can have.
        """
        nothing = [pa.array([], kind) for kind in (*self.kinds, pa.int64())]
        names = [*(f"in{at}" for at in range(len(self.kinds))), BATCH_MS]
        made = self.reader.read(pa.RecordBatch.from_arrays(nothing, names=names))
        return self.carried.mapInArrow(self.reader.read_all, from_arrow_schema(made.schema))


_STAGES: Final[WeakKeyDictionary[DataFrame, _Stage]] = WeakKeyDictionary()
"""How each frame that came out of a reader was made. A frame that somebody derived from it is another object."""


def through_arrow(frame: DataFrame, reader: Reader, what: str) -> DataFrame:
    """Passes a frame through a reader. A frame that came out of a reader goes to Python once, through both in turn.

    Args:
        frame: Of a batch or a stream.
        reader: The reader.
        what: The noun for the rows.

    Raises:
        ContractError: A column has a type that no valid value can have.
    """
    before = _STAGES.get(frame)
    stage = _stage(frame, reader) if before is None else replace(before, reader=InTurn(before.reader, reader))
    try:
        made = stage.made()
    except UnfitTypeError as fault:
        kind = next(each.dataType for each in frame.schema.fields if each.name.lower() == fault.name)
        raise ContractError(
            f"a column of the {what} has a type that no valid value can have",
            field=fault.name,
            value=kind.simpleString(),
            rule=fault.rule,
            hint="cast the column, or drop it",
        ) from None
    _STAGES[made] = stage
    return made


def _stage(frame: DataFrame, reader: Reader) -> _Stage:
    fields = frame.schema.fields
    named = frame.toDF(*(f"in{at}" for at in range(len(fields))))
    carried = named.select(
        *(_carried(F.col(f"in{at}"), each.dataType).alias(f"in{at}") for at, each in enumerate(fields)),
        batch_ms().alias(BATCH_MS),
    )
    return _Stage(carried, tuple(_arrow_type(each.dataType) for each in fields), reader)


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
