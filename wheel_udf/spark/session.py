"""Builds the Spark session of tests, notebooks and jobs.

The settings are in ``conf/spark-defaults.conf`` alone, each with its reason. :func:`build_session` reads that file and
adds the settings that are not set elsewhere. Precedence, highest first::

    1  the arguments of build_session
    2  spark-submit (its options, its --properties-file, the spark-defaults.conf of its SPARK_CONF_DIR)
    3  without spark-submit: the spark-defaults.conf of the user's own SPARK_CONF_DIR, if that is set
    4  the project's conf/spark-defaults.conf

So ``python jobs/x.py`` has the settings of ``spark-submit --properties-file conf/spark-defaults.conf jobs/x.py``.
Under spark-submit, what is fixed at the start of Spark comes from 2 alone.
Relative paths in the file start at the project's root; they are made absolute here, so that a notebook may run in any
folder.

Caveats: settings of the JVM (jars, memory) are fixed when it starts, and a process starts it once. If a session is
already running (a managed notebook), :func:`build_session` returns it and changes only the settings that are
arguments. If spark-submit was not given Delta, it is too late to add it, and :func:`build_session` raises an error.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from wheel_udf.common.errors import SessionError, UnsupportedVersionError
from wheel_udf.spark import jars, java, local_mode, versions
from wheel_udf.spark.failures import is_jvm_end
from wheel_udf.spark.files import local_folder
from wheel_udf.spark.interrupts import at_end
from wheel_udf.spark.jvm import hadoop_configuration, has_class, java_class
from wheel_udf.spark.local_mode import JVM_OPTIONS, METRICS
from wheel_udf.spark.object_stores import is_in_object_store
from wheel_udf.spark.private_api import required
from wheel_udf.spark.running import note_built, running_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_CHECKSUM_FILES = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
_PLAIN_RENAMES = "FileSystemBasedCheckpointFileManager"
_DELTA_CLASS = "io.delta.sql.DeltaSparkSessionExtension"
_PACKAGES = "spark.jars.packages"
_OF_MEMORY = "spark.executorEnv.MALLOC_"
_SUBMIT_HINT = "give spark-submit --properties-file conf/spark-defaults.conf, or SPARK_CONF_DIR=conf"


def build_session(
    app_name: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str | float | bool] | None = None,
    checkpoint: str | None = None,
) -> SparkSession:
    """Starts Spark with the project's settings, or returns the session that is running.

    Args:
        app_name: The name in Spark's UI and logs.
        master: Where to run, ``local[2]`` for example; default is spark-submit's setting, else that of
            ``conf/spark-defaults.conf``.
        conf: Spark settings that override all others.
        checkpoint: Where the queries of the session keep their checkpoints. A session that is started here writes them
            as :func:`fit_to_checkpoint` says; a running one is left as it is.

    Returns:
        The session. Stop it with :func:`stop_session`.

    Raises:
        SessionError: Java is missing, the JVM did not start, or pyarrow does not fit this Spark.
    """
    versions.require_pyarrow()
    given = {key: _text(value) for key, value in (conf or {}).items()}
    running = running_session()
    if running is not None:
        for key, value in given.items():
            running.conf.set(key, value)
        return running
    if master is not None:
        given["spark.master"] = master
    spark = _submitted(app_name, given) if _is_submitted() else _start(app_name, local_settings(given))
    note_built(spark)
    if checkpoint is not None:
        fit_to_checkpoint(spark, checkpoint)
    return spark


def stop_session(spark: SparkSession) -> None:
    """Cancels the batches of the streaming queries, stops these, then Spark. A JVM that has ended is no error."""
    at_end(lambda: end_session(spark))


def end_session(spark: SparkSession) -> None:
    """The work of :func:`stop_session`, on the thread of the caller."""
    try:
        for query in spark.streams.active:
            query.stop()
        spark.stop()
    except Exception as error:
        if not is_jvm_end(error):
            raise


_starting_jvm = threading.Event()


def _ignore_sigterm() -> None:
    """In a process that this one has forked: the JVM keeps the signals ignored that it was started with.

    ``timeout`` and service managers send SIGTERM to all processes of a job. The JVM would end at once and cut the
    running batch off; the process that has started it can end the run properly (of SIGINT, pyspark does the same). The
    JVM ends in any case when that process does. Under spark-submit the JVM is the process that others signal.
    """
    if _starting_jvm.is_set():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


os.register_at_fork(after_in_child=_ignore_sigterm)


def close_states(spark: SparkSession) -> None:
    """Closes the states that ended queries of this session have loaded, and those that were read. For a checkpoint that
    is about to be emptied.

    A minute after the end of a query Spark's maintenance still uploads what it has not uploaded, and makes the folder
    anew for it. While another query runs in the session, nothing is closed.
    """
    if not spark.streams.active:
        with suppress(UnsupportedVersionError), required("loaded_states"):
            java_class(spark, "org.apache.spark.sql.execution.streaming.state.StateStore").stop()


def fit_to_checkpoint(spark: SparkSession, checkpoint: str) -> None:
    """Lets all queries of a session write their checkpoints in the way that is cheapest where the checkpoint lies.

    For the owner of the session: these are settings of the whole session, and every query of it must keep its
    checkpoint there. Spark has no such option for one query, and a setting made only while a query starts would be
    inherited by queries that start beside it. A setting of the user is not changed.

    On a local path, by plain renames. Spark's default goes through Hadoop's ``FileContext``, which on a local path runs
    a program (``ls``, ``readlink``) for several questions about each file. A rename on a local path is atomic and
    replaces the target, which is all that the checkpoint needs. A rename on HDFS does not replace, so the default stays
    there.

    In an object store, without a second file of checksums beside each file of the state: the store checks what it
    receives and what it keeps, and these files are a third of the requests of a batch.
    """
    default_system = hadoop_configuration(spark).get("fs.defaultFS")
    is_local = default_system.startswith("file:") or checkpoint.startswith("file:")
    manager = versions.checkpoint_class(_PLAIN_RENAMES)
    if is_local and local_folder(checkpoint) is not None and has_class(spark, manager):
        _set_unless_chosen(spark, _FILE_MANAGER, manager)
    if is_in_object_store(checkpoint):
        _set_unless_chosen(spark, _CHECKSUM_FILES, "false")


def _set_unless_chosen(spark: SparkSession, key: str, value: str) -> None:
    if spark.conf.get(key, None) is None:
        spark.conf.set(key, value)


def read_defaults(folder: Path | None) -> dict[str, str]:
    """The settings of ``spark-defaults.conf`` in a folder: ``key value`` or ``key=value`` lines, ``#`` comments.

    Args:
        folder: The folder; None or a folder without the file has no settings.

    Raises:
        SessionError: A line without a value.
    """
    file = folder / "spark-defaults.conf" if folder is not None else None
    if file is None or not file.is_file():
        return {}
    lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    return dict(_setting(file, line) for line in lines if line and not line.startswith("#"))


def _setting(file: Path, line: str) -> tuple[str, str]:
    found = re.fullmatch(r"([^\s=:]+)\s*[\s=:]\s*(.+)", line)
    if found is None:
        raise SessionError("a setting without a value", field=str(file), value=line, rule="key value")
    return found.group(1), found.group(2)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def shows_all_warnings() -> bool:
    """Whether also the warnings of Spark and Delta are shown that need no action."""
    return bool(os.environ.get("WHEEL_UDF_DEBUG"))


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _submitted(app_name: str, given: Mapping[str, str]) -> SparkSession:
    """Starts Spark with what spark-submit was given, and then sets what it was not given and can still be set."""
    spark = _start(app_name, given)
    told = dict(spark.sparkContext.getConf().getAll())
    if _DELTA_CLASS not in told.get("spark.sql.extensions", "") or not has_class(spark, _DELTA_CLASS):
        spark.stop()
        raise SessionError(
            "Spark was started without Delta",
            field="spark.jars, spark.sql.extensions",
            rule=f"have {_DELTA_CLASS}",
            hint=_SUBMIT_HINT,
        )
    for key, value in _project_settings().items():
        if key not in told and spark.conf.isModifiable(key):
            spark.conf.set(key, value)
    return spark


def local_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Settings for a JVM that this process starts, or has started for an earlier session."""
    java.find_java()
    ours, of_user = _project_settings(), {**_user_settings(), **given}
    if _PACKAGES in ours and "spark.jars" in of_user:
        del ours[_PACKAGES]
    elif _PACKAGES in ours and _PACKAGES in of_user:
        of_user[_PACKAGES] += f",{ours[_PACKAGES]}"
    settings = {"spark.master": "local[*]", **ours, **of_user}
    return local_mode.settings_of(settings, project_jars=ours.get("spark.jars"))


