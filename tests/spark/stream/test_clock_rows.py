"""The registration of our sources in a session, where Spark takes them for others or its search of the class path
fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceRegistration

from wheel_udf.stream.clock_rows import register


def _source(of_name: str) -> type[DataSource]:
    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return of_name

    return Source


@contextmanager
def _broken_class_path(spark: SparkSession, folder: Path) -> Iterator[None]:
    """A jar is found that lists a source and does not have it."""
    services = folder / "META-INF/services"
    services.mkdir(parents=True)
    (services / "org.apache.spark.sql.sources.DataSourceRegister").write_text("not.in.this.jar.Source\n")
    java = spark._jvm
    assert java is not None
    thread = java.java.lang.Thread.currentThread()
    own = thread.getContextClassLoader()
    places = spark.sparkContext._gateway.new_array(java.java.net.URL, 1)
    places[0] = java.java.io.File(str(folder)).toURI().toURL()
    thread.setContextClassLoader(java.java.net.URLClassLoader(places, own))
    try:
        yield
    finally:
        thread.setContextClassLoader(own)


def test_a_class_path_that_cannot_be_searched_is_told_by_its_own_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    with (
        _broken_class_path(spark, tmp_path),
        pytest.raises(Exception, match=r"not\.in\.this\.jar\.Source not found"),
    ):
        register(spark, _source("never-registered"))


def test_a_search_that_fails_once_is_no_reason_to_say_that_the_source_exists(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark says so of any failure, and drops the cause."""
    real, failed = DataSourceRegistration.register, []

    def fails_once(self: DataSourceRegistration, source: type[DataSource]) -> None:
        if failed:
            return real(self, source)
        with _broken_class_path(spark, tmp_path):
            try:
                return real(self, source)
            except Exception as fault:
                failed.append(str(fault))
                raise

    monkeypatch.setattr(DataSourceRegistration, "register", fails_once)

    register(spark, _source("registered-at-last"))

    assert "'registered-at-last' already exists" in failed[0]
    with pytest.raises(Exception, match="schema is not implemented"):
        spark.read.format("registered-at-last").load()  # so Spark has found it


def test_a_source_that_another_active_session_has_is_registered_in_ours(spark: SparkSession) -> None:
    """An import failed twice, in long runs of tests, with "Data source 'wheel-position' already exists": its session
    had never seen it, another had.
    """
    source = _source("of-another-session")
    another = spark.newSession()
    register(another, source)
    another.createDataFrame([], "nothing int")  # makes it the active one

    register(spark, source)

    with pytest.raises(Exception, match="schema is not implemented"):
        spark.read.format("of-another-session").load()  # so Spark has found it
