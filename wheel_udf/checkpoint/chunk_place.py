"""Tells the tasks of a query where the files of its chunks are (:mod:`wheel_udf.shard.chunk_files`).

The frame of ``schedule`` or ``watch`` has no checkpoint: that is given when the query is started. Spark
hands the local properties of the thread that starts a query on to the thread of the query, and that to its tasks
(``SparkContext.setLocalProperty``, ``TaskContext.getLocalProperty``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from wheel_udf.shard.chunk_files import CHUNKS_PROPERTY, LEAST_CHARACTERS, ChunkPlace
from wheel_udf.spark.files import local_folder
from wheel_udf.spark.local_mode import executors_are_here
from wheel_udf.spark.object_stores import is_in_object_store, options_of

LEAST_SETTING = "spark.wheel_udf.chunkFileCharacters"
"""Setting of a session: the length from which on a chunk is in a file. Tests set it low."""

_RETAINED = "spark.sql.streaming.minBatchesToRetain"
_RETAINED_BATCHES = "100"


def chunk_place_of(spark: SparkSession, checkpoint: str) -> ChunkPlace | None:
    """Where the chunks of a checkpoint are; None on a file system that is neither local nor an object store.

    Executors of a cluster may not reach a local folder, so they write no chunks to it.
    """
    retain = int(str(spark.conf.get(_RETAINED, _RETAINED_BATCHES)))
    least = int(str(spark.conf.get(LEAST_SETTING, str(LEAST_CHARACTERS))))
    folder = local_folder(checkpoint)
    if folder is None:
        if not is_in_object_store(checkpoint):
            return None
        return ChunkPlace(checkpoint.rstrip("/"), retain, least, options_of(checkpoint))
    return ChunkPlace(str(Path(folder).absolute()), retain, least if executors_are_here(spark) else None)


@contextmanager
def chunks_of_tasks(spark: SparkSession, checkpoint: str) -> Iterator[None]:
    """A query that is started inside gets the place of its checkpoint's chunks."""
    place = chunk_place_of(spark, checkpoint)
    with property_of_tasks(spark, CHUNKS_PROPERTY, "" if place is None else place.to_text()):
        yield


@contextmanager
def property_of_tasks(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Inside, the tasks of a query that is started have this local property."""
    spark.sparkContext.setLocalProperty(name, value)
    try:
        yield
    finally:
        spark.sparkContext.setLocalProperty(name, None)  # type: ignore[arg-type]  # null removes it
