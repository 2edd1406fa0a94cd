"""The batch log: the lines of the last batches, in a ring of small files beside the checkpoint.

::

    <checkpoint>-batches/
      1767225600000.jsonl     the name is the instant of its first line
      1767229200000.jsonl     a new file after an hour or 1 MB; removed after a day, or beyond 20 MB in total

A line is written with one call, at the end of the newest file, and not flushed to the disk: after a crash of the
machine the last lines may be missing or torn. A reader skips a line that is no JSON object, and a writer that finds a
torn line begins a new one, so at most the torn line is lost.

Cost: one small write for each batch. Beside the checkpoint and not in it, because the checkpoint is Spark's folder,
which is checked, repaired and moved. A checkpoint that is not on a local path (HDFS, object stores) has no batch log:
there an append is slow or impossible.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from wheel_udf.metrics.lines import line_text
from wheel_udf.spark.files import local_folder

_log = logging.getLogger(__name__)

LONGEST_MS: Final = 24 * 3_600_000
"""Files whose last line is older are removed."""

MOST_BYTES: Final = 20_000_000
"""Bytes of all files; the oldest are removed."""

_FILE_MS: Final = 3_600_000
_FILE_BYTES: Final = 1_000_000
_SUFFIX: Final = ".jsonl"


class BatchLog:
    """Appends lines. A failure is logged once and never raised.

    Args:
        checkpoint: Folder of the checkpoint. On another file system than the local one, nothing is written.
    """

    def __init__(self, checkpoint: str) -> None:
        self._folder = _folder(checkpoint)
        self._has_failed = False
        self._file: _Newest | None = None

    def append(self, line: Mapping[str, Any]) -> None:
        """Appends a line; it has ``at_ms``."""
        if self._folder is None:
            return
        try:
            self._append(self._folder, int(line["at_ms"]), (line_text(line) + "\n").encode())
        except OSError as fault:
            self._file = None
            if not self._has_failed:
                self._has_failed = True
                _log.warning("the batch log %s cannot be written: %s", self._folder, fault)

    def _append(self, folder: Path, at_ms: int, content: bytes) -> None:
        if self._file is None:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = _Newest.found(folder)
        if self._file is None or self._file.is_full(at_ms):
            self._file = _Newest.begun(folder, at_ms, after=self._file)
            _remove_old(folder, at_ms)
        self._file.append(content)


class _Newest:
    """The file that lines are appended to."""

    def __init__(self, path: Path, begun_ms: int) -> None:
        self.path, self.begun_ms = path, begun_ms
        self.bytes, self._is_torn = _size_and_tear(path)

    @classmethod
    def found(cls, folder: Path) -> _Newest | None:
        files = _files(folder)
        return cls(files[-1][1], files[-1][0]) if files else None

    @classmethod
    def begun(cls, folder: Path, at_ms: int, *, after: _Newest | None) -> _Newest:
        # A wall clock that was set back must not begin a file before the newest.
        begun_ms = at_ms if after is None else max(at_ms, after.begun_ms + 1)
        return cls(folder / f"{begun_ms:015d}{_SUFFIX}", begun_ms)

    def is_full(self, at_ms: int) -> bool:
        return self.bytes >= _FILE_BYTES or at_ms >= self.begun_ms + _FILE_MS

    def append(self, content: bytes) -> None:
        content = b"\n" + content if self._is_torn else content
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            written = os.write(handle, content)
        finally:
            os.close(handle)
        self.bytes += written
        self._is_torn = written < len(content)


def _size_and_tear(path: Path) -> tuple[int, bool]:
    """Returns the size of a file, and whether it ends in the middle of a line."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            if not size:
                return 0, False
            file.seek(-1, os.SEEK_END)
            return size, file.read(1) != b"\n"
    except FileNotFoundError:
        return 0, False


def _remove_old(folder: Path, at_ms: int) -> None:
    files = _files(folder)
    for (_, path), (end_ms, _) in pairwise(files):
        if end_ms < at_ms - LONGEST_MS:
            path.unlink(missing_ok=True)
    kept = 0
    for _, path in reversed(_files(folder)):
        kept += path.stat().st_size
        if kept > MOST_BYTES:
            path.unlink(missing_ok=True)


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
    folder = _folder(checkpoint)
    if folder is None:
        return []
    files = _files(folder)
    # What a file holds ends before the next one begins; the newest may be written to.
    over = sum(begun_ms < since_ms for begun_ms, _ in files[1:])
    lines = [line for _, path in files[over:] for line in _lines(path) if line["at_ms"] >= since_ms]
    return sorted(lines, key=lambda line: line["at_ms"])


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:  # removed meanwhile
        return
    for text in content.split(b"\n"):
        try:
            line = json.loads(text)
        except ValueError:  # torn, or being written
            continue
        if isinstance(line, dict) and isinstance(line.get("at_ms"), int):
            yield line


def _folder(checkpoint: str) -> Path | None:
    folder = local_folder(checkpoint.rstrip("/") or "/")
    return None if folder is None else folder.with_name(f"{folder.name}-batches")


def _files(folder: Path) -> list[tuple[int, Path]]:
    """The files with the instants of their first lines, oldest first."""
    named = [(path.stem, path) for path in folder.glob(f"*{_SUFFIX}")]
    return sorted((int(stem), path) for stem, path in named if stem.isdecimal())
