"""The query of the first batch of a moved checkpoint: parcels of rows in, the state of each shard out.

It has the sources, the order of sources, the grouping and the state of the operator's own query
(:mod:`wheel_udf.stream.sharded_query`), so that the next start, with the real sources, goes on in the same
checkpoint::

    stand-in of the clock (a row per shard) --join--> groupBy(shard) --> applyInPandasWithState(seed worker) --> reports
    stand-ins of the other sources (no rows) -'
    parcels (a table) ------------------------'

:func:`stand_ins` alone is the query of an intake, which has no state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions as F

from wheel_udf.common.geometry import Wheel
from wheel_udf.common.paths import as_pattern
from wheel_udf.spark.object_stores import settings_of
from wheel_udf.spark.worker_python import require_worker_python
from wheel_udf.stream.clock_rows import register
from wheel_udf.stream.seed_worker import PARCEL_TYPE, SEEDED_TYPE, SeedWorker, StateOf, packer
from wheel_udf.stream.sharded_query import by_shard, shard_column
from wheel_udf.stream.sharding import key_of_shard, shard_keys
from wheel_udf.stream.source_positions import POSITION_FORMAT, PositionSource
from wheel_udf.wheel.seed import Seed


def pack_by_shard(rows: DataFrame, kind: str, schema: pa.Schema, *, by: str, shards: int) -> DataFrame:
    """Packs rows of a kind, with the columns of `schema`, into parcels; the hash of column `by` chooses the shard."""
    placed = rows.select(shard_column(by, shards), *schema.names)
    return placed.mapInArrow(packer(kind, schema), PARCEL_TYPE)


def stand_ins(spark: SparkSession, positions: Sequence[Any], empty_folder: str) -> list[DataFrame]:
    """Streams without rows, each with the position of a source.

    Args:
        spark: A session.
        positions: JSON values; None for a source that had no offset yet.
        empty_folder: A folder without files, whose stream has no offset either.
    """
    register(spark, PositionSource)
    return [
        spark.readStream.schema("number int").parquet(as_pattern(empty_folder))
        if position is None
        else _stand_in(spark, position)
        for position in positions
    ]


def _stand_in(spark: SparkSession, position: Any, shards: int = 0) -> DataFrame:
    options = {"offset": json.dumps(position), "shards": str(shards)}
    return spark.readStream.format(POSITION_FORMAT).options(**options).load()


def seeding(
    content: DataFrame,
    make: StateOf,
    state_columns: Mapping[str, str],
    *,
    wheel: Wheel,
    seeds: Sequence[Seed],
    clock_position: Any,
    others: Sequence[DataFrame],
) -> DataFrame:
    """The streaming frame of the first batch: a row per shard (:data:`~wheel_udf.stream.seed_worker.SEEDED_TYPE`).

    Args:
        content: The parcels.
        make: Makes a state: :func:`~wheel_udf.stream.seed_worker.wheel_state` or ``watch_state``.
        state_columns: Columns of a shard's state, name and Spark type.
        wheel: The new geometry.
        seeds: Clock and counts of each shard.
        clock_position: Where the clock's source begins.
        others: The :func:`stand_ins` of the other sources, in the order of the query.
    """
    spark, shards = content.sparkSession, len(seeds)
    require_worker_python(spark)
    register(spark, PositionSource)
    ticks = _stand_in(spark, clock_position, shards)
    touched = ticks.select(key_of_shard(F.col("number"), shards).alias("shard"))
    rows = touched.join(content, "shard", "left").select("shard", "kind", "parcel")
    nothing = (F.lit(None).cast("string").alias("kind"), F.lit(None).cast("binary").alias("parcel"))
    silent = [other.select(F.col("number").alias("shard"), *nothing) for other in others]
    function = SeedWorker(wheel, shards, shard_keys(shards), tuple(seeds), make, settings_of(spark))
    return by_shard(reduce(DataFrame.unionByName, silent, rows), function, SEEDED_TYPE, state_columns)
