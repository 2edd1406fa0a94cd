"""The batch log: the lines of the last batches, in a ring of small files beside the checkpoint.

::

    <checkpoint>-batches/
      1767225600000.jsonl     the name is the instant of its first line
      1767229200000.jsonl     a new file at each start, after an hour or 1 MB; removed after a day, or beyond 20 MB in
                              total

A line is written with one call, and not flushed to the disk: after a crash of the machine the last lines may be missing
or torn. A reader skips a line that is no JSON object, and nothing is written behind a torn line.

Cost: one small write for each batch. Beside the checkpoint and not in it, because the checkpoint is Spark's folder,
which is checked, repaired and moved. A checkpoint that is not on a local path (HDFS, object stores) has no batch log:
there an append is slow or impossible.
"""

from __future__ import annotations

import json
import logging
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
        self._file: Path | None = None
        self._begun_ms = 0

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
        if self._file is None or at_ms >= self._begun_ms + _FILE_MS:
            folder.mkdir(parents=True, exist_ok=True)
            # A wall clock that was set back must not begin a file before the newest.
            self._begun_ms = max(at_ms, *(begun_ms + 1 for begun_ms, _ in _files(folder)), 0)
            self._file = folder / f"{self._begun_ms:015d}{_SUFFIX}"
            _remove_old(folder, at_ms)
        with self._file.open("ab", buffering=0) as file:
            is_torn = file.write(content) < len(content)
            if is_torn or file.tell() >= _FILE_BYTES:
                self._file = None


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
