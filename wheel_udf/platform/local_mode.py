"""Settings of a session whose driver and executors are one JVM on this machine: they make its start shorter, and keep it alive.

::

    class path of the JVM    Delta's jars and the class archive; the jars are not sent to executors as files (spark.jars) as well
    compilers of the JVM     C2 begins later, see :data:`LATE_C2`
    launcher                 spark-submit's first JVM, which only puts the command together, without C2 and G1
    PYTHONPATH of workers    the folder of this package, so that the clock source and the operator share their Python processes

Measured with C2's thresholds at ten times Java's, by ``make bench-start`` on 2 cores that did other work as well (load 8 to 16), three rounds in turn,
CPU seconds of all processes of the job::

    direct mode, medians             without    with
    start to the first batch         28.9       24.1    of which the C2 thread 8.3 and 4.2
    kill -9 to the next delivery     25.0       18.9    of which both compilers 10.4 and 5.9

Throughput (``make bench ARGS='--only b'``, load 9): 30,900 rows a second without, 38,700 with; no loss, and a busy machine says no more.

Thirty times, beside ten (idle, four starts in turn, medians, direct mode): 18.4 CPU seconds and 19.8, of which C2 1.8 and 3.7; the same time to the first
batch. ``make bench ARGS='--only b'`` keeps 0.29x with both, in two sessions.

Lost, each without a gain beyond the noise:

* the serial and the parallel collector, on top of the late C2; ``Tier3DelayOn=0``, with thresholds of ten and of thirty times;
* fewer generated classes of reflection (``inflationThreshold``) and a flatter inlining of C1: 18 to 18.1 instead of 19 CPU seconds with thresholds of
  ten times, nothing with thirty (direct mode);
* Spark ML's functions, whose registration takes 0.4 CPU seconds, on a thread beside the start of the context: the same time;
* ``spark.sql.adaptive.enabled=false`` and ``spark.sql.codegen.wholeStage=false`` for the first commits to Delta;
* Spark without generated code (``factoryMode=NO_CODEGEN``) up to the first delivery: 0.92 of the time and 0.91 of the CPU time (medians of three starts
  in turn), but the first batch of a start after an outage reads a backlog, and that has to be compiled;
* a sink's new table by a transaction of Delta's own classes instead of the writer: 3.5 to 3.7 CPU seconds, and 3.8 to 3.9;
* C1 alone (``TieredStopAtLevel=1``) needs 17 CPU seconds where 29 were needed, but then nothing is ever compiled well. In the tiered mode under load,
  batches do not get shorter after the second minute, and the JVM keeps throwing compiled code out (4 of 60 CPU seconds);
* Java's own thresholds for a run of some minutes: in the tiered mode at 2,000 rows a second, C2 then takes a sixth of both cores for at least four minutes, and
  a twentieth with thirty times; rows of the fourth minute had a p99 of 3.8 to 4.7 s, and 1.8 to 3.0 s;
* more room for compiled code (``ReservedCodeCacheSize=480m``): with late C2 the tiered mode fills the half for profiled code, 120 MB, in some minutes; what comes
  then goes to the other half, and batches take as long as before (tried with 68 MB, full after 75 s);
* a local file system that starts no process (``com.globalmentor:hadoop-bare-naked-local-fs``). Hadoop's own, without its native library, starts ``chmod``
  for each file that it makes, 5 ms each; but ``tests/delta/tiered/test_limits.py``, with 628 of them, takes 137 CPU seconds instead of 140, and that
  library takes a folder behind a symbolic link for a file;
* Spark's fair scheduler, with the intake and the keeper of the tiered mode in a pool of their own: the wheel's batches take as long (five turns of a minute
  in one session, every other one with the pool);
* a lower priority of C2's thread (``nice``): 23 instead of 30 CPU seconds up to the first batch, but it cannot be raised again, and starves under load;
* workers forked from a process that has imported pandas, 0.4 s less each: the import starts a thread of Arrow, and such a process cannot be forked safely.

What the user has set is not changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from wheel_udf.platform import class_archive, jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JVM_OPTIONS: Final = "spark.driver.extraJavaOptions"
METRICS: Final = "spark.metrics.conf"
_JARS: Final = "spark.jars"
_CLASS_PATH: Final = "spark.driver.extraClassPath"
_HEARTBEAT_TIMEOUT: Final = "spark.storage.blockManagerHeartbeatTimeoutMs"
_WORKERS_PATH: Final = "spark.executorEnv.PYTHONPATH"

LATE_C2: Final = (
    "-XX:Tier4InvocationThreshold=150000 -XX:Tier4MinInvocationThreshold=18000 "
    "-XX:Tier4CompileThreshold=450000 -XX:Tier4BackEdgeThreshold=1200000"
)
"""Thirty times the thresholds at which HotSpot hands a method to its second compiler. A start runs much code a few thousand times, and never again."""

_HOTSPOT_WITH_TIERS: Final = range(17, 26)
"""The versions of Java that are known to have these options. A JVM does not start with an option that it does not know."""

LAUNCHER: Final = MappingProxyType({"SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"})
"""Environment of Spark's launcher, half a second of Java that ends before Spark starts."""


