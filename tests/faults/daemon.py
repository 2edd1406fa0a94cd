"""The daemon of a victim's Python workers (``spark.python.daemon.module``): imports once what each worker would import
when it is forked.
"""

from __future__ import annotations

from pyspark.daemon import manager

import tests.faults.hooks  # noqa: F401  # and with it what the workers need

if __name__ == "__main__":
    manager()
