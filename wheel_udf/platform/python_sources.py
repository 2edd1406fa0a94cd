"""Tells Spark that there are no Python data sources to look for, where that is so.

Before the first Python data source of a JVM (here: the clock) Spark starts two Python processes that look for packages named ``pyspark_...`` with sources in
them. This Python process can look as well, in a few milliseconds. If there is such a package, or Spark's Python is another one, Spark looks itself.

Measured: 0.6 CPU seconds of a start, in which everything else waits.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Final

from wheel_udf.common import UnsupportedVersionError
from wheel_udf.platform.jvm import java_class, scala_map, scala_some
from wheel_udf.platform.private_api import PYTHON_SOURCES, required

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MANAGER: Final = "org.apache.spark.sql.execution.datasources.DataSourceManager$"
_PREFIX: Final = "pyspark_"


def skip_vain_search(spark: SparkSession) -> None:
    """Keeps Spark from its search for packages with Python data sources, if it would find none. For a JVM that this process has just started."""
    if has_own_python() and not has_packages():
        with suppress(UnsupportedVersionError), required(PYTHON_SOURCES):
            manager = getattr(java_class(spark, _MANAGER), "MODULE$")
            if manager.dataSourceBuilders().isEmpty():
                getattr(manager, "dataSourceBuilders_$eq")(scala_some(spark, scala_map(spark, {})))


def has_own_python() -> bool:
    """Whether Spark would search with this Python, so that it finds what is found here."""
    chosen = os.environ.get("PYSPARK_DRIVER_PYTHON") or os.environ.get("PYSPARK_PYTHON") or sys.executable
    return chosen == sys.executable


def has_packages() -> bool:
    """Whether there is a package that Spark would take for one with a Python data source."""
    return any(module.name.startswith(_PREFIX) for module in iter_modules())