def default_settings() -> dict[str, str]:
    """The settings of ``spark-defaults.conf``, of the project and of the user, which wins. Starts nothing."""
    return {**read_defaults(jars.conf_folder()), **_user_settings()}


def _user_settings() -> dict[str, str]:
    folder = os.environ.get("SPARK_CONF_DIR")
    return read_defaults(Path(folder)) if folder and not _is_ours(Path(folder)) else {}


def _is_ours(folder: Path) -> bool:
    ours = jars.conf_folder()
    return ours is not None and folder.resolve() == ours.resolve()


def _project_settings() -> dict[str, str]:
    """The project's file with its relative paths made absolute, and the jars of the running Python environment, or what
    Spark is to download.
    """
    folder = jars.conf_folder()
    settings = read_defaults(folder)
    settings.pop("spark.jars", None)
    ours, of_s3 = jars.jar_files("spark"), jars.jar_files("s3")
    if not ours:
        settings[_PACKAGES] = versions.packages()
    elif not any(jar.name.startswith(f"delta-spark_{versions.minor_version()}_") for jar in ours):
        raise SessionError(
            "the JVM jars are those of another Spark",
            field=str(jars.jars_folder()),
            value=next((jar.name for jar in ours if jar.name.startswith("delta-spark_")), "no Delta"),
            rule=f"of the installed Spark {versions.minor_version()}",
            hint="python -m wheel_udf.spark.jars",
        )
    if ours or of_s3:
        settings["spark.jars"] = ",".join(map(str, (*ours, *of_s3)))
    if folder is not None:
        # The path in the file starts at the project's root; the JVM would start it at the current folder.
        logging = (folder / f"log4j2{'-debug' if shows_all_warnings() else ''}.properties").as_uri()
        settings[JVM_OPTIONS] = settings[JVM_OPTIONS].replace("=conf/log4j2.properties", f"={logging}")
    settings["spark.pyspark.python"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
    return settings


def _start(app_name: str, settings: Mapping[str, str]) -> SparkSession:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with environment_with(settings):
            return builder.getOrCreate()
    except PySparkRuntimeError as fault:
        raise SessionError(
            "the JVM of Spark did not start",
            field="spark",
            value=str(fault),
            hint=f"its messages are above; Spark 4 needs Java {java.OLDEST_JAVA} or newer",
        ) from fault


@contextmanager
def environment_with(settings: Mapping[str, str]) -> Iterator[None]:
    """Sets the environment variables that Spark reads when it starts, for that moment."""
    # Workers would run the first python3 on PATH: pyspark reads this from the environment and not from the
    # configuration.
    wanted = {"PYSPARK_PYTHON": settings.get("spark.pyspark.python", sys.executable)}
    for name, value in settings.items():
        if name.startswith(_OF_MEMORY):  # the JVM as its Python workers, which get them from these settings
            wanted[name.removeprefix("spark.executorEnv.")] = value
    folder = jars.conf_folder()
    if folder is not None and METRICS not in settings:
        wanted["SPARK_CONF_DIR"] = str(folder)  # where log4j2.properties and metrics.properties are
    if folder is not None and not shows_all_warnings():
        wanted["BASH_ENV"] = str(folder / "quiet-jvm.sh")
    added = {key: value for key, value in wanted.items() if key not in os.environ}
    if os.environ.get("LC_ALL") in ("C", "POSIX"):
        # Python reads names of files as UTF-8 even so; the JVM would not find one that is not ASCII.
        added["LC_ALL"] = "C.UTF-8"
    before = {key: os.environ[key] for key in added if key in os.environ}
    os.environ.update(added)
    _starting_jvm.set()
    try:
        yield
    finally:
        _starting_jvm.clear()
        for key in added:
            os.environ.pop(key, None)
        os.environ.update(before)
