"""Small files in the folder of a checkpoint, on the local file system, in an object store, or on HDFS and whatever else
Hadoop reads.

A file is replaced as a whole or not at all. On the local file system a draft is written, flushed to the disk and
renamed; then the folder is flushed, because only that puts the rename on the disk. In an object store it is one request
(:mod:`wheel_udf.spark.object_stores`). On other file systems Spark's manager of checkpoint files replaces it, so
whatever can hold Spark's logs can hold these files.

``create`` is atomic on a local disk (a link), in object stores (a conditional put) and on HDFS (a rename that replaces
nothing); on other file systems it is as good as their rename.

Caveats: one writer at a time; two would share a draft. A path without a scheme is a local one.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wheel_udf.common.errors import CheckpointError
from wheel_udf.common.paths import local_path
from wheel_udf.spark.folder import PROBE, Folder, probe_name
from wheel_udf.spark.object_stores import is_in_object_store, knows_settings, object_folder
from wheel_udf.spark.running import running_session

if TYPE_CHECKING:
    import pyarrow as pa


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
            if self._is_below_a_file():
                return []
            raise CheckpointError("not a folder", field=self.name(folder), hint="use another path") from None

    def read(self, name: str) -> bytes | None:
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None
        except (IsADirectoryError, NotADirectoryError):
            if self._is_below_a_file():
                return None
            raise CheckpointError("not a file", field=self.name(name), hint="use another path") from None

    def _is_below_a_file(self) -> bool:
        """Such as the log of a table whose place is a file."""
        return not self.folder.exists()

    def open(self, name: str) -> pa.NativeFile:
        import pyarrow as pa

        return pa.OSFile(str(self.folder / name))

    def replace(self, name: str, content: bytes) -> None:
        place = self.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_name(f".{place.name}.draft")
        _write_through(draft, content)
        draft.replace(place)
        _sync(place.parent)

    def create(self, name: str, content: bytes, *, flush: bool = True) -> bool:
        place = self.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
        try:
            _write_through(draft, content, flush=flush)
            os.link(draft, place)  # unlike a rename, it replaces nothing
        except FileExistsError:
            return False
        finally:
            draft.unlink(missing_ok=True)
        if flush:
            _sync(place.parent)
        return True

    def remove(self, name: str) -> None:
        place = self.folder / name
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)

    def remove_files(self, folder: str, names: Sequence[str]) -> None:
        for name in names:
            (self.folder / folder / name).unlink(missing_ok=True)

    def unwritable_reason(self) -> str | None:
        missing = [each for each in (self.folder, *self.folder.parents) if not each.exists()]
        probe = self.folder / probe_name()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(PROBE)
        except OSError as fault:
            return f"{fault.strerror}: {fault.filename}"
        finally:
            with suppress(OSError):
                probe.unlink(missing_ok=True)
            for each in missing:  # not one that somebody else has begun to use
                with suppress(OSError):
                    each.rmdir()
        return None


def _write_through(place: Path, content: bytes, *, flush: bool = True) -> None:
    with place.open("wb") as file:
        file.write(content)
        if flush:
            file.flush()
            os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Puts new names in a folder on the disk; only this does."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_folder(path: str, *, request_s: float | None = None) -> Folder:
    """The folder at a path or URI; it need not exist yet.

    Args:
        path: The path or URI.
        request_s: How long a request to an object store may take; None: as long as one that moves a large file.

    Raises:
        CheckpointError: A URI that needs a Spark session, and none is running.
        ConfigError: It is in an object store, and the package that reads it is not installed.
    """
    folder = local_folder(path)
    if folder is not None:
        return _LocalFolder(folder)
    if is_in_object_store(path):
        return object_folder(path, request_s=request_s)
    # Loads pyspark, which the lease of a local path does not wait for.
    from wheel_udf.spark.hadoop_files import hadoop_folder

    return hadoop_folder(path.rstrip("/"))


def local_folder(path: str) -> Path | None:
    """The folder, or None for another file system; see :mod:`wheel_udf.common.paths`."""
    local = local_path(path)
    return None if local is None else Path(local)


def needs_session(path: str) -> bool:
    """Whether a folder can be opened only while a Spark session runs."""
    return local_folder(path) is None and not (is_in_object_store(path) and knows_settings())


def waits_for_session(path: str) -> bool:
    """Whether a folder cannot be opened yet: it needs a Spark session, and none runs."""
    return needs_session(path) and running_session() is None


def parsed_json(content: bytes) -> Any:
    """The JSON value of a file's content; None if it is not JSON."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):  # brackets a thousand deep
        return None


def json_bytes(value: object) -> bytes:
    """A JSON value as the content of a file that people can read."""
    return (json.dumps(value, indent=1) + "\n").encode()
