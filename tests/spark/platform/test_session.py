"""The session that everybody gets: Delta works, the settings arrive, and spark-submit's own choices stand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession, functions as F

from wheel_udf.platform import class_archive
from wheel_udf.platform.session import build_session, read_defaults

ROOT = Path(__file__).parents[3]


def test_a_delta_table_is_written_and_read_back(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.format("delta").save(str(tmp_path / "table"))
    spark.range(3, 5).write.format("delta").mode("append").save(str(tmp_path / "table"))

    table = spark.read.format("delta").load(str(tmp_path / "table"))

    assert sorted(row.id for row in table.collect()) == [0, 1, 2, 3, 4]


def test_the_settings_of_the_project_file_are_the_sessions(spark: SparkSession) -> None:
    chosen_by_tests = {"spark.master", "spark.driver.memory", "spark.sql.shuffle.partitions"}
    paths = {"spark.jars", "spark.driver.extraJavaOptions", "spark.pyspark.python"}
    expected = {
        key: value
        for key, value in read_defaults(ROOT / "conf").items()
        if key not in chosen_by_tests | paths
    }

    assert {key: spark.conf.get(key) for key in expected} == expected


def test_workers_run_the_python_of_the_driver(spark: SparkSession) -> None:
    executable = spark.range(1).select(F.udf(lambda _: sys.executable, "string")("id")).first()

    assert executable is not None
    assert executable[0] == sys.executable


def test_a_second_call_returns_the_running_session_with_only_its_own_settings_added(
    spark: SparkSession,
) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "3")

    again = build_session(
        "again", conf={"spark.sql.streaming.stopTimeout": 5, "spark.sql.ansi.enabled": True}
    )

    assert again is spark
    assert again.conf.get("spark.sql.shuffle.partitions") == "3"
    assert again.conf.get("spark.sql.streaming.stopTimeout") == "5"
    assert again.conf.get("spark.sql.ansi.enabled") == "true"


def test_what_one_test_sets_the_next_does_not_see(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.shuffle.partitions") == "1"


_JOB = """
import sys
from wheel_udf.platform.session import build_session, stop_session

spark = build_session("submitted")
spark.range(4).write.format("delta").save(sys.argv[1])
print("rows", spark.read.format("delta").load(sys.argv[1]).count())
print("partitions", spark.conf.get("spark.sql.shuffle.partitions"))
print("zone", spark.conf.get("spark.sql.session.timeZone"))
stop_session(spark)
"""


def _submit(tmp_path: Path, options: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a small job under this environment's spark-submit, from the project's root, with no environment activated."""
    job = tmp_path / "job.py"
    job.write_text(_JOB)
    prefix = Path(sys.prefix)
    settings = [
        "--conf",
        f"spark.jars={prefix}/jars/spark/*.jar",
        "--conf",
        f"spark.pyspark.python={sys.executable}",
    ]
    command = [
        str(prefix / "bin" / "spark-submit"),
        "--master",
        "local[1]",
        *settings,
        *options,
        str(job),
        str(tmp_path / "table"),
    ]
    inherited = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("SPARK", "PYSPARK", "VIRTUAL_ENV"))
    }
    return subprocess.run(
        command,
        cwd=ROOT,
        env=inherited | environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=600,
        check=False,
    )


def test_the_jvm_of_a_session_uses_the_class_archive(spark: SparkSession) -> None:
    bean = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()

    assert f"-XX:SharedArchiveFile={class_archive.archive_file()}" in list(bean.getInputArguments())
    assert not [folder for folder in bean.getClassPath().split(os.pathsep) if folder == str(ROOT / "conf")]


def loud(output: str) -> list[str]:
    """Lines that nobody asked for; without one that the tests themselves cause (see conftest.py)."""
    return [
        line for line in output.splitlines() if "incubator" not in line and "JDK_JAVA_OPTIONS" not in line
    ]


def test_plain_spark_submit_with_the_projects_conf_folder_writes_delta(tmp_path: Path) -> None:
    run = _submit(tmp_path, [], SPARK_CONF_DIR="conf")

    assert run.stdout.splitlines() == ["rows 4", "partitions 2", "zone UTC"], run.stderr
    # The JVM itself prints one line about incubator modules, which no setting turns off. Nothing else is worth a line.
    assert loud(run.stderr) == []


def test_what_spark_submit_was_told_stands_over_the_projects_file(tmp_path: Path) -> None:
    run = _submit(
        tmp_path,
        ["--properties-file", "conf/spark-defaults.conf", "--conf", "spark.sql.shuffle.partitions=5"],
    )

    assert run.stdout.splitlines() == ["rows 4", "partitions 5", "zone UTC"], run.stderr
    assert loud(run.stderr) == []


def test_spark_submit_without_delta_is_told_what_to_add(tmp_path: Path) -> None:
    run = _submit(tmp_path, ["--conf", "spark.jars="])

    assert run.returncode == 1
    # spark-submit puts both streams of a Python job on its own standard output.
    assert "SessionError: Spark was started without Delta" in run.stdout
    assert "--properties-file conf/spark-defaults.conf" in run.stdout


@pytest.fixture(autouse=True)
def _spark_submit_finds_its_spark() -> None:
    """`make setup` makes this link; pytest may also run in an environment that was made by hand."""
    from wheel_udf.platform.jars import link_spark_home

    link_spark_home()