def settings_of(
    settings: Mapping[str, str], *, project_jars: str, java_version: int | None
) -> dict[str, str]:
    """The settings of a session in local mode, with what makes its start shorter. Other sessions keep theirs.

    Args:
        settings: Those of project and user.
        project_jars: The value of ``spark.jars`` that is the project's own.
        java_version: The version of the HotSpot JVM that will run; None if that is not known.
    """
    if not settings["spark.master"].startswith("local"):
        return dict(settings)
    made = {**settings, **_paths(settings), **of_one_jvm(settings)}
    made[JVM_OPTIONS] = _jvm_options(settings.get(JVM_OPTIONS, ""), java_version)
    if is_one_jvm(settings):
        made[_WORKERS_PATH] = with_package_folder(settings.get(_WORKERS_PATH))
        if settings[_JARS] and settings[_JARS] == project_jars and _CLASS_PATH not in settings:
            del made[_JARS]
    return made


def executors_are_here(spark: SparkSession) -> bool:
    """Whether the executors run on the driver's machine, in its JVM or in others (``local-cluster``)."""
    return str(spark.sparkContext.master).startswith("local")


def is_one_jvm(settings: Mapping[str, str]) -> bool:
    """Whether the driver is the only executor; ``local-cluster`` starts further JVMs."""
    return re.match(r"local(?!-cluster)", settings.get("spark.master", "")) is not None


def of_one_jvm(settings: Mapping[str, str]) -> dict[str, str]:
    """In local mode the driver is the executor, and never too long without a heartbeat of itself.

    Spark measures heartbeats by the wall clock. If that steps more than two minutes forward (a laptop that has slept, a clock that is set right),
    Spark may take its only executor for lost, and does not take it back: the JVM ends after 60 failed heartbeats, which is 10 minutes later.
    """
    return (
        {_HEARTBEAT_TIMEOUT: "3650d"} if is_one_jvm(settings) and _HEARTBEAT_TIMEOUT not in settings else {}
    )


def _paths(settings: Mapping[str, str]) -> dict[str, str]:
    """Where the one JVM finds its metrics' file and its jars, unless that is set."""
    folder = jars.conf_folder()
    found = {} if folder is None or METRICS in settings else {METRICS: str(folder / "metrics.properties")}
    if settings[_JARS] and _CLASS_PATH not in settings:
        # On the class path of the JVM itself, Delta's classes are in the archive too.
        found[_CLASS_PATH] = settings[_JARS].replace(",", os.pathsep)
    return found


def _jvm_options(given: str, java_version: int | None) -> str:
    late = LATE_C2 if java_version in _HOTSPOT_WITH_TIERS and "-XX:Tier" not in given else ""
    has_archive = "SharedArchiveFile" in given or "ArchiveClassesAtExit" in given
    archive = "" if has_archive else class_archive.options()
    return " ".join(filter(None, [given, late, archive]))


def with_package_folder(given: str | None) -> str:
    """A ``PYTHONPATH`` with the folder of this package, behind what is in it already."""
    home = str(Path(__file__).parents[2])  # a folder, or the zip itself
    known = given.split(os.pathsep) if given else []
    return os.pathsep.join(known if home in known else [*known, home])
