"""One HDFS for the tests of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.hdfs import server
from tests.s3.job import Job, sparks_file_manager
from wheel_udf.spark import jars

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.Server]:
    """The server, for all tests."""
    if not jars.jar_files("hdfs"):
        pytest.fail("no jars for HDFS: python -m wheel_udf.spark.jars hdfs")
    with server.running(tmp_path_factory.mktemp("hdfs")) as running:
        yield running


@pytest.fixture
def hdfs_spark(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, which writes checkpoints in Spark's own way: a rename on HDFS replaces nothing."""
    with sparks_file_manager(spark):
        yield spark


@pytest.fixture
def job(hdfs_spark: SparkSession, hdfs: server.Server, request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    """A job in a folder of its own."""
    place = str(request.node.name).replace("[", "-").rstrip("]")
    return Job(hdfs_spark, hdfs, place, tmp_path, root=f"{hdfs.root}/{place}")
