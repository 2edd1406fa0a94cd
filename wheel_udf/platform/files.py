"""Small files in the folder of a checkpoint, on the local file system or any that Hadoop knows.

A file is replaced as a whole or not at all. On the local file system a draft is written, flushed to the disk and renamed; then the folder is
flushed, because only that puts the rename on the disk. On other file systems Spark's manager of checkpoint files replaces it, so whatever
can hold Spark's logs can hold these files.

Caveats: one writer at a time; two would share a draft. A path without a scheme is a local one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError

from wheel_udf.common import CheckpointError
from wheel_udf.platform.jvm import hadoop_configuration, java_class
from wheel_udf.platform.private_api import CHECKPOINT_FILES, required


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

    def replace(self, name: str, content: bytes) -> None:
        """Writes or replaces a file as a whole; creates the folder if it is missing."""

    def create(self, name: str, content: bytes) -> bool:
        """Writes a new file as a whole, with the folders that it needs. Returns False, and writes nothing, if there is one of this name."""

    def remove(self, name: str) -> None:
        """Removes a file, or a folder with all that is in it. Does nothing if there is none of this name."""

    def unwritable_reason(self) -> str | None:
        """Writes a small file and removes it, with the folders that it needed. Returns why that failed; None if it did not."""


class _LocalFolder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def name(self, name: str = "") -> str:
        return str(self.folder / name)

    def names(self, folder: str = "") -> list[str]:
        try:
            return [file.name for file in (self.folder / folder).iterdir()]
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            raise CheckpointError("not a folder", field=self.name(folder), hint="use another path") from None

    def read(self, name: str) -> bytes | None:
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None
        except (IsADirectoryError, NotADirectoryError):
            raise CheckpointError("not a file", field=self.name(name), hint="use another path") from None

    def replace(self, name: str, content: bytes) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.folder / f".{name}.draft"
        _write_through(draft, content)
        draft.replace(self.folder / name)
        _sync(self.folder)

    def create(self, name: str, content: bytes) -> bool:
        place = self.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
        try:
            _write_through(draft, content)
            os.link(draft, place)  # unlike a rename, it replaces nothing
        except FileExistsError:
            return False
        finally:
            draft.unlink(missing_ok=True)
        _sync(place.parent)
        return True

    def remove(self, name: str) -> None:
        place = self.folder / name
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)

    def unwritable_reason(self) -> str | None:
        missing = [each for each in (self.folder, *self.folder.parents) if not each.exists()]
        probe = self.folder / _probe_name()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(_PROBE)
        except OSError as fault:
            return f"{fault.strerror}: {fault.filename}"
        finally:
            with suppress(OSError):
                probe.unlink(missing_ok=True)
            for each in missing:  # not one that somebody else has begun to use
                with suppress(OSError):
                    each.rmdir()
        return None


def _write_through(place: Path, content: bytes) -> None:
    with place.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Puts new names in a folder on the disk; only this does."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_PROBE = b"dry run of wheel-udf"


def _probe_name() -> str:
    """Hidden from Spark's readers; if it is left by a kill, a checkpoint may begin beside it, as beside a draft of its identity."""
    return f".wheel.json.{uuid.uuid4().hex}"


_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager$"


class _HadoopFolder:
    """A folder on any file system of Hadoop, written by Spark's manager of checkpoint files."""

    def __init__(self, folder: str) -> None:
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        if session is None:
            raise CheckpointError("this path needs a running Spark session", field="checkpoint", value=folder)
        self._path = java_class(session, "org.apache.hadoop.fs.Path")
        self.folder = folder
        configuration = hadoop_configuration(session)
        self._system = self._path(folder).getFileSystem(configuration)
        with required(CHECKPOINT_FILES):
            companion = getattr(java_class(session, _FILE_MANAGER), "MODULE$")
            self._manager = companion.create(self._path(folder), configuration)
        self._io = java_class(session, "org.apache.commons.io.IOUtils")

    def name(self, name: str = "") -> str:
        return f"{self.folder}/{name}" if name else self.folder

    def names(self, folder: str = "") -> list[str]:
        place = self._path(self.name(folder))
        if not self._system.exists(place):
            return []
        return [status.getPath().getName() for status in self._system.listStatus(place)]

    def read(self, name: str) -> bytes | None:
        place = self._path(self.name(name))
        if not self._system.exists(place):
            return None
        stream = self._system.open(place)
        try:
            return bytes(self._io.toByteArray(stream))
        finally:
            stream.close()

    @required(CHECKPOINT_FILES)
    def replace(self, name: str, content: bytes) -> None:
        self._manager.createCheckpointDirectory()
        self._write(name, content, over=True)

    @required(CHECKPOINT_FILES)
    def create(self, name: str, content: bytes) -> bool:
        self._manager.mkdirs(self._path(self.name(name)).getParent())
        try:
            self._write(name, content, over=False)
        except Py4JJavaError as fault:
            if "FileAlreadyExistsException" in fault.java_exception.getClass().getName():
                return False
            raise
        return True

    def _write(self, name: str, content: bytes, *, over: bool) -> None:
        stream = self._manager.createAtomic(self._path(self.name(name)), over)
        try:
            stream.write(content)
        except BaseException:
            stream.cancel()
            raise
        stream.close()

    def remove(self, name: str) -> None:
        self._system.delete(self._path(self.name(name)), True)  # noqa: FBT003  # with what is in it; py4j knows no keywords

    def unwritable_reason(self) -> str | None:
        place, missing = self._path(self.folder), []
        try:
            while place is not None and not self._system.exists(place):
                missing.append(place)
                place = place.getParent()
            probe = self._path(self.name(_probe_name()))
            try:
                stream = self._system.create(probe)
                stream.write(_PROBE)
                stream.close()
            finally:
                self._system.delete(probe, False)  # noqa: FBT003  # not with what is in it; py4j knows no keywords
                for each in missing:
                    if not self._system.exists(each) or len(self._system.listStatus(each)):
                        break  # somebody else has begun to use it
                    self._system.delete(each, False)  # noqa: FBT003  # likewise
        except Py4JJavaError as fault:
            return str(fault.java_exception.toString())
        return None


def open_folder(path: str) -> Folder:
    """The folder at a path or URI; it need not exist yet.

    Raises:
        CheckpointError: A URI that needs a Spark session, and none is running.
    """
    folder = local_folder(path)
    return _LocalFolder(folder) if folder is not None else _HadoopFolder(path.rstrip("/"))


def local_folder(path: str) -> Path | None:
    """The folder, or None for another file system. ``%20`` is not decoded; Hadoop does not decode it either."""
    uri = re.fullmatch(r"file:(?://)?(/.*)", path, re.DOTALL)
    if uri:
        return Path(uri[1])
    return None if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", path) else Path(path)


def parsed_json(content: bytes) -> Any:
    """The JSON value of a file's content; None if it is not JSON."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):  # brackets a thousand deep
        return None


def json_bytes(value: object) -> bytes:
    """A JSON value as the content of a file that people can read."""
    return (json.dumps(value, indent=1) + "\n").encode()
