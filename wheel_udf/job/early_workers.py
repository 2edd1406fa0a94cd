"""Starts the Python processes of the executors while the query is planned.

::

    session --+-- this thread     sources, plan of the query ----------> first batch
              +-- another one     a job of one row per process: Python, numpy, pandas, Arrow, the operator

A process of Spark takes 0.6 s until it has imported the operator, and the first batch would wait for two rounds of them, the clock's and the
operator's. Spark keeps a process for later tasks, so those of the first batch find them ready.

Only where the driver is the executor: another machine's executors may not be there yet, and choose their processes themselves. A start of a
process that fails here fails nothing: the first batch starts its own.

Measured on 2 idle cores in the direct mode, medians of four starts in turn: a form of this and the later C2 of
:data:`wheel_udf.platform.local_mode.LATE_C2` together 11.1 s to the first batch, without them 12.6; each alone 0.3 s less at most, since the cores are
busy then and C2 has to leave time for this. With ``make bench-start`` (three rounds, another hour): 14.4 s beside 15.0, tiered 17.7 beside 19.3.
Lost, without a gain: a batch read of a Python data source in place of the job, which starts the processes of the planning as well, and a small Delta
table written beside it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Final

from wheel_udf.platform import is_one_jvm

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_OPERATORS: Final = ("wheel_udf.stream.wheel_worker", "wheel_udf.stream.watch_worker")


def start_early(spark: SparkSession, shards: int) -> threading.Thread | None:
    """Starts the Python processes that a batch needs, on a thread that nobody waits for.

    Args:
        spark: The session.
        shards: Number of shards, which is the most processes that a batch uses at once.

    Returns:
        The thread; None where other machines run the tasks.
    """
    if not is_one_jvm({"spark.master": str(spark.sparkContext.master)}):
        return None
    processes = min(shards, spark.sparkContext.defaultParallelism)
    thread = threading.Thread(target=_start, args=(spark, processes), name="wheel-workers", daemon=True)
    thread.start()
    return thread


def _start(spark: SparkSession, processes: int) -> None:
    # Also when the session ends meanwhile.
    with suppress(Exception):
        spark.sparkContext.setJobDescription("Python processes of the first batch")
        spark.range(0, processes, 1, processes).mapInArrow(_with_operators, "id long").collect()


def _with_operators(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in the process: imports what the tasks of a batch will."""
    for module in _OPERATORS:
        import_module(module)
    yield from batches
