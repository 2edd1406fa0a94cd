"""Hands rows of Arrow to the function of ``applyInPandasWithState``, and takes them from it, without pandas objects
between.

``applyInPandasWithState`` is Spark's only stateful operator that gets many rows at once, and they are pandas frames:
pyspark makes a Python object of each text on the way in, and tests each for null on the way out. On the way out it
also pads the columns of the state, one row a group, to as many rows as leave, and joins them as objects. The wheel
reads and writes Arrow::

    way in    Arrow --pyspark--> objects ---------------> Arrow      here: the columns as they came
    way out   Arrow --pyspark--> chunks, padded states --> Arrow      here: one record batch, padded with nulls

The columns travel in frames of pandas whose columns are Arrow's (:class:`ArrowColumn`), so the function itself is the
same with and without this module: :func:`take_arrow` changes how pyspark reads and writes the rows of the function
that runs next in this process, and of no other.

Decision: with another version of pyspark, or a serializer that lacks a part of what is used here, rows travel as
objects.

Imports numpy, pandas and pyarrow only, besides the standard library; pyspark when it is asked to change it: executors
load it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final

import pandas as pd
import pyarrow as pa

READ_IN: Final = "4.2."
"""The versions of pyspark whose serializer is known."""
_NEEDED: Final = (
    "pickleSer",
    "result_count_df_type",
    "result_state_df_type",
    "arrow_max_records_per_batch",
    "_write_stream_start",
)
_OF_ARROW: Final = "_wheel_udf_arrow"
"""An attribute of a serializer: whether its function takes Arrow."""


class ArrowColumnType(pd.ArrowDtype):
    """The type of an :class:`ArrowColumn`; pandas gets the class of the column from it when it joins columns."""

    @classmethod
    def construct_array_type(cls) -> type[ArrowColumn]:
        """The class of a column of this type."""
        return ArrowColumn


class ArrowColumn(pd.arrays.ArrowExtensionArray):
    """An Arrow column in one piece: pandas' own gives a ``ChunkedArray``, which pyspark cannot use."""

    @property
    def dtype(self) -> ArrowColumnType:
        """The type of the column."""
        return ArrowColumnType(super().__arrow_array__().type)

    def __arrow_array__(self, type: pa.DataType | None = None) -> pa.Array:  # noqa: A002  # name of the protocol
        """The column, as ``pa.array`` calls it."""
        whole = super().__arrow_array__().combine_chunks()
        return whole if type in (None, whole.type) else whole.cast(type)


class _Announced:
    """Whether the last function that was read takes Arrow. A Python worker runs one task at a time."""

    is_so: bool = False

    def taken(self) -> bool:
        """Whether it was announced since the last call."""
        was, self.is_so = self.is_so, False
        return was


_ANNOUNCED = _Announced()


def take_arrow() -> None:
    """Lets pyspark pass Arrow rows to and from the next function of this process; for a worker that loads it."""
    import pyspark

    if pyspark.__version__.startswith(READ_IN):
        _ANNOUNCED.is_so = _change_serializer()


@cache
def _change_serializer() -> bool:
    """Changes the serializer, once in a process; whether it is known."""
    from pyspark.sql.pandas import serializers

    serializer: Any = getattr(serializers, "ApplyInPandasWithStateSerializer", None)
    if serializer is None or not hasattr(serializers, "ArrowBatchTransformer"):
        return False
    serializer.load_stream = _loading(serializer.load_stream, serializers)
    serializer.dump_stream = _dumping(serializer.dump_stream, serializers)
    return True


# --- way in ---------------------------------------------------------------------------------------


def _loading(original: Callable[..., Any], module: Any) -> Callable[..., Any]:
    def load_stream(self: Any, stream: Any) -> Any:
        is_ours = _ANNOUNCED.taken() and all(hasattr(self, name) for name in _NEEDED)
        setattr(self, _OF_ARROW, is_ours)
        return _loaded(original(self, stream), module) if is_ours else original(self, stream)

    return load_stream


def _loaded(groups: Iterator[Any], module: Any) -> Iterator[Any]:
    """The groups, read with texts left as they are."""
    before = module.ArrowBatchTransformer
    module.ArrowBatchTransformer = _transformer(before)
    try:
        yield from groups
    finally:
        module.ArrowBatchTransformer = before


