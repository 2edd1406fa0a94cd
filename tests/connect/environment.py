"""The Python environment of a client of Spark Connect, below ``build/connect``: ``pyspark-client``, no JVM, no Delta."""

from __future__ import annotations

import hashlib
import subprocess
import venv
from pathlib import Path
from typing import Final

from tests.versions.environments import ROOT, environment

FOLDER: Final = ROOT / "build" / "connect"
PACKAGES: Final = ("pyspark-client", "numpy", "pandas", "pyarrow")
"""What a client has beside this package; the versions are those of conf/constraints.txt."""

_MADE_OF: Final = ("conf/constraints.txt", "tests/connect/environment.py")


def client_python() -> Path:
    """The interpreter of the environment; it is made on first use, in about a minute."""
    python, stamp, wanted = FOLDER / "bin" / "python", FOLDER / ".set-up", _stamp()
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        venv.create(FOLDER, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "--constraint", str(ROOT / "conf" / "constraints.txt"), *PACKAGES])
        stamp.write_text(wanted, encoding="utf-8")
    return python


def client_variables() -> dict[str, str]:
    """The variables of a client: none of another Spark, and the package of this checkout."""
    return {**environment(), "PYTHONPATH": str(ROOT), "TZ": "UTC"}


def _run(command: list[str]) -> None:
    subprocess.run(command, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, check=True)


def _stamp() -> str:
    return hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in _MADE_OF)).hexdigest()
