"""The class archive: which sessions use it, and what a failed build leaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wheel_udf.common import SessionError
from wheel_udf.platform import class_archive, jars, java, session

OPTIONS = "spark.driver.extraJavaOptions"


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive in an environment of its own, whose path has a space."""
    monkeypatch.setattr("sys.prefix", str(tmp_path / "an environment"))
    monkeypatch.setattr(java, "find_java", lambda: Path("java"))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    file = class_archive.archive_file()
    file.parent.mkdir(parents=True)
    file.touch()
    return file


def test_a_local_session_uses_the_archive_beside_its_jars(archive: Path) -> None:
    settings = session._local({})

    assert f'"-XX:SharedArchiveFile={archive}"' in settings[OPTIONS]
    assert "-Dlog4j2.configurationFile=file:///" in settings[OPTIONS]
    assert "-Xss16m" in settings[OPTIONS]


def test_without_an_archive_no_option_names_one(archive: Path) -> None:
    archive.unlink()

    assert "SharedArchiveFile" not in session._local({})[OPTIONS]


def test_options_of_the_user_stay_and_the_archive_is_added(archive: Path) -> None:
    options = session._local({OPTIONS: "-Dmine=1"})[OPTIONS]

    assert options.startswith('-Dmine=1 "-XX:SharedArchiveFile=')


def test_an_archive_of_the_users_own_is_not_replaced(archive: Path) -> None:
    mine = {OPTIONS: "-XX:SharedArchiveFile=mine.jsa"}

    assert session._local(mine)[OPTIONS] == mine[OPTIONS]


def test_a_local_session_has_no_folder_of_files_on_its_class_path(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = session._local({})

    with session._environment(settings):
        assert "SPARK_CONF_DIR" not in os.environ
    assert Path(settings["spark.metrics.conf"]).is_file()


def test_a_session_on_a_cluster_keeps_the_conf_folder(archive: Path) -> None:
    settings = session._local({"spark.master": "spark://host:7077"})

    assert "SharedArchiveFile" not in settings[OPTIONS]
    with session._environment(settings):
        assert os.environ["SPARK_CONF_DIR"] == str(jars.conf_folder())


def python_is(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Puts a shell script in the place of the running Python."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))


def test_a_build_that_does_not_end_says_so(
    archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python_is(monkeypatch, tmp_path, "exec sleep 60")
    monkeypatch.setattr(class_archive, "_LONGEST_S", 0.1)

    with pytest.raises(SessionError, match=r"not made.*no end after"):
        class_archive.build()


def test_a_build_that_fails_says_why_and_leaves_no_archive(
    archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python_is(monkeypatch, tmp_path, "echo no memory >&2\nexit 1")

    with pytest.raises(SessionError, match=r"not made.*no memory.*start without it"):
        class_archive.build()

    assert not archive.exists()
