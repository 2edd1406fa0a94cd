"""What a local session adds to the settings of project and user, so that its start is shorter."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wheel_udf.spark import fast_start, local_mode
from wheel_udf.spark.fast_start import LATE_C2
from wheel_udf.spark.local_mode import JVM_OPTIONS

JARS = "/jars/delta.jar,/jars/kafka.jar"
HOME = str(Path(__file__).parents[3])
WORKERS = "spark.executorEnv.PYTHONPATH"


@pytest.fixture(autouse=True)
def archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the archive would be."""
    file = tmp_path / "spark.jsa"
    monkeypatch.setattr(fast_start, "archive_file", lambda: file)
    return file


def made(given: dict[str, str] | None = None) -> dict[str, str]:
    settings = {"spark.master": "local[2, 4]", "spark.jars": JARS, JVM_OPTIONS: "-Xss16m", **(given or {})}
    return local_mode.settings_of(settings, project_jars=JARS)


def test_the_projects_jars_are_on_the_class_path_alone() -> None:
    settings = made()

    assert settings["spark.driver.extraClassPath"] == "/jars/delta.jar:/jars/kafka.jar"
    assert "spark.jars" not in settings


@pytest.mark.parametrize(
    "given",
    [
        {"spark.jars": f"{JARS},/mine.jar"},
        {"spark.driver.extraClassPath": "/mine.jar"},
        {"spark.master": "local-cluster[2,1,1024]"},
        {"spark.master": "spark://host:7077"},
    ],
)
def test_jars_of_the_user_and_of_further_jvms_are_sent_as_before(given: dict[str, str]) -> None:
    assert made(given)["spark.jars"] == given.get("spark.jars", JARS)


def test_the_second_compiler_begins_later() -> None:
    assert made()[JVM_OPTIONS].startswith(f"-Xss16m -XX:+IgnoreUnrecognizedVMOptions {LATE_C2} ")


def test_the_archive_is_used_and_from_java_19_on_made_by_the_jvm(archive: Path) -> None:
    assert f'-XX:+AutoCreateSharedArchive "-XX:SharedArchiveFile={archive}"' in made()[JVM_OPTIONS]


def test_an_archive_of_the_users_own_is_not_replaced(archive: Path) -> None:
    archive.touch()
    assert made({JVM_OPTIONS: "-XX:SharedArchiveFile=mine.jsa -XX:Tier4X"})[JVM_OPTIONS] == (
        "-XX:SharedArchiveFile=mine.jsa -XX:Tier4X"
    )


@pytest.mark.parametrize("own", ["-XX:TieredStopAtLevel=1", "-XX:Tier4InvocationThreshold=5000"])
def test_own_options_of_the_compilers_stay_as_they_are(own: str) -> None:
    options = made({JVM_OPTIONS: own})[JVM_OPTIONS]

    assert options.startswith(f"{own} ")
    assert LATE_C2 not in options


def test_a_cluster_gets_no_options_of_a_local_jvm() -> None:
    given = {"spark.master": "spark://host:7077", "spark.jars": JARS, JVM_OPTIONS: "-Xss16m"}

    assert local_mode.settings_of(given, project_jars=JARS) == given


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({}, HOME),
        ({WORKERS: "/mine"}, f"/mine{os.pathsep}{HOME}"),
        ({WORKERS: f"{HOME}{os.pathsep}/mine"}, f"{HOME}{os.pathsep}/mine"),
    ],
)
def test_workers_find_this_package_behind_what_the_user_has_set(given: dict[str, str], path: str) -> None:
    assert made(given)[WORKERS] == path


def test_further_jvms_get_no_path_of_this_machine() -> None:
    assert WORKERS not in made({"spark.master": "local-cluster[2,1,1024]"})
