"""Checkpoints of Delta logs, written beside the batches instead of in them.

Delta writes a checkpoint of a table's log within each commit whose number is a multiple of ``delta.checkpointInterval``: some Spark jobs, 0.5 to 2.5 s
on 2 busy cores, for which a batch waited with all that fell due meanwhile::

    commit 99    no checkpoint is due: nothing changes
    commit 100   one is due: Delta's hook is taken out of the transaction --> commit --> the batch goes on
                                                                                |
                                                   one thread for all tables:   `--> checkpoint, clean-up of the log

A checkpoint only makes a log shorter to read. One that a killed process has not written is missing until the next commit that is due; one that fails says
so in the log of the process. A commit that gets another number than expected, since another writer was faster, has Delta's own checkpoint if it is due.

Caveat: the classes are not public API of Delta; see :mod:`wheel_udf.platform.private_api`. Without them, Delta writes its checkpoints itself.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from wheel_udf.common import UnsupportedVersionError
from wheel_udf.platform.failures import first_line, is_jvm_end
from wheel_udf.platform.jvm import java_class, scala_none
from wheel_udf.platform.private_api import DELTA_LOG_CHECKPOINTS, required

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_DELTA: Final = "org.apache.spark.sql.delta"
_HOOK: Final = f"{_DELTA}.hooks.CheckpointHook$"
_OTHER_CHECKPOINTS: Final = f"{_DELTA}.AdaptiveMetadataTableFeature$"
"""A table with this feature has checkpoints of another kind, which only the hook can write."""

_worker: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="wheel-log-checkpoint")
_lock: Final = threading.Lock()
_running: Final[dict[str, Future[None]]] = {}
"""By table, what is to be written or is being written."""


def take_out(spark: SparkSession, transaction: Any) -> bool:
    """Takes the checkpoint out of a transaction whose commit would write one.

    Args:
        spark: The session.
        transaction: Delta's object, before its commit.

    Returns:
        Whether the caller has to :func:`write_beside` after the commit.
    """
    with suppress(UnsupportedVersionError), required(DELTA_LOG_CHECKPOINTS):
        before = transaction.snapshot()
        if not transaction.isCheckpointNeeded(int(before.version()) + 1, before):
            return False
        if before.protocol().isFeatureSupported(_object(spark, _OTHER_CHECKPOINTS)):
            return False
        getattr(transaction.postCommitHooks(), "$minus$eq")(_object(spark, _HOOK))
        return True
    return False


def write_beside(spark: SparkSession, log: Any) -> None:
    """Has a checkpoint of a table written as the table is now, unless one is being written.

    Args:
        spark: The session.
        log: Delta's object.
    """
    place, snapshot = str(log.dataPath()), log.unsafeVolatileSnapshot()
    with _lock:
        earlier = _running.get(place)
        if earlier is None or earlier.done():
            _running[place] = _worker.submit(_write, spark, log, snapshot, place)


def finish(timeout_s: float | None = None) -> None:
    """Waits until what was begun is written."""
    with _lock:
        running = list(_running.values())
    wait(running, timeout_s)


def _write(spark: SparkSession, log: Any, snapshot: Any, place: str) -> None:
    try:
        log.checkpoint(snapshot, scala_none(spark))
    except Exception as fault:  # noqa: BLE001  # the table is whole without it
        if not is_jvm_end(fault):
            _log.warning(
                "the log of %s has no new checkpoint: %s; a later commit tries again",
                place,
                first_line(str(fault)),
            )


def _object(spark: SparkSession, name: str) -> Any:
    return getattr(java_class(spark, name), "MODULE$")
