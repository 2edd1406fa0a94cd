"""Checkpoints of Delta logs, written beside the batches instead of in them.

Delta writes a checkpoint of a table's log within each commit whose number is a multiple of ``delta.checkpointInterval``. That commit computes the table's
whole state, twice, by some Spark jobs: 1.5 to 3 s on 2 busy cores, for which the batch waits with all that falls due meanwhile. So the tables
that this package creates have a long interval, :data:`LOG_CHECKPOINT_INTERVAL`, and each :data:`EVERY` commits a thread of this process writes the checkpoint::

    commit 99    nothing more
    commit 100   the batch goes on; one thread for all tables: checkpoint, clean-up of the log
    ...
    commit 1000  Delta's own, for tables that nobody here writes any more

Taking Delta's hook (``CheckpointHook``) out of the one transaction is not enough: the commit computes the state for its statistics all the same.

A checkpoint only makes a log shorter to read. One that a killed process has not written is missing until 100 commits later; one that fails says so in
the log of the process. Tables with a shorter interval (older ones, those of users) are left to Delta.

Caveat: the methods are not public API of Delta; see :mod:`wheel_udf.platform.private_api`.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Final

from wheel_udf.platform.failures import first_line, is_jvm_end
from wheel_udf.platform.jvm import scala_none
from wheel_udf.platform.private_api import DELTA_LOG_CHECKPOINTS, required

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

EVERY: Final = 100
"""After so many commits a new checkpoint is written. A new reader of a table replays at most this number of small commits."""

LOG_CHECKPOINT_INTERVAL: Final = 1_000
"""``delta.checkpointInterval`` of new tables."""

_worker: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="wheel-log-checkpoint")
_lock: Final = threading.Lock()
_running: Final[dict[str, Future[None]]] = {}
"""By table, what is to be written or is being written."""


def after_commit(spark: SparkSession, place: str, log: Any, version: int) -> None:
    """Has a checkpoint of a table written if one is due, and none is being written.

    Args:
        spark: The session.
        place: Path or URI of the table.
        log: Delta's object of its log.
        version: The number of a commit that was just made.
    """
    if version == 0 or version % EVERY:
        return
    with _lock:
        earlier = _running.get(place)
        if earlier is None or earlier.done():
            _running[place] = _worker.submit(_try, spark, place, log)


def finish(timeout_s: float | None = None) -> None:
    """Waits until what was begun is written."""
    with _lock:
        running = list(_running.values())
    wait(running, timeout_s)


def _try(spark: SparkSession, place: str, log: Any) -> None:
    try:
        _write(spark, log)
    except Exception as fault:  # noqa: BLE001  # the table is whole without it
        if not is_jvm_end(fault):
            why = first_line(str(fault))
            _log.warning("the log of %s has no new checkpoint: %s; a later commit tries again", place, why)


@required(DELTA_LOG_CHECKPOINTS)
def _write(spark: SparkSession, log: Any) -> None:
    table = log.unsafeVolatileSnapshot()
    if int(log.checkpointInterval(table.metadata())) > EVERY:
        log.checkpoint(table, scala_none(spark))
