"""A delay scheduler on Spark: entries wait in a hierarchical timing wheel and are released when they are due.

``__init__.pyi`` lists the public names with the modules that define them. They are loaded on first use (PEP 562):
``import wheel_udf`` costs nothing, and an executor that imports ``wheel_udf.wheel`` loads numpy, pandas and pyarrow,
but not pyspark. The rooms, from the ground up, are listed in CONTRIBUTING.md; code inside the package imports the
module that defines a name.
"""

from __future__ import annotations

import ast
from functools import cache
from importlib import import_module
from pkgutil import get_data

from wheel_udf.common.errors import missing_spark
from wheel_udf.spark.connect_session import missing_jvm

__version__ = "0.3.0"


@cache
def _homes() -> dict[str, str]:
    """The module of each public name."""
    listed = ast.parse(get_data(__name__, "__init__.pyi") or b"").body
    found = [node for node in listed if isinstance(node, ast.ImportFrom) and node.module]
    return {alias.name: node.module for node in found for alias in node.names if node.module}


def __getattr__(name: str) -> object:
    """A public name, from its module.

    Raises:
        AttributeError: It is not public.
        SessionError: Its module needs pyspark or delta-spark, which are not installed, or a JVM that a client of Spark
            Connect has not.
    """
    if name == "__all__":
        return __dir__()
    if name not in _homes():
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    try:
        value = getattr(import_module(_homes()[name]), name)
    except ImportError as fault:
        raise missing_jvm(fault, name) or missing_spark(fault) or fault from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted(_homes())
