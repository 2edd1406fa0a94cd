"""Access to the JVM of a session: classes by their full names, the session's JVM objects.

``spark._jvm.org.apache.hadoop.fs.Path`` sends five requests to the JVM (``org``, ``org.apache`` and so on),
and for each name that is no class, Java opens all jars on its class path. :func:`java_class` looks a class up once, by
its full name, and keeps it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaPackage

from wheel_udf.spark.connect_session import require_jvm
from wheel_udf.spark.private_api import required, unsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_known: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()


@required("gateway")
def java_gateway(spark: SparkSession) -> Any:
    """The py4j view of the session's JVM; another one after the JVM was started again."""
    require_jvm(spark, "this part of wheel_udf")
    return spark._jvm  # noqa: SLF001


@required("gateway")
def hadoop_configuration(spark: SparkSession) -> Any:
    """The Hadoop configuration of the session's context."""
    require_jvm(spark, "this part of wheel_udf")
    return spark._jsc.hadoopConfiguration()  # noqa: SLF001


def java_class(spark: SparkSession, name: str) -> Any:
    """A class of the session's JVM. Call it for an instance; its attributes are the static members.

    Args:
        spark: The session.
        name: The full name; an inner class after a ``$``.

    Raises:
        UnsupportedVersionError: There is no such class.
    """
    machine = java_gateway(spark)
    classes = _known.setdefault(machine, {})
    if name not in classes:
        found = getattr(machine, name)
        if isinstance(found, JavaPackage):  # py4j takes any unknown name for a package
            raise unsupported(name, "no such class")
        classes[name] = found
    return classes[name]


def has_class(spark: SparkSession, name: str) -> bool:
    """Whether the session's JVM has a class."""
    return not isinstance(getattr(java_gateway(spark), name), JavaPackage)
