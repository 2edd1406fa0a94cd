"""The list of private API that this package uses, and the error for a version of Spark or Delta that lacks one.

Each :class:`PrivateApi` below is a use of something that Spark, Delta or py4j does not promise to keep.
``tests/upgrade/test_canaries.py`` exercises every entry against the installed versions. To use another private API,
add an entry here and a canary there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from py4j.protocol import Py4JError

from wheel_udf.common.errors import UnsupportedVersionError
from wheel_udf.spark.failures import first_line

SPARK: Final = "Spark 4.2.0"
DELTA: Final = "Delta 4.4.0"


@dataclass(frozen=True, slots=True)
class PrivateApi:
    """A use of a private API.

    Attributes:
        name: The classes, attributes or formats.
        used_in: The module that uses them.
        why: What they are used for.
        risk: What stops working without them.
        instead: The public way that is taken then; None if there is none.
        read_in: The version in whose source the use was read.
    """

    name: str
    used_in: str
    why: str
    risk: str
    instead: str | None
    read_in: str


GATEWAY: Final = PrivateApi(
    name="SparkSession._jvm, _jsparkSession, _jsc",
    used_in="spark/jvm",
    why="JVM classes that have no Python API, the JVM's session, Hadoop's configuration",
    risk="the package needs a classic session; Spark Connect has no _jvm",
    instead=None,
    read_in=SPARK,
)
SCALA_VALUES: Final = PrivateApi(
    name="PythonUtils.toSeq, PythonUtils.toScalaMap, scala.Option",
    used_in="spark/jvm",
    why="arguments of Scala methods",
    risk="as for the methods that they are passed to",
    instead=None,
    read_in=SPARK,
)
CHECKPOINT_FILES: Final = PrivateApi(
    name="CheckpointFileManager",
    used_in="spark/hadoop_files",
    why="replaces a file of a checkpoint as a whole on any file system",
    risk="checkpoints on other file systems than the local one cannot be opened",
    instead=None,
    read_in=SPARK,
)
PLAIN_RENAMES: Final = PrivateApi(
    name="FileSystemBasedCheckpointFileManager",
    used_in="spark/session",
    why="writes a local checkpoint without starting programs (ls, readlink) for each file",
    risk="a batch takes about 0.14 s longer",
    instead="Spark's default file manager",
    read_in=SPARK,
)
CHECKPOINT_FORMAT: Final = PrivateApi(
    name="offsets/N, commits/N, metadata (v1, v2)",
    used_in="checkpoint/spark_logs",
    why="which batch is planned and which is committed, whether a batch holds input",
    risk="a checkpoint with another format is refused as damaged",
    instead=None,
    read_in=SPARK,
)
SOURCE_LOGS: Final = PrivateApi(
    name="sources/N of a source of files, offsets of sources by their order",
    used_in="checkpoint/source_logs",
    why="a moved job goes on reading where the old one stopped",
    risk="an import cannot keep the position of a source of files",
    instead=None,
    read_in=SPARK,
)
STATE_FILES: Final = PrivateApi(
    name="state/O/P/V_ID.changelog, .zip, .crc, stateUniqueIds in commits",
    used_in="checkpoint/state_files",
    why="which version of the state is damaged, and which batch reads it",
    risk="damage of the state is found only by the run that reads it",
    instead=None,
    read_in=SPARK,
)
ERROR_TEXTS: Final = PrivateApi(
    name="error classes and 'Caused by' in the texts of exceptions, logger SQLQueryContextLogger",
    used_in="spark/failures",
    why="one sentence for the user instead of a stack trace",
    risk="the sentence is longer or less exact; a page of JSON in the log for SQL that cannot be used",
    instead="the first line of the text",
    read_in=SPARK,
)
LOADED_STATES: Final = PrivateApi(
    name="StateStore.stop",
    used_in="spark/session",
    why="closes the states that a session has loaded before their folder is emptied",
    risk="within a minute Spark may upload an old state into the folder",
    instead="an empty folder is asked for again by the next call",
    read_in=SPARK,
)
GROUPS_AS_ARROW: Final = PrivateApi(
    name="ApplyInPandasWithStateSerializer, ArrowBatchTransformer, GroupState._value",
    used_in="spark/arrow_groups",
    why="rows reach the operator and leave it as Arrow, not as Python objects",
    risk="the operator takes a sixth fewer rows a second",
    instead="pandas frames of objects",
    read_in=SPARK,
)
BATCH_PROPERTIES: Final = PrivateApi(
    name="local properties streaming.sql.batchId, sql.streaming.queryId",
    used_in="stream/worker",
    why="which batch of which query a task of the operator belongs to",
    risk="a repeated batch is not told from a new one by the shards' reports and hand-overs",
    instead=None,
    read_in=SPARK,
)
SHARD_PLACEMENT: Final = PrivateApi(
    name="groups go to partition pmod(hash(key), partitions)",
    used_in="stream/sharding",
    why="grouping keys that spread the shards evenly over the tasks",
    risk="some tasks have several shards while others have none",
    instead="any keys",
    read_in=SPARK,
)
IVY: Final = PrivateApi(
    name="pyspark/jars/ivy-*.jar",
    used_in="spark/jars",
    why="downloads jars without Maven",
    risk="make setup fails",
    instead="spark.jars.packages, set by the user",
    read_in=SPARK,
)
DELTA_SNAPSHOT: Final = PrivateApi(
    name="DeltaLog.forTable, update, getSnapshotAt; Snapshot.metadata, transactions, allFiles",
    used_in="tables/delta_log",
    why="version, columns, properties and transactions of a table without a Spark job",
    risk="the slot store cannot be opened; sinks look at a table by several Spark jobs",
    instead="sinks and sources: DeltaTable.history, the files of its log",
    read_in=DELTA,
)
DELTA_CHECKSUM: Final = PrivateApi(
    name="Snapshot.checksumOpt",
    used_in="tables/delta_log",
    why="transactions and files from the file beside the last commit",
    risk="three Spark jobs for each commit",
    instead="as for DeltaLog.forTable",
    read_in=DELTA,
)
DELTA_CHANGES: Final = PrivateApi(
    name="DeltaLog.getChanges, util.JsonUtils",
    used_in="tables/delta_log",
    why="files that later commits have added and removed",
    risk="the slot store cannot be opened",
    instead=None,
    read_in=DELTA,
)
DELTA_ROWS: Final = PrivateApi(
    name="DeltaLog.createDataFrame, unsafeVolatileSnapshot; util.JsonUtils, actions.AddFile",
    used_in="tables/delta_files",
    why="rows of known files without the jobs that compute and filter the files of a version",
    risk="the slot store cannot hand over",
    instead=None,
    read_in=DELTA,
)
DELTA_APPEND: Final = PrivateApi(
    name="DeltaLog.startTransaction; OptimisticTransaction.readTxn, writeFiles, commit; actions.SetTransaction; "
    "DeltaOperations.StreamingUpdate",
    used_in="tables/delta_transaction",
    why="an append without the writer's search for its last transaction: 120 ms of CPU time, not 665",
    risk="the slot store cannot be written; appends of sinks are slower",
    instead="sinks: DataFrameWriter with txnAppId and txnVersion, also exactly once",
    read_in=DELTA,
)
DELTA_COMMITS: Final = PrivateApi(
    name="OptimisticTransaction.updateMetadata, registerSQLMetrics; DeltaOptions; actions.Action, Metadata; "
    "DeltaOperations.Delete, Optimize, CreateTable; SQLMetrics",
    used_in="tables/delta_transaction",
    why="commits of the slot store that carry several transactions, or replace files without changing data",
    risk="the slot store cannot be written: the public writer has no such conflict checks",
    instead=None,
    read_in=DELTA,
)
DELTA_LOG_CHECKPOINTS: Final = PrivateApi(
    name="DeltaLog.checkpointInterval, doLogCleanup, newDeltaHadoopConf, unsafeVolatileSnapshot",
    used_in="tables/log_checkpoints",
    why="no batch waits for a checkpoint of a table's log",
    risk="new readers replay up to 10,000 commits",
    instead="Delta's own checkpoint, within each 10,000th commit",
    read_in=DELTA,
)
DELTA_OFFSETS: Final = PrivateApi(
    name="the offsets of a Delta source",
    used_in="tables/delta_log",
    why="which table a checkpoint reads; where the wheel of an imported tiered job begins to read its store",
    risk="another slot store at the same path is not noticed before the run; no import into the tiered mode",
    instead="Delta's own check when the query starts",
    read_in=DELTA,
)

PRIVATE_APIS: Final = (
    GATEWAY,
    SCALA_VALUES,
    CHECKPOINT_FILES,
    PLAIN_RENAMES,
    CHECKPOINT_FORMAT,
    SOURCE_LOGS,
    STATE_FILES,
    ERROR_TEXTS,
    LOADED_STATES,
    GROUPS_AS_ARROW,
    BATCH_PROPERTIES,
    SHARD_PLACEMENT,
    IVY,
    DELTA_SNAPSHOT,
    DELTA_CHECKSUM,
    DELTA_CHANGES,
    DELTA_ROWS,
    DELTA_APPEND,
    DELTA_COMMITS,
    DELTA_LOG_CHECKPOINTS,
    DELTA_OFFSETS,
)
"""All uses of private API."""

# How a missing class, method, signature or JVM-side dependency shows itself.
_NO_SUCH_MEMBER: Final = re.compile(
    r"(?:Method|Constructor) .* does not exist|does not exist in the JVM|does not exist in .*JavaClass"
    r"|^: java\.lang\.(?:NoSuchMethod|NoSuchField|NoClassDefFound|AbstractMethod|IncompatibleClassChange)Error",
    re.MULTILINE,
)


@contextmanager
def required(api: PrivateApi) -> Iterator[None]:
    """Reports a class, method or signature of `api` that is missing as an error that names the versions.

    Use it as a decorator or in a ``with``, around calls of the API alone.

    Raises:
        UnsupportedVersionError: Something of `api` is missing. All other exceptions pass.
    """
    try:
        yield
    except (AttributeError, ImportError, Py4JError) as fault:
        if not is_missing(fault):
            raise
        raise unsupported(api.name, first_line(str(fault)), api) from fault


def is_missing(fault: Exception) -> bool:
    """Whether an exception means that an API is missing, not that it failed."""
    return isinstance(fault, AttributeError | ImportError) or _NO_SUCH_MEMBER.search(str(fault)) is not None


def unsupported(name: str, detail: str, api: PrivateApi | None = None) -> UnsupportedVersionError:
    """The error for an API that is missing.

    Args:
        name: The API.
        detail: What is missing of it.
        api: Its entry in the list, if there is one.
    """
    return UnsupportedVersionError(
        f"the installed Spark or Delta lacks an internal API ({api.risk if api else detail})",
        field=name,
        value=detail if api else None,
        rule=f"as in {api.read_in if api else f'{SPARK} and {DELTA}'}; installed: {installed_versions()}",
        hint="install the versions of Spark and Delta that this release was tested with",
    )


@cache
def installed_versions() -> str:
    """The installed versions, for people."""
    return f"Spark {_version_of('pyspark')}, Delta {_version_of('delta-spark')}"


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a managed Spark brings its own
        return "of unknown version"
