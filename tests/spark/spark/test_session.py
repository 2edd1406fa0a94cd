"""The session that everybody gets: Delta works, the settings arrive, and spark-submit's own choices stand."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from pathlib import Path

from pyspark.sql import SparkSession, functions as F

from wheel_udf.job.sessions import session
from wheel_udf.spark import fast_start
from wheel_udf.spark.session import build_session, read_defaults

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


def test_the_running_session_is_not_the_copy_of_a_query_whose_batch_function_made_a_frame(
    spark: SparkSession,
) -> None:
    """Pyspark took it for the active session in all threads, so a job that was started later ran in the copy."""
    copy = spark.newSession()
    thread = threading.Thread(target=lambda: copy.createDataFrame([], "nothing int"))
    thread.start()
    thread.join()
    assert SparkSession.getActiveSession() is copy

    assert build_session("again") is spark


def test_the_running_session_is_found_from_a_thread_that_has_no_active_one(spark: SparkSession) -> None:
    """A verb that was called in a thread stopped the session of its caller."""
    found = []

    def verb() -> None:
        with session("a verb") as running:
            found.append(running)

    thread = threading.Thread(target=verb)
    thread.start()
    thread.join()

    assert found == [spark]
    assert spark.range(1).count() == 1  # it still runs


def test_what_one_test_sets_the_next_does_not_see(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_the_jvm_of_a_session_ignores_sigterm_so_that_a_job_can_finish_its_batch(spark: SparkSession) -> None:
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()
    (ignored,) = re.findall(r"^SigIgn:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)

    assert int(ignored, 16) & 1 << (signal.SIGTERM - 1)


def test_the_jvm_of_a_session_uses_the_class_archive(spark: SparkSession) -> None:
    bean = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()

    assert f"-XX:SharedArchiveFile={fast_start.archive_file()}" in list(bean.getInputArguments())
    assert not [folder for folder in bean.getClassPath().split(os.pathsep) if folder == str(ROOT / "conf")]
