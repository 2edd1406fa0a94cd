"""Checkpoints of Delta logs, written beside the batches instead of in them.

Delta writes a checkpoint of a table's log within each commit whose number is a multiple of
``delta.checkpointInterval``. That commit computes the table's whole state by five Spark jobs, for which the batch waits
with all rows that fall due meanwhile. So the tables that this package creates have a long interval, :data:`INTERVAL`,
and each :data:`EVERY` commits a separate thread writes the checkpoint::

    commit 99    nothing more
    commit 100   the batch goes on; beside it, for one table at a time: checkpoint, clean-up of the log
    ...
    commit 10000 Delta's own, for tables that this package no longer writes

Delta Kernel, Delta's library without Spark, writes it; then Delta deletes expired commits. Delta's own jobs beside the
batches would take about ten times the CPU time, and rows due meanwhile would be late. Removing Delta's hook
(``CheckpointHook``) from one transaction does not help: the commit computes the state for its statistics all the same.

The clean-up deletes commits before the checkpoint that are older than the table keeps them. A stream that has not read
them could never continue, so a writer with such a reader skips the clean-up (``keeps_log``).

A checkpoint only makes a log shorter to read. One that a killed process has not written is missing until 100 commits
later; one that fails says so in the log of the process. Tables with a shorter interval (older ones, those of users)
are left to Delta.

Kernel's ``Table.checkpoint`` is public API. Caveat: the methods of ``DeltaLog`` are not; see
:mod:`wheel_udf.spark.private_api`.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from wheel_udf.spark.failures import first_line, is_jvm_end
from wheel_udf.spark.jvm import has_class, java_class, scala_none
from wheel_udf.spark.private_api import DELTA_LOG_CHECKPOINTS, required
from wheel_udf.spark.session import before_stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

EVERY: Final = 100
"""Commits between two checkpoints; none at a commit of another writer. A new reader replays about so many."""

INTERVAL: Final = 10_000
"""``delta.checkpointInterval`` of new tables. Delta's default is 10."""

_ENGINES: Final = "io.delta.kernel.defaults.engine.DefaultEngine"

_turn: Final = threading.Lock()
"""Held by the thread that writes: one at a time, so that batches keep their cores."""
_threads: Final[dict[str, threading.Thread]] = {}
"""By table, those that write or wait for their turn."""
_changed: Final = threading.Condition()
"""Held to read or change ``_threads``; notified when one of them ends."""


def log_checkpoint_properties(spark: SparkSession) -> dict[str, str]:
    """Properties of a new table for log checkpoints by this module; none if the JVM has no Delta Kernel."""
    return {"delta.checkpointInterval": str(INTERVAL)} if has_class(spark, _ENGINES) else {}


def after_commit(spark: SparkSession, place: str, log: Any, version: int, *, keeps_log: bool = False) -> None:
    """Has a checkpoint of a table written if one is due, and none is being written.

    Args:
        spark: The session.
        place: Path or URI of the table.
        log: Delta's object of its log.
        version: The number of a commit that was just made.
        keeps_log: Whether commits that have expired stay.
    """
    if version == 0 or version % EVERY:
        return
    with _changed:
        if place in _threads:
            return
        # A daemon: a JVM that hangs must not keep the process.
        thread = threading.Thread(
            target=_try,
            args=(spark, place, log),
            kwargs={"keeps_log": keeps_log},
            name="wheel-log-checkpoint",
            daemon=True,
        )
        _threads[place] = thread
        try:
            thread.start()
        except RuntimeError as fault:  # the process has as many threads as it may; the batch is committed
            del _threads[place]
            _warn(place, fault)


def finish(timeout_s: float | None = None) -> None:
    """Waits until what was begun is written, at most so long; what still waits for its turn then is given up."""
    with _changed:
        _changed.wait_for(lambda: not _threads, timeout_s)
        _threads.clear()


before_stop(finish)


def _try(spark: SparkSession, place: str, log: Any, *, keeps_log: bool) -> None:
    try:
        with _turn:
            if _is_due(place):
                _write(spark, log, keeps_log=keeps_log)
    except Exception as fault:  # noqa: BLE001  # the table is whole without it
        if not is_jvm_end(fault):
            _warn(place, fault)
    finally:
        with _changed:
            if _is_due(place):
                del _threads[place]
            _changed.notify_all()


def _warn(place: str, fault: Exception) -> None:
    why = first_line(str(fault))
    _log.warning("the log of %s has no new checkpoint: %s; a later commit tries again", place, why)


def _is_due(place: str) -> bool:
    """Whether this thread still is the one of that table: `finish` has not given it up."""
    return _threads.get(place) is threading.current_thread()


@required(DELTA_LOG_CHECKPOINTS)
def _write(spark: SparkSession, log: Any, *, keeps_log: bool) -> None:
    table = log.unsafeVolatileSnapshot()
    version, interval = int(table.version()), int(log.checkpointInterval(table.metadata()))
    if interval <= EVERY or version % interval == 0:
        return  # Delta's own
    engine = java_class(spark, _ENGINES).create(log.newDeltaHadoopConf())
    kernel = java_class(spark, "io.delta.kernel.Table").forPath(engine, log.dataPath().toString())
    kernel.checkpoint(engine, version)
    if keeps_log:
        return
    # Kernel would leave the checksums of commits.
    log.doLogCleanup(table, scala_none(spark))
