"""What makes the start of a local session shorter: byte code in zips, and the class archive."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from wheel_udf.common.errors import SessionError
from wheel_udf.spark import fast_start, jars, java, session

OPTIONS = "spark.driver.extraJavaOptions"


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive in an environment of its own, whose path has a space."""
    monkeypatch.setattr("sys.prefix", str(tmp_path / "an environment"))
    monkeypatch.setattr(java, "find_java", lambda: Path("java"))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    file = fast_start.archive_file()
    file.parent.mkdir(parents=True)
    file.touch()
    return file


def test_a_local_session_uses_the_archive_beside_its_jars(archive: Path) -> None:
    settings = session.local_settings({})

    assert f'"-XX:SharedArchiveFile={archive}"' in settings[OPTIONS]
    assert "-Dlog4j2.configurationFile=file:///" in settings[OPTIONS]
    assert "-Xss16m" in settings[OPTIONS]


def test_a_local_session_has_no_folder_of_files_on_its_class_path(archive: Path) -> None:
    settings = session.local_settings({})

    with session.environment_with(settings):
        assert "SPARK_CONF_DIR" not in os.environ
    assert Path(settings["spark.metrics.conf"]).is_file()


def test_a_session_on_a_cluster_keeps_the_conf_folder(archive: Path) -> None:
    settings = session.local_settings({"spark.master": "spark://host:7077"})

    assert "SharedArchiveFile" not in settings[OPTIONS]
    with session.environment_with(settings):
        assert os.environ["SPARK_CONF_DIR"] == str(jars.conf_folder())


def test_a_build_that_fails_says_why_and_leaves_no_archive(
    archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho no memory >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))

    with pytest.raises(SessionError, match=r"not made.*no memory"):
        fast_start.build_archive()

    assert not archive.exists()


def test_python_imports_the_byte_code_of_a_zip_and_its_other_files_stay(tmp_path: Path) -> None:
    file = tmp_path / "packed.zip"
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("packed/__init__.py", "")
        packed.writestr("packed/clock.py", "NOON = 12\n")
        packed.writestr("packed/notes.txt", "not Python")
    for _ in range(2):
        fast_start.add_byte_code(file)

    program = "import packed.clock; print(packed.clock.__file__, packed.clock.NOON)"
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(file)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == [f"{file}/packed/clock.pyc", "12"]
    with zipfile.ZipFile(file) as packed:
        assert {"packed/__init__.py", "packed/clock.py", "packed/notes.txt"} <= set(packed.namelist())
