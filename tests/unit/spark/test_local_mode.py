"""What a local session adds to the settings of project and user, so that its start is shorter."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wheel_udf.spark import fast_start, java, local_mode
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


def made(given: dict[str, str] | None = None, java_version: int | None = 17) -> dict[str, str]:
    settings = {"spark.master": "local[2, 4]", "spark.jars": JARS, JVM_OPTIONS: "-Xss16m", **(given or {})}
    return local_mode.settings_of(settings, project_jars=JARS, java_version=java_version)


def test_the_projects_jars_are_on_the_class_path_alone() -> None:
    settings = made()

    assert settings["spark.driver.extraClassPath"] == "/jars/delta.jar:/jars/kafka.jar"
    assert "spark.jars" not in settings


@pytest.mark.parametrize(
    "given",
    [
        {"spark.jars": f"{JARS},/mine.jar"},
        {"spark.driver.extraClassPath": "/mine.jar"},
        {"spark.jars": ""},
        {"spark.master": "local-cluster[2,1,1024]"},
        {"spark.master": "spark://host:7077"},
    ],
)
def test_jars_of_the_user_and_of_further_jvms_are_sent_as_before(given: dict[str, str]) -> None:
    assert made(given)["spark.jars"] == given.get("spark.jars", JARS)


@pytest.mark.parametrize(
    ("version", "options"),
    [
        (17, f"-Xss16m {LATE_C2}"),
        (26, "-Xss16m"),
        (None, "-Xss16m"),
    ],
)
def test_the_second_compiler_begins_later_where_the_java_is_known_to_have_the_options(
    version: int | None, options: str
) -> None:
    assert made(java_version=version)[JVM_OPTIONS] == options


def test_java_17_uses_an_archive_that_is_there_and_java_21_makes_one(archive: Path) -> None:
    assert "-XX:SharedArchiveFile" not in made(java_version=17)[JVM_OPTIONS]
    assert (
        f'-XX:+AutoCreateSharedArchive "-XX:SharedArchiveFile={archive}"'
        in made(java_version=21)[JVM_OPTIONS]
    )
    archive.touch()
    options = made(java_version=17)[JVM_OPTIONS]
    assert f'"-XX:SharedArchiveFile={archive}"' in options
    assert "AutoCreate" not in options


def test_an_archive_of_the_users_own_is_not_replaced(archive: Path) -> None:
    archive.touch()
    assert made({JVM_OPTIONS: "-XX:SharedArchiveFile=mine.jsa -XX:Tier4X"})[JVM_OPTIONS] == (
        "-XX:SharedArchiveFile=mine.jsa -XX:Tier4X"
    )


@pytest.mark.parametrize("own", ["-XX:TieredStopAtLevel=1", "-XX:Tier4InvocationThreshold=5000"])
def test_own_options_of_the_compilers_stay_as_they_are(own: str) -> None:
    assert made({JVM_OPTIONS: own})[JVM_OPTIONS] == own


def test_a_cluster_gets_no_options_of_a_local_jvm() -> None:
    given = {"spark.master": "spark://host:7077", "spark.jars": JARS, JVM_OPTIONS: "-Xss16m"}

    assert local_mode.settings_of(given, project_jars=JARS, java_version=17) == given


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


def java_with(folder: Path, release: str | None) -> Path:
    program = folder / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.touch()
    if release is not None:
        (folder / "jdk" / "release").write_text(release, encoding="utf-8")
    link = folder / "java"
    link.symlink_to(program)
    return link


@pytest.mark.parametrize(
    ("release", "version"),
    [
        ('IMPLEMENTOR="Debian"\nJAVA_VERSION="17.0.15"\nJAVA_VERSION_DATE="2025-04-15"\n', 17),
        ('JAVA_VERSION="21"\n', 21),
        ('JAVA_VERSION="1.8.0_401"\n', 8),
        ('JVM_VARIANT="OpenJ9"\nJAVA_VERSION="17.0.8"\n', None),
        ("", None),
        (None, None),
    ],
)
def test_the_version_of_a_hotspot_java_is_in_its_release_file(
    tmp_path: Path, release: str | None, version: int | None
) -> None:
    assert java.stated_version(java_with(tmp_path, release)) == version
