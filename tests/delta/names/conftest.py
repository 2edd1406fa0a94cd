"""The session of ``with_metastore.py``: a Hive metastore of its own, an embedded Derby in a temporary folder.

A metastore is chosen when Spark starts, and a process starts one Spark; so these tests have a process of their own
(``test_names.py``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import SPARK_SETTINGS
from tests.settings import INTERPRETED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the warehouse; the metastore is beside it."""
    return tmp_path_factory.mktemp("metastore") / "warehouse"


@pytest.fixture(scope="session")
def _session(warehouse: Path) -> Iterator[SparkSession]:
    from wheel_udf.spark.session import build_session, stop_session

    derby = f"jdbc:derby:;databaseName={warehouse.parent / 'derby'};create=true"
    settings = SPARK_SETTINGS | INTERPRETED
    settings |= {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.hadoop.javax.jdo.option.ConnectionURL": derby,
    }
    before = Path.cwd()
    os.chdir(warehouse.parent)  # Derby writes its log here
    session = build_session("wheel_udf tests", master="local[2]", conf=settings, checkpoint=str(warehouse))
    session.sparkContext.setLogLevel("OFF")  # the metastore logs each schema that is missing
    yield session
    stop_session(session)
    os.chdir(before)
