"""Sessions of Spark Connect: the client has no JVM, no context and no files of the server.

::

    session            JVM objects, local properties, foreachBatch here     frames, streaming queries, Python sources
    classic            yes                                                  yes
    Spark Connect      no: SessionError, in one sentence                    yes

Imports the standard library and errors only: a client without py4j loads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wheel_udf.common.errors import needs_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
