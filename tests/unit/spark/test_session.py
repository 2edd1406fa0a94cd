"""What the session decides before any JVM starts: Java, the settings file, and who wins over whom."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from wheel_udf.common.errors import SessionError
from wheel_udf.spark import jars, java as java_program, session, versions

ROOT = Path(__file__).parents[3]


def _fake_java(folder: Path, banner: str, *, exit_code: int = 0) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{banner}' >&2\nexit {exit_code}\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return java


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_401"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Da=1\nopenjdk version "11.0.2" 2019-01-15', 11),
        ('openjdk version "26-ea" 2026-03-17', 26),
    ],
)
def test_the_major_version_is_read_from_every_spelling(banner: str, version: int) -> None:
    assert java_program.java_version(banner) == version


def test_a_banner_without_a_version_is_an_error_that_shows_it() -> None:
    with pytest.raises(SessionError, match="'no such thing'"):
        java_program.java_version("no such thing")


def test_java_home_wins_over_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = _fake_java(tmp_path, 'openjdk version "17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert java_program.find_java() == java


def test_java_on_the_path_is_found_without_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = _fake_java(tmp_path, 'openjdk version "21.0.1"')
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{java.parent}{os.pathsep}{os.environ['PATH']}")

    assert java_program.find_java() == java


def test_missing_java_is_an_error_with_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SessionError, match=r"Java is missing.*hint: install Java 17 or 21"):
        java_program.find_java()


def test_a_java_home_without_java_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))

    with pytest.raises(SessionError, match=r"no Java where JAVA_HOME points: JAVA_HOME = '.*nowhere'"):
        java_program.find_java()


def test_a_java_that_is_too_old_is_an_error_with_both_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake_java(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(SessionError, match=r"too old for Spark 4: .* = 11; rule: 17 or newer"):
        java_program.check_java()


def test_a_java_that_only_apologises_is_an_error_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake_java(tmp_path, "Unable to locate a Java Runtime.", exit_code=1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(SessionError, match=r"Java does not run.*Unable to locate a Java Runtime"):
        java_program.check_java()


def test_the_session_checks_java_before_it_starts_a_jvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(SessionError, match="no Java where JAVA_HOME points"):
        session.build_session("never started")


DELTA_AND_KAFKA = "io.delta:delta-spark_4.2_2.13:4.4.0,org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
POSTGRES = "org.postgresql:postgresql:42.7.7"


@pytest.mark.parametrize(
    ("given", "jar_files", "packages"),
    [
        ({}, None, DELTA_AND_KAFKA),
        ({"spark.jars.packages": POSTGRES}, None, f"{POSTGRES},{DELTA_AND_KAFKA}"),
        ({"spark.jars": "mine.jar"}, "mine.jar", None),
    ],
)
def test_without_jars_in_the_environment_spark_downloads_them(
    given: dict[str, str],
    jar_files: str | None,
    packages: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    monkeypatch.setattr(java_program, "find_java", lambda: Path("java"))

    settings = session.local_settings(given)

    assert (settings.get("spark.jars"), settings.get("spark.jars.packages")) == (jar_files, packages)


def test_the_jars_of_the_environment_are_taken_before_a_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    monkeypatch.setattr(java_program, "find_java", lambda: Path("java"))
    (tmp_path / "jars" / "spark").mkdir(parents=True)
    (tmp_path / "jars" / "spark" / "delta-spark_4.2_2.13-4.4.0.jar").touch()

    settings = session.local_settings({"spark.jars.packages": POSTGRES})

    assert settings["spark.driver.extraClassPath"] == f"{tmp_path}/jars/spark/delta-spark_4.2_2.13-4.4.0.jar"
    assert settings["spark.jars.packages"] == POSTGRES


@pytest.mark.parametrize("has_ours", [True, False])
def test_jars_for_s3_are_taken_beside_the_jars_for_spark_and_beside_a_download(
    has_ours: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    monkeypatch.setattr(java_program, "find_java", lambda: Path("java"))
    names = ["spark/delta-spark_4.2_2.13-4.4.0.jar"] * has_ours + ["s3/hadoop-aws.jar"]
    for name in names:
        (tmp_path / "jars" / name).parent.mkdir(parents=True)
        (tmp_path / "jars" / name).touch()

    settings = session.local_settings({})

    assert settings["spark.driver.extraClassPath"] == ":".join(f"{tmp_path}/jars/{name}" for name in names)
    assert ("spark.jars.packages" in settings) == (not has_ours)


def test_settings_are_read_in_each_of_sparks_spellings(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# a comment\n\nspark.a   1\nspark.b=2\nspark.c = 3\nspark.d\tx=y z\n   spark.e: 5\n",
        encoding="utf-8",
    )

    assert session.read_defaults(tmp_path) == {
        "spark.a": "1",
        "spark.b": "2",
        "spark.c": "3",
        "spark.d": "x=y z",
        "spark.e": "5",
    }


def test_a_setting_without_a_value_is_an_error_that_quotes_it(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.alone\n", encoding="utf-8")

    with pytest.raises(SessionError, match=r"without a value.*'spark\.alone'"):
        session.read_defaults(tmp_path)


def test_no_folder_and_no_file_mean_no_settings(tmp_path: Path) -> None:
    assert session.read_defaults(None) == {}
    assert session.read_defaults(tmp_path) == {}


def test_every_project_setting_has_its_reason_above_it() -> None:
    lines = (ROOT / "conf" / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    unexplained = [line for above, line in pairwise(lines) if line.startswith("spark.") and not above.strip()]

    assert unexplained == []


def test_the_settings_that_keep_state_safe_are_the_ones_shipped() -> None:
    settings = session.read_defaults(ROOT / "conf")

    assert settings["spark.sql.session.timeZone"] == "UTC"
    assert settings["spark.sql.streaming.stateStore.checkpointFormatVersion"] == "2"
    assert settings["spark.sql.streaming.stateStore.providerClass"].endswith(".RocksDBStateStoreProvider")
    assert settings["spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"] == "true"
    assert settings["spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows"] == "false"


def test_driver_workers_and_executors_get_memory_in_the_same_way() -> None:
    settings = session.read_defaults(ROOT / "conf")
    of_executors = {
        key.removeprefix("spark.executorEnv."): value for key, value in settings.items() if "MALLOC" in key
    }
    script = (ROOT / "conf" / "spark-env.sh").read_text(encoding="utf-8")
    of_submit = dict(re.findall(r'^export (\w+)="\$\{\1:-(\d+)\}"$', script, re.MULTILINE))

    assert of_executors == of_submit
    assert len(of_submit) == 4


@pytest.mark.parametrize(
    ("given", "started_with"), [("C", "C.UTF-8"), ("POSIX", "C.UTF-8"), ("de_DE", "de_DE")]
)
def test_the_jvm_starts_with_a_locale_that_has_all_names_of_files(
    monkeypatch: pytest.MonkeyPatch, given: str, started_with: str
) -> None:
    monkeypatch.setenv("LC_ALL", given)
    with session.environment_with({}):
        assert os.environ["LC_ALL"] == started_with
    assert os.environ["LC_ALL"] == given


def test_the_settings_of_memory_are_in_the_environment_only_while_spark_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "4")
    monkeypatch.delenv("MALLOC_TOP_PAD_", raising=False)

    with session.environment_with(session.read_defaults(ROOT / "conf")):
        assert (os.environ["MALLOC_ARENA_MAX"], os.environ["MALLOC_TOP_PAD_"]) == ("4", "67108864")

    assert os.environ["MALLOC_ARENA_MAX"] == "4"
    assert "MALLOC_TOP_PAD_" not in os.environ


def test_the_users_own_conf_folder_wins_over_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.sql.shuffle.partitions 7\nspark.mine 1\n", encoding="utf-8"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(java_program, "find_java", lambda: Path("java"))

    settings = session.local_settings({"spark.mine": "2"})

    assert settings["spark.sql.shuffle.partitions"] == "7"
    assert settings["spark.mine"] == "2"
    assert settings["spark.sql.session.timeZone"] == "UTC"


@pytest.mark.parametrize(
    ("given", "timeout"),
    [
        ({}, "3650d"),
        ({"spark.master": "local[2, 4]"}, "3650d"),
        ({"spark.master": "local-cluster[2,1,1024]"}, None),
        ({"spark.master": "spark://host:7077"}, None),
        ({"spark.storage.blockManagerHeartbeatTimeoutMs": "1h"}, "1h"),
    ],
)
def test_only_in_local_mode_a_clock_that_steps_forward_does_not_cost_the_executor(
    given: dict[str, str], timeout: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.setattr(java_program, "find_java", lambda: Path("java"))
    assert session.local_settings(given).get("spark.storage.blockManagerHeartbeatTimeoutMs") == timeout


def test_python_and_library_pin_the_same_delta() -> None:
    ivy = (ROOT / "conf" / "ivy.xml").read_text(encoding="utf-8")
    constraints = (ROOT / "conf" / "constraints.txt").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    delta_jars = dict(re.findall(r'name="delta-spark_([\d.]+)_2\.13" rev="([\d.]+)"', ivy))

    assert versions.packages() == DELTA_AND_KAFKA
    assert delta_jars == dict.fromkeys(versions.TESTED, versions.DELTA)
    assert f"delta-spark=={versions.DELTA}" in constraints.split()
    assert f"\npyspark=={versions.TESTED[-1]}." in constraints
    assert f'"delta-spark>={versions.DELTA.rpartition(".")[0]},<' in project
    assert f'"pyspark>={versions.TESTED[0]}.' in project


IVY = """#!/bin/sh
while [ $# -gt 0 ]; do [ "$1" = -retrieve ] && place="${2%%/\\[conf*}"; shift; done
mkdir "$place/spark-4.2" && touch "$place/spark-4.2/new.jar"
"""


@pytest.mark.parametrize(
    ("ivy", "left"), [(IVY, ["spark", "new.jar"]), ("#!/bin/sh\nexit 1\n", ["spark", "old.jar"])]
)
def test_a_folder_of_jars_is_complete_or_as_it_was_before(
    ivy: str, left: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java, into = tmp_path / "java", tmp_path / "jars"
    java.write_text(ivy)
    java.chmod(0o755)
    (into / "spark").mkdir(parents=True)
    (into / "spark" / "old.jar").touch()
    monkeypatch.setattr(jars, "find_java", lambda: java)

    if "exit 1" in ivy:
        with pytest.raises(SessionError, match=r"cannot be downloaded.*check the network"):
            jars.resolve(["spark"], into)
    else:
        assert jars.resolve(["spark"], into) == [into / "spark"]
    assert [path.name for path in sorted(into.rglob("*"))] == left


def test_an_interrupt_of_the_command_line_is_one_line_and_code_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_args: object, **_more: object) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(jars, "resolve", interrupted)

    assert jars.main(["spark", "broker"]) == 130
    assert capsys.readouterr().err == "interrupted: a folder of jars is complete or as it was before\n"


def test_the_command_line_answers_a_fault_with_one_line_and_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert jars.main(["--check-java"]) == 1
    assert capsys.readouterr().err.startswith("error: there is no Java where JAVA_HOME points")


JVM = """
printf 'WARNING: Using incubator modules: jdk.incubator.vector\\n' >&2
printf 'WARNING: another\\n  with spaces and a \\\\ sign\\n' >&2
printf 'no end of line' >&2
printf 'standard output\\n'
exit 3
"""


@pytest.mark.parametrize(
    ("debug", "first"), [("", ""), ("1", "WARNING: Using incubator modules: jdk.incubator.vector\n")]
)
def test_the_first_line_of_each_jvm_is_left_out_and_all_that_follows_is_passed_on(
    debug: str, first: str
) -> None:
    done = subprocess.run(
        ["bash", "-c", f". {ROOT / 'conf' / 'spark-env.sh'}\n{JVM}"],
        env=os.environ | {"WHEEL_UDF_DEBUG": debug}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == f"{first}WARNING: another\n  with spaces and a \\ sign\nno end of line"
    assert (done.stdout, done.returncode) == ("standard output\n", 3)


def test_what_a_jvm_says_before_that_line_or_without_it_is_passed_on() -> None:
    script = ROOT / "conf" / "spark-env.sh"
    words = f". {script}\nprintf 'Picked up JAVA_TOOL_OPTIONS: -Da=b\\nlast\\n' >&2"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=True)
    assert done.stderr == "Picked up JAVA_TOOL_OPTIONS: -Da=b\nlast\n"


def test_with_debug_all_warnings_are_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHEEL_UDF_DEBUG", raising=False)
    options = "spark.driver.extraJavaOptions"
    quiet = session.local_settings({})[options]
    monkeypatch.setenv("WHEEL_UDF_DEBUG", "1")
    loud = session.local_settings({})[options]
    assert loud == quiet.replace("/log4j2.properties", "/log4j2-debug.properties") != quiet
