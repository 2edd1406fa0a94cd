"""Settings of a session whose driver and executors are one JVM on this machine: they make its start shorter, and keep it alive.

::

    class path of the JVM    Delta's jars and the class archive; the jars are not sent to executors as files (spark.jars) as well
    compilers of the JVM     C2 begins later, see :data:`LATE_C2`
    launcher                 spark-submit's first JVM, which only puts the command together, without C2 and G1
    PYTHONPATH of workers    the folder of this package, so that the clock source and the operator share their Python processes

Measured up to the first batch of a job (``make bench-start``), 2 cores, CPU seconds of all processes at the speed of an idle machine::

    C2 thread    12 of 29 with Java's thresholds, 4.5 of 22 with ten times these
    Python       one process of Spark's workers less, 0.5; no copies of jars, 0.2; launcher 0.5 instead of 0.7

Lost, each without a difference beyond the noise on top of the late C2: the serial and the parallel collector; thresholds of thirty times (in the
first minutes batches would be longer); ``Tier3DelayOn=0``. C1 alone (``TieredStopAtLevel=1``) needs 17 of 29, but then nothing is ever compiled well.
Workers that are forked from a process which has imported pandas: the import starts a thread (of Arrow), and a fork of several threads is not safe.

What the user has set is not changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from wheel_udf.platform import class_archive, jars

JVM_OPTIONS: Final = "spark.driver.extraJavaOptions"
METRICS: Final = "spark.metrics.conf"
_JARS: Final = "spark.jars"
_CLASS_PATH: Final = "spark.driver.extraClassPath"
_HEARTBEAT_TIMEOUT: Final = "spark.storage.blockManagerHeartbeatTimeoutMs"
_WORKERS_PATH: Final = "spark.executorEnv.PYTHONPATH"

LATE_C2: Final = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Ten times the thresholds at which HotSpot hands a method to its second compiler. A start runs much code a few thousand times, and never again."""

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
        made[_WORKERS_PATH] = _workers_path(settings.get(_WORKERS_PATH))
        if settings[_JARS] and settings[_JARS] == project_jars and _CLASS_PATH not in settings:
            del made[_JARS]
    return made


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


def _workers_path(given: str | None) -> str:
    home = str(Path(__file__).parents[2])  # a folder, or the zip itself
    known = given.split(os.pathsep) if given else []
    return os.pathsep.join(known if home in known else [*known, home])
