"""How the processes of a local session get memory from the system: glibc's ``malloc`` keeps what it has freed.

A shard's state is some ten MB in one piece, which the JVM (RocksDB, Arrow) and the Python worker copy several times in
each batch. By default ``malloc`` takes a piece of more than 32 MB from the system each time and gives it back, and the
kernel fills it with zeros page by page.

One arena, because only the main one may grow beyond 64 MB. Price: a process keeps the memory of its largest batch.
Other C libraries ignore the settings. On executors of a cluster ``conf/spark-defaults.conf`` sets the same by
``spark.executorEnv``.
"""

from __future__ import annotations

from types import MappingProxyType

MALLOC_SETTINGS = MappingProxyType(
    {
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_THRESHOLD_": "1073741824",
        "MALLOC_TOP_PAD_": "67108864",
        "MALLOC_TRIM_THRESHOLD_": "1073741824",
    }
)
"""Environment variables of glibc (``mallopt(3)``), bytes."""
