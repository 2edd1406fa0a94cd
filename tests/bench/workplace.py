"""What the benches with a session of their own share: the session, a folder for their data, and a clock beside what
they say.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from wheel_udf.spark.session import build_session, stop_session

Say = Callable[[str], None]


@contextmanager
def workplace(name: str, memory: str) -> Iterator[tuple[SparkSession, Path, Say]]:
    """Holds a session and a folder until the bench is over.

    Args:
        name: Of the bench.
        memory: Of the JVM.

    Yields:
        The session, the folder, and what prints a line.
    """
    folder, began_s = Path(tempfile.mkdtemp(prefix=f"wheel-bench-{name}-")), time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began_s:7.1f} s  {text}", flush=True)

    settings = {
        "spark.sql.shuffle.partitions": 2,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": memory,
    }
    spark = build_session(f"wheel_udf {name} bench", master="local[2]", conf=settings, checkpoint=str(folder))
    try:
        yield spark, folder, say
    finally:
        stop_session(spark)
        shutil.rmtree(folder, ignore_errors=True)
