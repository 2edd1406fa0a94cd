"""Classes of the JVM by their whole names, each asked for once: :func:`java_class`.

``spark._jvm.org.apache.hadoop.fs.Path`` asks the JVM five times: what is ``org``, what is ``org.apache`` and so on, and for each name that is no class,
Java opens all jars on its class path. Seen in a profile of a query from Kafka to Kafka: a third of what the thread of ``foreachBatch`` did. A class
asked for by its whole name is found at once, and is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_known: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()


def java_class(spark: SparkSession, name: str) -> Any:
    """A class of the session's JVM: call it for an instance, ask it for what is static.

    Args:
        spark: The session.
        name: With its package; an inner class after a ``$``.
    """
    machine = spark._jvm  # noqa: SLF001  # the way to what Spark has no Python API for
    classes = _known.setdefault(machine, {})
    if name not in classes:
        classes[name] = getattr(machine, name)
    return classes[name]


def scala_none(spark: SparkSession) -> Any:
    """Scala's ``None``."""
    return java_class(spark, "scala.Option").empty()


def scala_some(spark: SparkSession, value: Any) -> Any:
    """Scala's ``Some(value)``."""
    return java_class(spark, "scala.Option").apply(value)


def scala_seq(spark: SparkSession, items: Iterable[Any]) -> Any:
    """A Scala ``Seq``."""
    return java_class(spark, _PYTHON_UTILS).toSeq(list(items))


def scala_map(spark: SparkSession, items: Mapping[str, Any]) -> Any:
    """An immutable Scala ``Map``."""
    return java_class(spark, _PYTHON_UTILS).toScalaMap(dict(items))


_PYTHON_UTILS = "org.apache.spark.api.python.PythonUtils"
