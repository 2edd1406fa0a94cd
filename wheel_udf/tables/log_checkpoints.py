"""Checkpoints of Delta logs, written beside the batches instead of in them.

Without a checkpoint a new reader of a table replays its whole log. Delta's own writer makes one within a commit, for
which a batch would wait; the commits of :mod:`wheel_udf.tables.delta_transaction` make none. Instead, after each
:data:`EVERY` commits a separate thread has the library delta-rs write it::

    commit 99    nothing more
    commit 100   the batch goes on; beside it, for one table at a time: checkpoint, clean-up of the log

The clean-up deletes commits before the checkpoint that are older than the table keeps them. A stream that has not read
them could never continue, so a writer with such a reader skips the clean-up (``keeps_log``), as does a table that
says so (``delta.enableExpiredLogCleanup``).

A checkpoint only makes a log shorter to read. One that a killed process has not written is missing until 100 commits
later; one that fails says so in the log of the process.

Caveat: delta-rs takes a backslash for a slash and decodes ``%41`` twice. A table in a folder with such a name gets no
checkpoint.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from wheel_udf.spark.failures import first_line
from wheel_udf.spark.files import local_folder
from wheel_udf.spark.session import before_stop

_log = logging.getLogger(__name__)

EVERY: Final = 100
"""Commits between two checkpoints; none at a commit of another writer. A new reader replays about so many."""

_CLEANS: Final = "delta.enableExpiredLogCleanup"

_turn: Final = threading.Lock()
"""Held by the thread that writes: one at a time, so that batches keep their cores."""
_threads: Final[dict[str, threading.Thread]] = {}
"""By table, those that write or wait for their turn."""
_changed: Final = threading.Condition()
"""Held to read or change ``_threads``; notified when one of them ends."""


def after_commit(place: str, version: int, *, keeps_log: bool = False) -> None:
    """Has a checkpoint of a table written if one is due, and none is being written.

    Args:
        place: Path or URI of the table.
        version: The number of a commit that was just made.
        keeps_log: Whether commits that have expired stay.
    """
    if version == 0 or version % EVERY:
        return
    with _changed:
        if place in _threads:
            return
        # A daemon: a file system that hangs must not keep the process.
        thread = threading.Thread(
            target=_try,
            args=(place,),
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


def _try(place: str, *, keeps_log: bool) -> None:
    try:
        with _turn:
            if _is_due(place):
                _write(place, keeps_log=keeps_log)
    except Exception as fault:  # noqa: BLE001  # the table is whole without it
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


def _write(place: str, *, keeps_log: bool) -> None:
    from deltalake import DeltaTable  # loads its library, for which a start does not wait

    local = local_folder(place)
    table = DeltaTable(place if local is None else local.absolute().as_uri())
    table.create_checkpoint()
    if not keeps_log and table.metadata().configuration.get(_CLEANS, "true").lower() == "true":
        table.cleanup_metadata()
