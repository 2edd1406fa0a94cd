"""A Python environment for each version of Spark, below ``build/versions``; the newest one is the project's own."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "build" / "versions"

PYSPARK: Final = {"4.0": "4.0.4", "4.1": "4.1.3", "4.2": "4.2.0"}
"""The version of pyspark that stands for each; conf/ivy.xml has the Kafka connector of the same version."""
NEWEST: Final = "4.2"
OLD_PYARROW: Final = "pyarrow==25.0.1"
"""Spark 4.0 and 4.1 do not work with pyarrow 26: see :func:`wheel_udf.spark.versions.require_pyarrow`."""

_MADE_OF: Final = ("pyproject.toml", "conf/constraints.txt", "conf/ivy.xml", "tests/versions/environments.py")


def python_of(minor: str) -> Path:
    """The interpreter of the environment with a version of Spark; it is made on first use, in about two minutes."""
    if minor == NEWEST:
        return Path(sys.executable)
    folder = FOLDER / minor
    python, stamp, wanted = folder / "bin" / "python", folder / ".set-up", _stamp()
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        print(f"{minor}: setting up {folder.relative_to(ROOT)}", flush=True)
        _build(folder, python, minor)
        stamp.write_text(wanted, encoding="utf-8")
    return python


def environment() -> dict[str, str]:
    """The variables of a process in such an environment: none of another Spark."""
    gone = ("SPARK_", "PYSPARK_", "PYTHONPATH", "PYTHONHOME", "MAKEFLAGS", "ARGS", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(gone)}


def _build(folder: Path, python: Path, minor: str) -> None:
    venv.create(folder, with_pip=True, clear=True)
    pinned = (ROOT / "conf" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    others = [line for line in pinned if not line.startswith(("pyspark==", "pyarrow=="))]
    constraints = folder / "constraints.txt"
    constraints.write_text(
        "\n".join([*others, f"pyspark=={PYSPARK[minor]}", OLD_PYARROW, ""]), encoding="utf-8"
    )
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "--constraint", str(constraints), "--editable", f"{ROOT}[dev]"])
    _run([str(python), "-m", "wheel_udf.spark.jars", "spark", "iceberg", "database", "broker"])


def _run(command: list[str]) -> None:
    subprocess.run(command, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, check=True)


def _stamp() -> str:
    return hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in _MADE_OF)).hexdigest()