@cache
def _transformer(before: Any) -> Any:
    class ArrowTransformer(before):  # type: ignore[misc]
        """Leaves texts and binary values as Arrow has them."""

        @classmethod
        def to_pandas(cls, batch: pa.RecordBatch, **settings: Any) -> list[Any]:
            names, columns = batch.schema.names, batch.columns
            stays = [pa.types.is_string(each.type) or pa.types.is_binary(each.type) for each in columns]
            others = batch.select([at for at, is_left in enumerate(stays) if not is_left])
            converted = iter(before.to_pandas(others, **settings) if others.num_columns else ())
            return [
                pd.Series(ArrowColumn(column), name=name, copy=False) if is_left else next(converted)
                for name, column, is_left in zip(names, columns, stays, strict=True)
            ]

    return ArrowTransformer


# --- way out --------------------------------------------------------------------------------------


def _dumping(original: Callable[..., Any], module: Any) -> Callable[..., Any]:
    def dump_stream(self: Any, iterator: Iterable[Any], stream: Any) -> Any:
        if not getattr(self, _OF_ARROW, False):
            return original(self, iterator, stream)
        batches = self._write_stream_start(_record_batches(self, iterator), stream)
        return module.ArrowStreamSerializer.dump_stream(self, batches, stream)

    return dump_stream


def _record_batches(serializer: Any, groups: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    """The record batches for the JVM, cut where pyspark cuts them: after so many rows, and at the end."""
    frames: list[pd.DataFrame] = []
    states: list[tuple[Any, ...]] = []
    rows = 0
    kinds: tuple[pa.StructType, ...] = ()
    for ((of_group, state), columns), *_ in groups:
        kinds = kinds or _kinds_of(serializer, columns)
        for frame in of_group:
            if not len(frame):
                continue
            frames.append(frame)
            rows += len(frame)
            if rows > serializer.arrow_max_records_per_batch:
                yield _record_batch(frames, states, kinds)
                frames, states, rows = [], [], 0
        # Not before the function has ended: until then it may change the state.
        states.append(_state_row(serializer, state))
    if states:
        yield _record_batch(frames, states, kinds)


def _kinds_of(serializer: Any, columns: Any) -> tuple[pa.StructType, ...]:
    """The types of counts, rows and states; the rows of all groups have the same."""
    from pyspark.sql.pandas.types import to_arrow_type

    parts = (serializer.result_count_df_type, columns, serializer.result_state_df_type)
    return tuple(to_arrow_type(each, timezone="UTC") for each in parts)


def _state_row(serializer: Any, state: Any) -> tuple[Any, ...]:
    pickled = None
    if state.exists:
        pickled = serializer.pickleSer.dumps(state._value_schema.toInternal(state._value))  # noqa: SLF001
    return state.json(), state._keyAsUnsafe, pickled, state.oldTimeoutTimestamp  # noqa: SLF001


def _record_batch(
    frames: Sequence[pd.DataFrame],
    states: Sequence[tuple[Any, ...]],
    kinds: tuple[pa.StructType, ...],
) -> pa.RecordBatch:
    """Counts, rows and states side by side, padded to the longest; the JVM reads as many of each as counted."""
    _, kind, of_states = kinds
    rows = sum(map(len, frames))
    size = max(1, rows, len(states))
    counts = [pa.repeat(pa.scalar(count, pa.int32()), size) for count in (rows, len(states))]
    columns = [
        _padded([pa.array(frame[field.name].array, field.type) for frame in frames], field.type, size)
        for field in kind
    ]
    values = zip(*states, strict=True) if states else [()] * len(of_states)
    of_state = [
        _padded([pa.array(each, field.type)], field.type, size)
        for field, each in zip(of_states, values, strict=True)
    ]
    arrays = [
        pa.StructArray.from_arrays(parts, fields=list(of_part))
        for of_part, parts in zip(kinds, (counts, columns, of_state), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, ["_0", "_1", "_2"])


def _padded(parts: Sequence[pa.Array], kind: pa.DataType, size: int) -> pa.Array:
    """The parts in one piece, and nulls up to a size."""
    return pa.concat_arrays([*parts, pa.nulls(size - sum(map(len, parts)), kind)])
