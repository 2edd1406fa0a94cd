"""A frame through a reader of Arrow batches, in Spark's Python workers.

::

    Order_ID string, eta interval, ...  --> in0 string, in1 struct<_json: string>, ..., batch_ms long
                                        --mapInArrow(reader.read)--> the reader's columns

A reader is tried on a batch without rows while the query is made: so a column of an impossible type is an error before
anything runs, and the types of the output are those that it gives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions as F, types as T
from pyspark.sql.pandas.types import from_arrow_schema

from wheel_udf.commands.columns import batch_ms
from wheel_udf.commands.in_turn import BATCH_MS, InTurn, Reader, read_all
from wheel_udf.commands.inputs import UnfitTypeError
from wheel_udf.commands.values import VERBATIM
from wheel_udf.common.errors import ContractError

_LEAVES: Final[dict[type[T.DataType], pa.DataType]] = {
    T.NullType: pa.null(),
    T.BooleanType: pa.bool_(),
    T.ByteType: pa.int8(),
    T.ShortType: pa.int16(),
    T.IntegerType: pa.int32(),
    T.LongType: pa.int64(),
    T.FloatType: pa.float32(),
    T.DoubleType: pa.float64(),
    T.StringType: pa.string(),
    T.CharType: pa.string(),
    T.VarcharType: pa.string(),
    T.BinaryType: pa.binary(),
    T.DateType: pa.date32(),
    T.TimestampType: pa.timestamp("us", "UTC"),
    T.TimestampNTZType: pa.timestamp("us"),
}
_VERBATIM_TYPE: Final = pa.struct([(VERBATIM, pa.string())])


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
        return self.carried.mapInArrow(partial(read_all, reader=self.reader), from_arrow_schema(made.schema))


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
    return _Stage(carried, tuple(_arrow_type(each.dataType) or _VERBATIM_TYPE for each in fields), reader)


def _carried(column: Column, kind: T.DataType) -> Column:
    """A column in a type that Arrow has; of other types the JSON (:data:`wheel_udf.commands.values.VERBATIM`)."""
    if _arrow_type(kind) is not None:
        return column
    whole = F.to_json(F.struct(column.alias("v")))
    inner = F.substring(whole, F.lit(6), F.length(whole) - 6)  # {"v":...}
    return F.when(column.isNotNull(), F.struct(inner.alias(VERBATIM)))


def _arrow_type(kind: T.DataType) -> pa.DataType | None:
    """The type of Arrow in which Spark hands a type to Python; None: Arrow has none, or does not keep all of it."""
    if isinstance(kind, T.ArrayType):
        return _list_of(_arrow_type(kind.elementType))
    if isinstance(kind, T.MapType):
        key, item = _arrow_type(kind.keyType), _arrow_type(kind.valueType)
        return None if key is None or item is None else pa.map_(key, item)
    if isinstance(kind, T.StructType):
        fields = [(each.name, _arrow_type(each.dataType)) for each in kind]
        known = [(name, each) for name, each in fields if each is not None]
        return pa.struct(known) if len({name for name, _ in known}) == len(kind) else None
    if isinstance(kind, T.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return next((arrow for spark, arrow in _LEAVES.items() if isinstance(kind, spark)), None)


def _list_of(kind: pa.DataType | None) -> pa.DataType | None:
    return None if kind is None else pa.list_(kind)
