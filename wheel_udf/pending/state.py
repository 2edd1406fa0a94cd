"""Reads the state of a query: what Spark's state store holds of each shard, as a DataFrame.

Spark's reader of state (the source ``statestore``) returns the state after the last committed batch, one row per
shard. The chunks in that row are decoded in Python workers, shard by shard, as Arrow batches. Cost: O(entries in the
state).

Of some ids, only their shards are decoded, and of these only the column of the ids, up to the chunks that hold one.
Spark's reader still loads the stores of all shards: it has no filter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from wheel_udf.checkpoint.chunk_place import chunk_place_of
from wheel_udf.checkpoint.identity import identity_of
from wheel_udf.checkpoint.spark_logs import batch_at, committed_offsets, state_format
from wheel_udf.common.errors import CheckpointError
from wheel_udf.shard.chunk_store import ChunkStore
from wheel_udf.shard.rows import ENTRY_SCHEMA, MEMORY_SCHEMA
from wheel_udf.shard.shard_text import (
    MARKED_ENTRY_SCHEMA,
    held_of_text,
    marked_entries_of_text,
    memory_of_text,
    soonest_of_text,
)
from wheel_udf.spark.connect_session import require_jvm
from wheel_udf.spark.hadoop_files import state_location
from wheel_udf.spark.queries import use_readable_state
from wheel_udf.stream.sharding import key_of_shard, shard_keys, shard_of_id
from wheel_udf.stream.worker import files_of


class OfText(Protocol):
    """Decodes the text of a shard."""

    def __call__(self, text: str, *, texts: ChunkStore | None) -> pa.Table:
        """The rows in a text; `texts` has the chunks that are outside it."""


_FEW_IDS: Final = 20
"""Up to this many ids, only their shards are decoded; more ids belong to most shards anyway."""


def waiting(
    spark: SparkSession,
    checkpoint: str,
    *,
    ids: Sequence[str] | None = None,
    as_of_ms: int | None = None,
    first: int | None = None,
) -> DataFrame:
    """Returns the entries in the state of a query after its last committed batch (by an instant), with the columns of
    ``ENTRY_SCHEMA`` and ``in_flight``: whether the sender of punctual delivery has got the entry; with `ids` only
    theirs, with `first` (and no ids) of each shard only so many, which are due first.
    """
    of_text: OfText = partial(marked_entries_of_text, ids=ids)
    if first is not None and ids is None:
        of_text = partial(soonest_of_text, most=first)
    return from_state(spark, checkpoint, of_text, MARKED_ENTRY_SCHEMA, ids=ids, as_of_ms=as_of_ms)


def held(
    spark: SparkSession, checkpoint: str, *, ids: Sequence[str] | None = None, as_of_ms: int | None = None
) -> DataFrame:
    """As :func:`waiting`, without ``in_flight``, for less: series whole, of most others only ids and versions (the rest
    may be null).
    """
    of_text = partial(held_of_text, ids=ids)
    return from_state(spark, checkpoint, of_text, ENTRY_SCHEMA, ids=ids, as_of_ms=as_of_ms)


def remembered(spark: SparkSession, checkpoint: str, *, ids: Sequence[str] | None = None) -> DataFrame:
    """Returns the ended ids that the state of a query still remembers, with the columns of ``MEMORY_SCHEMA``; with
    `ids` only these.
    """
    return from_state(spark, checkpoint, partial(memory_of_text, ids=ids), MEMORY_SCHEMA, ids=ids)


def from_state(
    spark: SparkSession,
    checkpoint: str,
    of_text: OfText,
    schema: pa.Schema,
    *,
    ids: Sequence[str] | None = None,
    as_of_ms: int | None = None,
) -> DataFrame:
    """Returns the rows in the chunks of all shards of a query, decoded on the executors.

    Args:
        spark: A session.
        checkpoint: Checkpoint folder of the query.
        of_text: Decodes the column ``chunks`` of a shard's state; runs on executors. A chunk outside the row is read as
            far as it is opened.
        schema: The columns of the rows.
        ids: Decode only the shards of these ids; None for all shards.
        as_of_ms: State after the last batch planned by this instant; None for the last committed batch.

    Raises:
        CheckpointError: The checkpoint is damaged, or does not go back so far.
    """

    def opened(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text, key in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                files = files_of(place, keys.index(key)) if place is not None else None
                yield from of_text(text, texts=files).to_batches()

    columns, states = from_arrow_schema(schema), _states(spark, checkpoint, as_of_ms)
    if states is None:
        return spark.createDataFrame([], columns)
    place, keys = chunk_place_of(spark, checkpoint), shard_keys(identity_of(checkpoint).shards)
    if ids and len(ids) <= _FEW_IDS:
        states = states.where(_is_shard_of(ids, identity_of(checkpoint).shards))
    return states.select("value.groupState.chunks", "key.shard").mapInArrow(opened, columns)


def _is_shard_of(ids: Sequence[str], shards: int) -> Column:
    """Whether a row of the state is of a shard of one of the ids. Spark computes the shards once, while it plans."""
    keys = [key_of_shard(shard_of_id(F.lit(each), shards), shards) for each in ids]
    return F.col("key.shard").isin(*keys)


def _states(spark: SparkSession, checkpoint: str, as_of_ms: int | None = None) -> DataFrame | None:
    """Returns one row per shard after the last committed batch (by an instant); None before the first batch."""
    # Spark creates the coordinator of state stores together with the session's stream manager, on first use. A reader
    # of state only looks the coordinator up and fails where no stream has run (Spark 4.2: "Cannot find endpoint:
    # StateStoreCoordinator").
    require_jvm(spark, "a reader of state")
    _ = spark.streams
    if not use_readable_state(spark, state_format(checkpoint)):
        raise CheckpointError(
            "this Spark cannot read the state of a checkpoint that was begun by a later one",
            field=checkpoint,
            rule="begun by the same Spark, or read with Spark 4.1 or newer",
            hint="run the verb with Spark 4.1 or newer; to move the job here, export it there and import it here",
        )
    reader, place = spark.read.format("statestore"), state_location(spark, checkpoint)
    if as_of_ms is not None:
        batch = batch_at(checkpoint, as_of_ms)
        return None if batch is None else reader.option("batchId", batch).load(place)
    return None if committed_offsets(checkpoint) is None else reader.load(place)


def clock_of(spark: SparkSession, checkpoint: str) -> int | None:
    """Returns the latest clock in the state of a query (UTC epoch ms); None before the first batch."""
    clocks = [head["clock_ms"] for head in heads_of(spark, checkpoint)]
    return max((clock_ms for clock_ms in clocks if clock_ms is not None), default=None)


def heads_of(spark: SparkSession, checkpoint: str) -> list[dict[str, Any]]:
    """Returns the scalars of each shard that has a state: its row without ``chunks``, and its grouping key ``key``."""
    states = _states(spark, checkpoint)
    if states is None:
        return []
    columns = (
        states.select("key.shard", "value.groupState.*").drop("chunks").withColumnRenamed("shard", "key")
    )
    return [row.asDict() for row in columns.collect()]
