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

import atexit
import logging
import threading
from typing import Final

from wheel_udf.control.wall import elapsed_ms
from wheel_udf.spark.failures import first_line
from wheel_udf.spark.files import local_folder
from wheel_udf.spark.object_stores import is_in_object_store, options_of

_log = logging.getLogger(__name__)

EVERY: Final = 100
"""Commits between two checkpoints; none at a commit of another writer. A new reader replays about so many."""

_CLEANS: Final = "delta.enableExpiredLogCleanup"

writing: Final = threading.Lock()
"""Held by the thread that writes: one at a time, so that batches keep their cores."""
_threads: Final[dict[str, threading.Thread]] = {}
"""By table, the last one that writes or waits for its turn."""
_PATIENCE_S: Final = 10.0
"""Longest wait at the end of the process."""


def after_commit(place: str, version: int, *, keeps_log: bool = False) -> None:
    """Has a checkpoint of a table written if one is due, and none is being written.

    Args:
        place: Path or URI of the table.
        version: The number of a commit that was just made.
        keeps_log: Whether commits that have expired stay.
    """
    if version == 0 or version % EVERY or (place in _threads and _threads[place].is_alive()):
        return
    # A daemon: a file system that hangs must not keep the process.
    thread = threading.Thread(
        target=_try, args=(place,), kwargs={"keeps_log": keeps_log}, name="wheel-log-checkpoint", daemon=True
    )
    try:
        thread.start()
    except RuntimeError as fault:  # the process has as many threads as it may; the batch is committed
        _warn(place, fault)
    else:
        _threads[place] = thread


def finish(timeout_s: float | None = None) -> None:
    """Waits until what was begun is written, at most so long."""
    began_ms = elapsed_ms()
    for thread in list(_threads.values()):
        spent_s = (elapsed_ms() - began_ms) / 1000
        thread.join(None if timeout_s is None else max(0.0, timeout_s - spent_s))


atexit.register(finish, _PATIENCE_S)


def _try(place: str, *, keeps_log: bool) -> None:
    try:
        with writing:
            write_checkpoint(place, keeps_log=keeps_log)
    except Exception as fault:  # noqa: BLE001  # the table is whole without it
        _warn(place, fault)


def _warn(place: str, fault: Exception) -> None:
    why = first_line(str(fault))
    _log.warning("the log of %s has no new checkpoint: %s; a later commit tries again", place, why)


def write_checkpoint(place: str, *, keeps_log: bool) -> None:
    """Writes a checkpoint of the log now, and removes what has expired."""
    from deltalake import DeltaTable  # loads its library, for which a start does not wait

    local = local_folder(place)
    if local is None:
        table = DeltaTable(place, storage_options=options_of(place) if is_in_object_store(place) else None)
    else:
        table = DeltaTable(local.absolute().as_uri())
    table.create_checkpoint()
    if not keeps_log and table.metadata().configuration.get(_CLEANS, "true").lower() == "true":
        table.cleanup_metadata()
