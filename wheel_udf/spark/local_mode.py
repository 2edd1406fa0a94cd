"""Settings of a session whose driver and executors are one JVM: they shorten its start and keep it alive.

::

    class path of the JVM    Delta's jars; they are not sent to executors as files (spark.jars) as well
    options of the JVM       see :mod:`wheel_udf.spark.fast_start`
    PYTHONPATH of workers    the folder of this package: clock source and operator share their Python processes

What the user has set is not changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wheel_udf.spark import fast_start, jars
from wheel_udf.spark.connect_session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JVM_OPTIONS: Final = "spark.driver.extraJavaOptions"
METRICS: Final = "spark.metrics.conf"
_JARS: Final = "spark.jars"
_CLASS_PATH: Final = "spark.driver.extraClassPath"
_HEARTBEAT_TIMEOUT: Final = "spark.storage.blockManagerHeartbeatTimeoutMs"
"""In local mode the driver is the executor, and never too long without a heartbeat of itself. Spark measures heartbeats
by the wall clock: if that steps more than two minutes forward (a laptop that has slept, a clock that is set right),
Spark may take its only executor for lost, does not take it back, and the JVM ends 10 minutes later.
"""
_WORKERS_PATH: Final = "spark.executorEnv.PYTHONPATH"


def settings_of(settings: Mapping[str, str], *, project_jars: str | None) -> dict[str, str]:
    """The settings of a session, with what makes the start of one JVM shorter. Other sessions keep theirs.

    Args:
        settings: Those of project and user.
        project_jars: The value of ``spark.jars`` that is the project's own; None without one.
    """
    if not re.match(
        r"local(?!-cluster)", settings.get("spark.master", "")
    ):  # local-cluster starts further JVMs
        return dict(settings)
    made = {_HEARTBEAT_TIMEOUT: "3650d", **settings}
    made[JVM_OPTIONS] = fast_start.jvm_options(settings.get(JVM_OPTIONS, ""))
    made[_WORKERS_PATH] = with_package_folder(settings.get(_WORKERS_PATH))
    folder, given_jars = jars.conf_folder(), settings.get(_JARS)
    if folder is not None:
        made.setdefault(METRICS, str(folder / "metrics.properties"))
    if given_jars and _CLASS_PATH not in settings:
        # On the class path of the JVM itself, Delta's classes are in the archive too.
        made[_CLASS_PATH] = given_jars.replace(",", os.pathsep)
        if given_jars == project_jars:
            del made[_JARS]
    return made


def executors_are_here(spark: SparkSession) -> bool:
    """Whether the executors run on the machine of this process, in the driver's JVM or in others (``local-cluster``).

    Of a session of Spark Connect this is not known, so False.
    """
    return not is_connect(spark) and str(spark.sparkContext.master).startswith("local")


def with_package_folder(given: str | None) -> str:
    """A ``PYTHONPATH`` with the folder of this package, behind what is in it already."""
    home = str(Path(__file__).parents[2])  # a folder, or the zip itself
    known = given.split(os.pathsep) if given else []
    return os.pathsep.join(known if home in known else [*known, home])
