"""A folder of small files on any file system: the interface :class:`Folder`. :mod:`wheel_udf.spark.files` opens one."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

PROBE = b"dry run of wheel-udf"
"""The content of the probe of a folder."""


def probe_name() -> str:
    """Hidden from Spark's readers. A checkpoint may begin beside one that a killed process has left."""
    return f".wheel.json.{uuid.uuid4().hex}"


class Folder(Protocol):
    """A folder. Names are relative to it, ``""`` is the folder itself."""

    def name(self, name: str = "") -> str:
        """The full path, for messages."""

    def names(self, folder: str = "") -> list[str]:
        """The names in a folder; none if there is no such folder.

        Raises:
            CheckpointError: It is a file.
        """

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is no such file.

        Raises:
            CheckpointError: It is a folder.
        """

    def open(self, name: str) -> pa.NativeFile:
        """A file, to be read in parts.

        Raises:
            FileNotFoundError: There is no such file.
        """

    def replace(self, name: str, content: bytes) -> None:
        """Writes or replaces a file as a whole; creates the folder if it is missing."""

    def create(self, name: str, content: bytes, *, flush: bool = True) -> bool:
        """Writes a new file as a whole, with missing folders. Returns False, and writes nothing, if the file exists.

        Without `flush` it is not forced to a local disk.
        """

    def remove(self, name: str) -> None:
        """Removes a file, or a folder with its content. Does nothing if it does not exist."""

    def remove_files(self, folder: str, names: Sequence[str]) -> None:
        """Removes files of a folder, in one request where the file system has that; those that do not exist, too."""

    def unwritable_reason(self) -> str | None:
        """Writes and removes a small file, with missing folders. Returns why that failed; None if it did not."""
