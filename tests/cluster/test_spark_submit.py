"""The project's settings under spark-submit, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


_JOB = """
import sys
from wheel_udf.spark.session import build_session, stop_session

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


def test_the_settings_for_all_platforms_are_enough_with_the_jars_on_the_class_path(tmp_path: Path) -> None:
    """As the manifest of the Spark operator has them: in cluster mode there is no pattern in spark.jars."""
    jars = f"{sys.prefix}/jars/spark/*:{sys.prefix}/jars/s3/*"
    class_path = ["--conf", "spark.jars=", "--conf", f"spark.driver.extraClassPath={jars}"]

    run = _submit(tmp_path, ["--properties-file", "conf/deploy/spark.properties", *class_path])

    assert run.stdout.splitlines() == ["rows 4", "partitions 4", "zone UTC"], run.stderr


def test_spark_submit_without_delta_is_told_what_to_add(tmp_path: Path) -> None:
    run = _submit(tmp_path, ["--conf", "spark.jars="])

    assert run.returncode == 1
    # spark-submit puts both streams of a Python job on its own standard output.
    assert "SessionError: Spark was started without Delta" in run.stdout
    assert "--properties-file conf/spark-defaults.conf" in run.stdout


@pytest.fixture(autouse=True)
def _spark_submit_finds_its_spark() -> None:
    """`make setup` makes this link; pytest may also run in an environment that was made by hand."""
    from wheel_udf.spark.jars import link_spark_home

    link_spark_home()
