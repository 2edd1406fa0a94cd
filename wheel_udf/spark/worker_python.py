"""Checks the Python of Spark's workers before a query needs it.

Spark starts its workers with the program in ``PYSPARK_PYTHON``, by default the first ``python3`` on the path. A
session that somebody else has built may so have workers without pyarrow, or of another version than the driver; Spark
then reports "Python worker failed to connect back" from the first batch.

::

    master             program                                   answer
    local, ...         that of the driver                        good
                       not there                                 error
                       another one: it is run once and asked     error if its minor version differs, or a package
                                                                 (numpy, pandas, pyarrow) is missing
    a cluster,         is on other machines                      not known, so good
    Spark Connect

Only what is certain is an error: a program that gives no answer passes, and so does every one where Spark unpacks
archives for it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING, Final

from wheel_udf.common.errors import SessionError
from wheel_udf.spark.local_mode import executors_are_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MODULES: Final = ("numpy", "pandas", "pyarrow")
_QUESTION: Final = (
    "import importlib.util as u, sys; "
    f"print('wheel-udf', '%d.%d' % sys.version_info[:2], *(m for m in {_MODULES} if u.find_spec(m) is None))"
)
_LONGEST_S: Final = 30


def require_worker_python(spark: SparkSession) -> None:
    """Refuses a session whose Python workers cannot run the operators, as far as that can be known.

    Raises:
        SessionError: The program is missing, of another minor version, or lacks a module.
    """
    # The session's settings have those of its context, whose own are copied one by one to be read.
    if not executors_are_here(spark) or spark.conf.get("spark.archives", None):
        return
    context = spark.sparkContext
    reason = fault_of(context.pythonExec, spark.conf.get("spark.executorEnv.PYTHONPATH", None))
    if reason is not None:
        raise SessionError(
            f"the Python of Spark's workers {reason}",
            field="PYSPARK_PYTHON",
            value=context.pythonExec,
            rule=f"Python {_own_version()}, as here, with {', '.join(_MODULES)}",
            hint=f"before the session is built: os.environ['PYSPARK_PYTHON'] = sys.executable; with spark-submit: "
            f"--conf spark.pyspark.python={sys.executable}; wheel_udf.build_session() does it by itself",
        )


@cache
def fault_of(program: str, path: str | None = None) -> str | None:
    """The fault of a program as the Python of workers, as a clause; None if none is known.

    Args:
        program: Its name or path.
        path: The workers' own ``PYTHONPATH``, if they have one.
    """
    found = shutil.which(program)
    if found is None:
        return "is not there"
    if os.path.abspath(found) == sys.executable:  # noqa: PTH100  # unresolved: venvs are links
        return None
    environment = {**os.environ, **({} if path is None else {"PYTHONPATH": path})}
    command = [found, "-c", _QUESTION]
    try:
        words = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_LONGEST_S, check=False
        ).stdout.split()
    except OSError as fault:
        return f"cannot be started ({fault.strerror})"
    except subprocess.TimeoutExpired:
        words = []
    if words[:1] != ["wheel-udf"]:
        return None
    _, version, *missing = words
    if version != _own_version():
        return f"is of version {version}"
    return f"has no {', '.join(missing)}" if missing else None


def _own_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
