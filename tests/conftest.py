"""What all tests share: UTC, one Spark session with every setting explained, and hypothesis without luck or deadlines.

``tests/unit`` runs first and starts no JVM: a guard fails the unit test that does. All other tests may ask for
``spark``.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.settings import INTERPRETED, SMALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]

# Before anything reads the clock's zone: a test that passes in one time zone only is a wrong test.
os.environ["TZ"] = "UTC"
time.tzset()

# Workers of Spark unpickle functions of test modules by name, so they have to find the tests.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

# A JVM of the tests lives for seconds or minutes: the second compiler and a collector with threads cost more than they
# give (test_operator.py alone: 87 instead of 127 CPU seconds; test_job.py 104 instead of 142; test_store_keeper.py and
# test_tiered.py together the same). With one compiler alone, Java makes room for 48 MB of code, and what Spark
# generates in minutes is more.
os.environ.setdefault(
    "JDK_JAVA_OPTIONS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
)

# The profiles of hypothesis: `make test` takes the quick one, with the same examples each time (a red build is a
# change's fault, never luck's); `make nightly` takes the thorough one (--hypothesis-profile=thorough), with new
# examples each time, and prints how to repeat a failure. No deadline: a shared machine stalls. Not too slow: what an
# example costs is the test's own choice.
_COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
settings.register_profile("quick", _COMMON, max_examples=50, derandomize=True)
settings.register_profile("thorough", _COMMON, max_examples=500, print_blob=True)
settings.load_profile("quick")

SPARK_SETTINGS: dict[str, str | float | bool] = {
    **SMALL,
    # One JVM has all tests of a process: after a hundred of whole jobs it keeps 370 MB of old plans, and a batch needs
    # as much again.
    "spark.driver.memory": "2g",
    # Queries of tests keep few batches: nobody looks back over them.
    "spark.sql.streaming.minBatchesToRetain": 10,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """How much of the crash matrix runs, and how Spark evaluates."""
    what = "less than 1: only a tenth of the crash matrix (tests/faults), with each point once"
    parser.addoption("--share", type=float, default=1.0, help=what)
    interpreted = "Spark evaluates without generated code, see tests/settings.py"
    parser.addoption("--interpreted", action="store_true", help=interpreted)


_FOLDERS = (
    "unit",
    "faults",
    "cluster",
    "page",
    "upgrade",
    "iceberg",
    "kafka",
    "s3",
    "hdfs",
    "connect",
    "delta",
    "spark",
)


def _folder(item: pytest.Item) -> int:
    return _FOLDERS.index(item.path.relative_to(ROOT / "tests").parts[0])


def _is_unit(item: pytest.Item) -> bool:
    return ROOT / "tests" / "unit" in item.path.parents


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Unit tests first: they answer in seconds, and no JVM of another test can hide that one of them needs it.

    Then the folders with the longest tests, so that two processes that share the files (``make test``) end together;
    of whole jobs (``make test-jobs``) those that move.
    """
    items.sort(key=lambda item: (_folder(item), item.path.parent.name != "transfer"))


@pytest.fixture(autouse=True)
def _no_jvm_in_unit_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    unit = _is_unit(request.node)
    if unit and "spark" in request.fixturenames:
        pytest.fail("tests/unit starts no JVM: move the test to tests/spark")
    before = _jvm_is_up()
    yield
    if unit and not before and _jvm_is_up():
        pytest.fail("this unit test started a JVM: move it to tests/spark")


@pytest.fixture(autouse=True)
def _starts_are_quiet(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of a start that takes long would be lines of a job on a busy machine only;
    ``tests/unit/job/test_phases.py`` has them.
    """
    if not _is_unit(request.node):
        monkeypatch.setattr("wheel_udf.job.phases.LONG_S", 3_600)


@pytest.fixture(autouse=True)
def _secrets() -> Iterator[None]:
    """The process remembers every secret that it has seen, and hides it in all lines: those of a test are forgotten
    after it.
    """
    from wheel_udf.common import secrets

    with secrets.forget_at_end():
        yield


def _jvm_is_up() -> bool:
    context = sys.modules.get("pyspark.core.context")
    return context is not None and context.SparkContext._gateway is not None


def _jars() -> dict[str, str]:
    """The project's jars, and beside them a JDBC driver as users add one: not on the class path of the JVM, whose
    class archive is made for the others.
    """
    from wheel_udf.spark import jars

    ours, of_s3, more = ([*map(str, jars.jar_files(each))] for each in ("spark", "s3", "database"))
    ours += of_s3
    return {"spark.jars": ",".join([*ours, *more]), "spark.driver.extraClassPath": os.pathsep.join(ours)}


@pytest.fixture(scope="session")
def _session(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[SparkSession]:
    from wheel_udf.spark.session import build_session, stop_session

    folder = str(tmp_path_factory.mktemp("warehouse"))
    settings = SPARK_SETTINGS | _jars() | {"spark.sql.warehouse.dir": folder}
    if request.config.getoption("--interpreted"):
        settings |= INTERPRETED
    session = build_session("wheel_udf tests", master="local[2]", conf=settings, checkpoint=folder)
    yield session
    stop_session(session)


@pytest.fixture
def spark(_session: SparkSession) -> Iterator[SparkSession]:
    """The one session of the test run. After each test: no running query, nothing cached, no view, the settings as
    before.
    """
    settings_before = dict(_session.conf.getAll)
    yield _session
    for query in _session.streams.active:
        query.stop()
    _session.catalog.clearCache()
    # Not catalog.listTables(), which fails without generated code once there is a table.
    for table in _session.sql("SHOW TABLES").collect():
        if table.isTemporary:
            _session.catalog.dropTempView(table.tableName)
    _restore(_session, settings_before)


def _restore(session: SparkSession, before: dict[str, str]) -> None:
    now = dict(session.conf.getAll)
    for key in now.keys() - before.keys():
        session.conf.unset(key)
    for key, value in before.items():
        if now.get(key) != value:
            session.conf.set(key, value)
