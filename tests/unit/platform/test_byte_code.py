"""The byte code that is made before it is needed."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from wheel_udf.common import SessionError
from wheel_udf.platform.byte_code import add_to_zip


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """A zip with a package of two modules."""
    file = tmp_path / "packed.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("packed/__init__.py", "")
        archive.writestr("packed/clock.py", "from datetime import datetime as now\nNOON = 12\n")
        archive.writestr("packed/notes.txt", "not Python")
    return file


def imported(file: Path, expression: str) -> str:
    """What another Python sees that has the zip on its path."""
    program = f"import packed.clock; print({expression})"
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(file)},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip()


def test_python_imports_the_byte_code_of_a_zip(packed: Path) -> None:
    assert imported(packed, "packed.clock.__file__") == f"{packed}/packed/clock.py"

    assert add_to_zip(packed)

    assert imported(packed, "packed.clock.__file__") == f"{packed}/packed/clock.pyc"
    assert imported(packed, "packed.clock.NOON") == "12"


def test_sources_and_other_files_stay_in_the_zip(packed: Path) -> None:
    add_to_zip(packed)

    with zipfile.ZipFile(packed) as archive:
        assert archive.read("packed/notes.txt") == b"not Python"
        assert b"NOON = 12" in archive.read("packed/clock.py")


def test_a_zip_with_its_byte_code_is_left_as_it_is(packed: Path) -> None:
    add_to_zip(packed)
    before = packed.read_bytes()

    assert not add_to_zip(packed)
    assert packed.read_bytes() == before


def test_byte_code_of_another_python_is_replaced(packed: Path) -> None:
    with zipfile.ZipFile(packed, "a") as archive:
        archive.writestr("packed/__init__.pyc", b"another version")
        archive.writestr("packed/clock.pyc", b"another version")

    assert add_to_zip(packed)
    assert imported(packed, "packed.clock.__file__") == f"{packed}/packed/clock.pyc"


def test_a_file_that_is_no_zip_stays_and_is_named(tmp_path: Path) -> None:
    file = tmp_path / "packed.zip"
    file.write_text("text")

    with pytest.raises(SessionError, match="byte code was not added"):
        add_to_zip(file)
    assert file.read_text() == "text"
    assert list(tmp_path.iterdir()) == [file]
