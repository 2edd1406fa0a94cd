"""The error for a version of Spark or Delta that lacks a private API which this package uses.

``private_api.toml`` is the list of these: what Spark, Delta or py4j does not promise to keep.
``tests/upgrade/test_canaries.py`` exercises every entry against the installed versions. To use another private API,
add an entry there and a canary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from py4j.protocol import Py4JError

from wheel_udf.common.errors import UnsupportedVersionError
from wheel_udf.common.package_data import toml_of
from wheel_udf.spark.failures import first_line
from wheel_udf.spark.versions import DELTA, TESTED

# How a missing class, method, signature or JVM-side dependency shows itself.
_NO_SUCH_MEMBER: Final = re.compile(
    r"(?:Method|Constructor) .* does not exist|does not exist in the JVM|does not exist in .*JavaClass"
    r"|^: java\.lang\.(?:NoSuchMethod|NoSuchField|NoClassDefFound|AbstractMethod|IncompatibleClassChange)Error",
    re.MULTILINE,
)


def private_apis() -> dict[str, dict[str, str]]:
    """The list, by the key of an entry; the file describes its fields."""
    return toml_of(__name__, "private_api.toml")


@contextmanager
def required(key: str) -> Iterator[None]:
    """Reports a class, method or signature that is missing as an error that names the versions.

    Use it as a decorator or in a ``with``, around calls of the API alone.

    Args:
        key: The entry of the list.

    Raises:
        UnsupportedVersionError: Something of the API is missing. All other exceptions pass.
    """
    try:
        yield
    except (AttributeError, ImportError, Py4JError) as fault:
        if isinstance(fault, Py4JError) and _NO_SUCH_MEMBER.search(str(fault)) is None:
            raise
        api = private_apis()[key]
        raise unsupported(api["name"], f"{first_line(str(fault))}; {api['risk']}") from fault


def unsupported(name: str, detail: str) -> UnsupportedVersionError:
    """The error for an API that is missing: its name, and what is missing of it."""
    return UnsupportedVersionError(
        f"the installed Spark or Delta lacks an internal API ({detail})",
        field=name,
        rule=f"as in Spark {TESTED[0]} to {TESTED[-1]} and Delta {DELTA}; installed: {installed_versions()}",
        hint="install the versions of Spark and Delta that this release was tested with",
    )


def installed_versions() -> str:
    """The installed versions, for people."""
    return f"Spark {_version_of('pyspark')}, Delta {_version_of('delta-spark')}"


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a managed Spark brings its own
        return "of unknown version"
