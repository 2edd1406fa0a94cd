"""Spark settings of small jobs: those of the session of the tests, and of the processes of ``tests/faults``; on top of
``conf/spark-defaults.conf``.
"""

from __future__ import annotations

from typing import Final

SMALL: Final[dict[str, str | float | bool]] = {
    # Two, as shards have to work in several tasks. Not more: a test's batch costs by the task, not by the row (two
    # cost 7 % more CPU than one).
    "spark.sql.shuffle.partitions": 2,
    # Leave room for the tests beside it; no test holds more than a few thousand rows.
    "spark.driver.memory": "1g",
    # Nothing on the network: a laptop changes its address while the tests run.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Small data: one file per write, and no compression to load a native library for.
    "spark.sql.parquet.compression.codec": "uncompressed",
    # Chunks of all sizes are in files beside the checkpoint: the states of tests are small, and would have none.
    "spark.wheel_udf.chunkFileCharacters": 1,
}

INTERPRETED: Final[dict[str, str | float | bool]] = {
    "spark.sql.codegen.wholeStage": False,
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Spark without generated code, for whole jobs over few rows: these are read faster than the code for them is written and
compiled (``tests/delta/tiered/test_limits.py``: 111 CPU seconds instead of 139). ``make test``, the notebooks, the
soak and ``tests/cluster`` have generated code, as users do."""
