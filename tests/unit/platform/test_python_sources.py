"""Whether Spark would find packages with Python data sources, which this process answers in its place."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from wheel_udf.platform import python_sources


@pytest.mark.parametrize(("name", "found"), [("pyspark_mine", True), ("pysparkling", False)])
def test_a_package_counts_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, found: bool
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    assert python_sources.has_packages() is found


@pytest.mark.parametrize(
    ("variables", "own"),
    [
        ({}, True),
        ({"PYSPARK_PYTHON": sys.executable}, True),
        ({"PYSPARK_PYTHON": "/other/python"}, False),
        ({"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": "/other/python"}, False),
    ],
)
def test_the_answer_holds_for_the_python_that_spark_would_ask(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], *, own: bool
) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert python_sources.has_own_python() is own
