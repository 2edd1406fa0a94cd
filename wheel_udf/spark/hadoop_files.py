"""Small files in the folder of a checkpoint on any file system of Hadoop; see :mod:`wheel_udf.spark.files`."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError

from wheel_udf.common.errors import CheckpointError
from wheel_udf.common.paths import local_path
from wheel_udf.spark.folder import PROBE, Folder, probe_name
from wheel_udf.spark.jvm import hadoop_configuration, java_class
from wheel_udf.spark.private_api import required
from wheel_udf.spark.running import running_session
from wheel_udf.spark.versions import checkpoint_class

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_VIEW: Final = "wheel-udf-view"
"""Scheme of the views of :func:`state_location`; ``conf/log4j2.properties`` names it."""
_PLAIN_LOCAL_FILES: Final = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}

_FILE_MANAGER: Final = "CheckpointFileManager$"


def reader_defaults(path: str) -> dict[str, str]:
    """Options of Spark's reader for a path of files.

    On the local file system they allow names with a colon: Hadoop cannot name their checksums, so none is looked for.
    Another file system that was first opened with them would keep them, and S3A would fail to buffer what it writes.
    """
    return {} if local_path(path) is None else _PLAIN_LOCAL_FILES


def hadoop_folder(path: str) -> Folder:
    """The folder at a URI; it need not exist yet.

    Raises:
        CheckpointError: No Spark session is running.
    """
    return _HadoopFolder(path)


def state_location(spark: SparkSession, checkpoint: str) -> str:
    """Returns the path at which Spark's reader of state finds a checkpoint.

    The reader makes a URI of its path and takes that for a path again: for ``a b`` it looks into ``a%20b``. A
    checkpoint with such a name gets a view of Hadoop's with a plain one. The view is a setting of the context, so
    executors have it, too.
    """
    path = java_class(spark, "org.apache.hadoop.fs.Path")(checkpoint)
    configuration = hadoop_configuration(spark)
    uri = path.getFileSystem(configuration).makeQualified(path).toUri()
    if uri.getRawPath() == uri.getPath():
        return checkpoint
    name = sha256(uri.toString().encode()).hexdigest()
    # Not Hadoop's own scheme, viewfs: that one has a FileContext, which cannot hold such names either.
    configuration.set(f"fs.{_VIEW}.impl", "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme")
    configuration.set(f"fs.viewfs.mounttable.{name}.link./folder", uri.toString())
    return f"{_VIEW}://{name}/folder"


def depth_of(spark: SparkSession, path: str) -> int:
    """Returns how many folders lead from the root of its file system to a path or URI, itself counted."""
    place = java_class(spark, "org.apache.hadoop.fs.Path")(path)
    return int(place.getFileSystem(hadoop_configuration(spark)).makeQualified(place).depth())


class _HadoopFolder:
    """A folder on any file system of Hadoop, written by Spark's manager of checkpoint files."""

    def __init__(self, folder: str) -> None:
        session = running_session()
        if session is None:
            raise CheckpointError("this path needs a running Spark session", field="checkpoint", value=folder)
        self._path = java_class(session, "org.apache.hadoop.fs.Path")
        self.folder = folder
        configuration = hadoop_configuration(session)
        self._system = self._path(folder).getFileSystem(configuration)
        with required("checkpoint_files"):
            companion = getattr(java_class(session, checkpoint_class(_FILE_MANAGER)), "MODULE$")
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

    def open(self, name: str) -> pa.NativeFile:
        import pyarrow as pa

        content = self.read(name)
        if content is None:
            raise FileNotFoundError(self.name(name))
        return pa.BufferReader(content)

    @required("checkpoint_files")
    def replace(self, name: str, content: bytes) -> None:
        self._manager.createCheckpointDirectory()
        self._write(name, content, over=True)

    @required("checkpoint_files")
    def create(self, name: str, content: bytes, *, flush: bool = True) -> bool:  # noqa: ARG002  # as on a local disk
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
        self._system.delete(self._path(self.name(name)), True)  # noqa: FBT003  # recursive; py4j has no keywords

    def remove_files(self, folder: str, names: Sequence[str]) -> None:
        for name in names:
            self.remove(f"{folder}/{name}")

    def unwritable_reason(self) -> str | None:
        place, missing = self._path(self.folder), []
        try:
            while place is not None and not self._system.exists(place):
                missing.append(place)
                place = place.getParent()
            probe = self._path(self.name(probe_name()))
            try:
                stream = self._system.create(probe)
                stream.write(PROBE)
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
