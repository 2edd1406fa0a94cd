"""The versions of Spark that this package runs on, and which jars belong to the installed one.

What a version of Spark lacks is asked in one place for each, all in this room: a Python source that knows where its
next batch begins (:mod:`wheel_udf.spark.stream_reader`), a run that ends with its input
(:mod:`wheel_udf.spark.queries`), rows as Arrow (:mod:`wheel_udf.spark.arrow_groups`), names of classes
(:mod:`wheel_udf.spark.session`). ``docs/platforms.md`` has the table for users.

Standard library only: it runs before the packages are installed.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from wheel_udf.common.errors import SessionError

TESTED: Final = ("4.0", "4.1", "4.2")
"""The versions of Spark that ``make test-versions`` runs with."""
DELTA: Final = "4.4.0"
"""The version of Delta; it has a jar for each version of Spark."""


_HADOOP: Final = {"4.0": "3.4.1", "4.1": "3.4.2", "4.2": "3.5.0"}
_SLICES_BY_INTEGERS: Final = 26
_VERSION: Final = r"""__version__\b.*?["'](\d+\.\d+\.[^"']+)["']"""


def _pyspark() -> ModuleSpec:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SessionError("pyspark is not installed", field=sys.executable, hint="run `make setup`")
    return spec


def pyspark_folder() -> Path:
    """The folder of the installed pyspark. It is not imported, which would take a second.

    Raises:
        SessionError: pyspark is not installed.
    """
    return Path(str(_pyspark().origin)).parent


@cache
def spark_version() -> str:
    """The version of the installed pyspark, such as ``4.1.3``.

    Raises:
        SessionError: pyspark is not installed, or does not say its version.
    """
    file = pyspark_folder() / "version.py"
    loader: Any = _pyspark().loader  # of a folder; under spark-submit of a zip
    found = re.search(_VERSION, loader.get_data(str(file)).decode())
    if found is None:
        raise SessionError("pyspark does not say its version", field=str(file), rule='__version__ = "4.2.0"')
    return found.group(1)


def minor_version() -> str:
    """The first two numbers of :func:`spark_version`, which name the jars of Delta: ``4.1``."""
    return ".".join(spark_version().split(".")[:2])


def require_pyarrow() -> None:
    """Checks that the installed pyarrow is one that this Spark can use.

    Spark 4.0 and 4.1 hand ``RecordBatch.slice`` a float where a batch of ``applyInPandasWithState`` has fewer groups
    than rows. pyarrow 26 takes integers only; Spark 4.2 hands it these.

    Raises:
        SessionError: It is not; every batch with state would fail.
    """
    try:
        pyarrow = version("pyarrow")
    except PackageNotFoundError:  # whoever needs it says so
        return
    if minor_version() in ("4.0", "4.1") and int(pyarrow.split(".")[0]) >= _SLICES_BY_INTEGERS:
        raise SessionError(
            "this pyarrow does not work with the installed Spark",
            field="pyarrow",
            value=pyarrow,
            rule=f"older than {_SLICES_BY_INTEGERS} with Spark {spark_version()}",
            hint=f"pip install 'pyarrow<{_SLICES_BY_INTEGERS}', also on the executors",
        )


def packages() -> str:
    """``spark.jars.packages`` for the installed Spark: Delta and the Kafka connector, which comes with each Spark."""
    delta = f"io.delta:delta-spark_{minor_version()}_2.13:{DELTA}"
    return f"{delta},org.apache.spark:spark-sql-kafka-0-10_2.13:{spark_version()}"


def s3_packages() -> str:
    """``spark.jars.packages`` for paths ``s3a://`` on the installed Spark, by the version of its Hadoop."""
    return f"org.apache.hadoop:hadoop-aws:{_HADOOP.get(minor_version(), _HADOOP[TESTED[-1]])}"


def checkpoint_class(name: str) -> str:
    """The full name of a class of Spark that writes checkpoints; Spark 4.1 has moved them."""
    folder = "" if minor_version() == "4.0" else "checkpointing."
    return f"org.apache.spark.sql.execution.streaming.{folder}{name}"
