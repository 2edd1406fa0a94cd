"""The batch log: the lines of the last batches, in a ring of small files beside the checkpoint.

::

    <checkpoint>-batches/
      1767225600000.jsonl     the name is the instant of its first line
      1767229200000.jsonl     a new file at each start, after an hour or 1 MB; removed after a day, or beyond 20 MB in
                              total

On a local path a line is written with one call, and not flushed to the disk: after a crash of the machine the last
lines may be missing or torn. A reader skips a line that is no JSON object, and nothing is written behind a torn line.

On other file systems nothing can be appended: a file of at most 100 KB is written anew with all its lines, half a
minute after the first one that it lacks, and at the end of the run. So a job that is killed lacks the lines of its last
half minute.

Cost: one small write for each batch; elsewhere at most two requests a minute, and none without batches. Beside the
checkpoint and not in it, because the checkpoint is Spark's folder, which is checked, repaired and moved.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Protocol

from wheel_udf.common.errors import CheckpointError
from wheel_udf.common.secrets import in_short
from wheel_udf.spark.files import local_folder, open_folder
from wheel_udf.spark.folder import Folder

_log = logging.getLogger(__name__)

LONGEST_MS: Final = 24 * 3_600_000
"""Files whose last line is older are removed."""

MOST_BYTES: Final = 20_000_000
"""Bytes of all files; the oldest are removed."""

WRITE_AFTER_S: Final = 30.0
"""Elsewhere than on a local path: how long a line may wait."""

_FILE_MS: Final = 3_600_000
_FILE_BYTES: Final = 1_000_000
_REMOTE_FILE_BYTES: Final = 100_000
_SUFFIX: Final = ".jsonl"


class BatchLog:
    """Appends lines. A failure is logged once and never raised.

    Args:
        checkpoint: Folder of the checkpoint.
        write_after_s: See :data:`WRITE_AFTER_S`.
    """

    def __init__(self, checkpoint: str, *, write_after_s: float = WRITE_AFTER_S) -> None:
        self._place, self._write_after_s = batches_of(checkpoint), write_after_s
        self._ring: _Ring | None = None
        self._has_failed = False
        self._begun_ms: int | None = None

    def append(self, line: Mapping[str, Any]) -> None:
        """Appends a line; it has ``at_ms``."""
        # Who only reads does not wait for what a line is made of.
        from wheel_udf.metrics.lines import line_text

        try:
            self._append(int(line["at_ms"]), (line_text(line) + "\n").encode())
        except Exception as fault:  # noqa: BLE001  # of any file system: a log stops no job
            self._begun_ms = None
            self._warn(fault)

    def close(self) -> None:
        """Writes what is not written yet."""
        if self._ring is not None:
            self._ring.close()

    def _warn(self, fault: Exception) -> None:
        if not self._has_failed:
            self._has_failed = True
            _log.warning("the batch log %s cannot be written: %s", self._place, in_short(fault))

    def _append(self, at_ms: int, content: bytes) -> None:
        if self._ring is None or self._begun_ms is None or at_ms >= self._begun_ms + _FILE_MS:
            folder, local = open_folder(self._place), local_folder(self._place)
            if self._ring is None:
                after_s = self._write_after_s
                self._ring = _RemoteRing(folder, after_s, self._warn) if local is None else _LocalRing(local)
            # A wall clock that was set back must not begin a file before the newest.
            self._begun_ms = max(at_ms, *(begun_ms + 1 for begun_ms, _ in _files(folder)), 0)
            self._ring.begin(f"{self._begun_ms:015d}{_SUFFIX}")
            _remove_old(folder, self._ring, at_ms)
        if not self._ring.has_room_after(content):
            self._begun_ms = None


class _Ring(Protocol):
    """Writes the newest file."""

    def begin(self, name: str) -> None:
        """Begins a file."""

    def has_room_after(self, content: bytes) -> bool:
        """Appends a line; returns whether another one may follow."""

    def bytes_of(self, name: str) -> int:
        """The length of a file."""

    def close(self) -> None:
        """Writes what is not written yet."""


class _LocalRing:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = ""

    def begin(self, name: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._name = name

    def has_room_after(self, content: bytes) -> bool:
        with (self._folder / self._name).open("ab", buffering=0) as file:
            return file.write(content) == len(content) and file.tell() < _FILE_BYTES

    def bytes_of(self, name: str) -> int:
        return (self._folder / name).stat().st_size

    def close(self) -> None:
        """All is written."""


class _RemoteRing:
    """Keeps the lines of the newest file, which a timer writes."""

    def __init__(self, folder: Folder, after_s: float, on_fault: Callable[[Exception], None]) -> None:
        self._folder, self._after_s, self._on_fault = folder, after_s, on_fault
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._timer: threading.Timer | None = None
        self._name, self._content = "", b""

    def begin(self, name: str) -> None:
        self.close()
        self._name, self._content = name, b""

    def has_room_after(self, content: bytes) -> bool:
        with self._lock:
            self._content += content
            if self._timer is None:
                self._timer = threading.Timer(self._after_s, self.close)
                self._timer.daemon = True
                self._timer.start()
            return len(self._content) < _REMOTE_FILE_BYTES

    def bytes_of(self, _name: str) -> int:
        return _REMOTE_FILE_BYTES

    def close(self) -> None:
        with self._writing:
            with self._lock:
                timer, self._timer = self._timer, None
                name, content = self._name, self._content
            if timer is None:
                return
            timer.cancel()
            try:
                self._folder.replace(name, content)
            except Exception as fault:  # noqa: BLE001  # of any file system
                self._on_fault(fault)


def _remove_old(folder: Folder, ring: _Ring, at_ms: int) -> None:
    files = _files(folder)
    old = [name for (_, name), (end_ms, _) in pairwise(files) if end_ms < at_ms - LONGEST_MS]
    kept = 0
    for _, name in reversed(files[len(old) :]):
        kept += ring.bytes_of(name)
        if kept > MOST_BYTES:
            old.append(name)
    if old:
        folder.remove_files("", old)


def read_batches(checkpoint: str, since_ms: int) -> list[dict[str, Any]]:
    """Returns the lines of the batches that ended at or after an instant, oldest first.

    Reads only the files that can hold them. It may run while the job writes. The members of a line are described in
    :mod:`wheel_udf.metrics`.

    Args:
        checkpoint: Folder of the job's checkpoint.
        since_ms: The instant (UTC epoch ms).

    Returns:
        The lines; none if the job has no batch log.
    """
    folder = open_folder(batches_of(checkpoint))
    try:
        files = _files(folder)
    except CheckpointError:  # its place is taken by a file
        return []
    # What a file holds ends before the next one begins; the newest may be written to.
    over = sum(begun_ms < since_ms for begun_ms, _ in files[1:])
    lines = [line for _, name in files[over:] for line in _lines(folder, name) if line["at_ms"] >= since_ms]
    return sorted(lines, key=lambda line: line["at_ms"])


def last_line(checkpoint: str, query: str) -> dict[str, Any] | None:
    """Returns the line of the last batch of a query that is in the log; None if there is none."""
    folder = open_folder(batches_of(checkpoint))
    with suppress(CheckpointError):  # as above
        for _, name in reversed(_files(folder)):
            mine = [line for line in _lines(folder, name) if line.get("query") == query]
            if mine:
                return mine[-1]
    return None


def _lines(folder: Folder, name: str) -> Iterator[dict[str, Any]]:
    for text in (folder.read(name) or b"").split(b"\n"):  # it may have been removed meanwhile
        try:
            line = json.loads(text)
        except ValueError:  # torn, or being written
            continue
        if isinstance(line, dict) and isinstance(line.get("at_ms"), int):
            yield line


def batches_of(checkpoint: str) -> str:
    """The folder of the batch log of a checkpoint."""
    local = local_folder(checkpoint.rstrip("/") or "/")
    return f"{checkpoint.rstrip('/') if local is None else local}-batches"


def _files(folder: Folder) -> list[tuple[int, str]]:
    """The files with the instants of their first lines, oldest first."""
    stems = [name.removesuffix(_SUFFIX) for name in folder.names() if name.endswith(_SUFFIX)]
    return sorted((int(stem), f"{stem}{_SUFFIX}") for stem in stems if stem.isdecimal())
