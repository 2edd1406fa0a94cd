"""Without pyspark or Delta, an import and the command line say what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BLOCKED = "import sys; sys.modules[{library!r}] = None; "


def run(program: str, library: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCKED.format(library=library) + program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("library", ["pyspark", "delta"])
def test_a_public_name_says_what_to_install(library: str) -> None:
    done = run("from wheel_udf import DeltaSink", library)

    assert f"SessionError: a module of Spark or Delta cannot be imported: {library}" in done.stderr
    assert "pip install 'pyspark>=4.0.1,<4.4' 'delta-spark>=4.4,<4.5'" in done.stderr


@pytest.mark.parametrize("library", ["pyspark", "delta"])
def test_the_command_line_says_it_in_one_line(library: str) -> None:
    verb = "['dry-run', '--config', 'conf/scheduler.yml']"
    done = run(f"from wheel_udf.job.cli import main; sys.exit(main({verb}))", library)

    assert done.returncode == 1
    assert done.stderr.startswith(f"error: a module of Spark or Delta cannot be imported: {library}")


def test_another_missing_module_is_named_as_it_is() -> None:
    done = run("from wheel_udf import Wheel", "numpy")

    assert "ModuleNotFoundError" in done.stderr
    assert "SessionError" not in done.stderr
