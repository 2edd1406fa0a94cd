"""Sessions of Spark Connect: the client has no JVM, no context and no files of the server.

::

    session            JVM objects, local properties, foreachBatch here     frames, streaming queries, Python sources
    classic            yes                                                  yes
    Spark Connect      no: SessionError, in one sentence                    yes

Imports the standard library and errors only: a client without py4j loads it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from wheel_udf.common.errors import SessionError, needs_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_THE_JVM: Final = ("pyspark", "py4j", "delta", "deltalake")
"""Packages that a client of Spark Connect (``pyspark-client``) lacks, or has without the part that uses the JVM."""


def missing_jvm(fault: ImportError, part: str) -> SessionError | None:
    """Returns the error to raise if a module is missing because this is a client of Spark Connect; None if it is not.

    Args:
        fault: The error of an import.
        part: What has imported it, as the subject of a sentence.
    """
    is_client = find_spec("pyspark") is not None and find_spec("py4j") is None
    return needs_jvm(part) if is_client and (fault.name or "").split(".")[0] in _OF_THE_JVM else None


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is a client of Spark Connect."""
    return any(kind.__module__.startswith("pyspark.sql.connect.") for kind in type(spark).__mro__)


def require_jvm(spark: SparkSession, part: str) -> None:
    """Refuses a session of Spark Connect.

    Args:
        spark: The session.
        part: What needs the JVM, as the subject of a sentence.

    Raises:
        SessionError: It is one.
    """
    if is_connect(spark):
        raise needs_jvm(part)
