"""A session with Iceberg's runtime and a catalog of its own, for Spark 4.0 and 4.1: ``make test-versions``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.iceberg.lake import settings
from tests.settings import SMALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the catalog ``lake``."""
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="session")
def _session(warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from wheel_udf.spark.session import build_session, stop_session

    folder = str(tmp_path_factory.mktemp("warehouse"))
    ours = SMALL | settings(warehouse) | {"spark.sql.warehouse.dir": folder}
    session = build_session("wheel_udf tests", master="local[2]", conf=ours, checkpoint=folder)
    session.sql("CREATE NAMESPACE IF NOT EXISTS lake.rem")
    yield session
    stop_session(session)
