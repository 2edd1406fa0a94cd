"""The Python of Spark's workers: only what is certainly wrong with it is an error."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wheel_udf.common.errors import SessionError
from wheel_udf.spark.worker_python import fault_of, require_worker_python

OWN = f"{sys.version_info.major}.{sys.version_info.minor}"


def program(folder: Path, script: str) -> str:
    file = folder / "python"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return str(file)


def session(python: str, master: str = "local[2]", **conf: str) -> Any:
    given = {name.replace("__", "."): value for name, value in conf.items()}
    return SimpleNamespace(
        sparkContext=SimpleNamespace(master=master, pythonExec=python), conf=SimpleNamespace(get=given.get)
    )


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (f"echo wheel-udf {OWN} pandas pyarrow", "has no pandas, pyarrow"),
        ("echo wheel-udf 3.1 pyarrow", "is of version 3.1"),
        (f"echo wheel-udf {OWN}", None),
        ("echo hello", None),
        ("exit 1", None),
    ],
)
def test_another_python_is_asked_for_its_version_and_its_modules(
    tmp_path: Path, script: str, reason: str | None
) -> None:
    assert fault_of(program(tmp_path, script)) == reason


def test_the_question_is_one_that_a_python_answers(tmp_path: Path) -> None:
    assert fault_of(program(tmp_path, f'exec "{sys.executable}" "$@"')) is None
    (tmp_path / "bare").mkdir()
    # -S: without site-packages, so without the modules
    assert (
        fault_of(program(tmp_path / "bare", f'exec "{sys.executable}" -S "$@"'))
        == "has no numpy, pandas, pyarrow"
    )


def test_the_drivers_own_python_is_good_and_a_missing_one_is_not() -> None:
    assert fault_of(sys.executable) is None
    assert fault_of("no-such-python") == "is not there"
    assert fault_of("/nowhere/python") == "is not there"


def test_a_session_with_such_workers_is_refused_with_the_way_out() -> None:
    with pytest.raises(SessionError) as caught:
        require_worker_python(session("no-such-python"))
    told = str(caught.value)
    assert told.startswith(
        "the Python of Spark's workers is not there: PYSPARK_PYTHON = 'no-such-python'; rule: Python 3."
    )
    assert f"spark.pyspark.python={sys.executable}" in told


@pytest.mark.parametrize(
    "elsewhere",
    [
        session("no-such-python", master="spark://host:7077"),
        session("no-such-python", master="yarn"),
        session("./env/bin/python", spark__archives="env.tar.gz#env"),
        session(sys.executable),
    ],
)
def test_what_is_on_other_machines_or_comes_in_an_archive_is_not_known(elsewhere: Any) -> None:
    require_worker_python(elsewhere)
