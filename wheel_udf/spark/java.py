"""Finds the Java that Spark will start (:func:`find_java`), and checks its version (:func:`check_java`).

Standard library only: the Makefile runs the check before any package is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from wheel_udf.common.errors import SessionError

OLDEST_JAVA: Final = 17
"""Spark 4 runs on this version of Java and newer."""

HINT: Final = "install Java 17 or 21 (a JRE is enough) and let JAVA_HOME or PATH lead to it"


def find_java() -> Path:
    """Returns the ``java`` that Spark will start: of ``JAVA_HOME`` if set, else the first on ``PATH``.

    Raises:
        SessionError: There is none.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if java is not None:
        return Path(java)
    if home:
        raise SessionError(
            "there is no Java where JAVA_HOME points",
            field="JAVA_HOME",
            value=home,
            rule="holds bin/java",
            hint=HINT,
        )
    raise SessionError("Java is missing", field="java", rule="on PATH, or in JAVA_HOME", hint=HINT)


def check_java() -> None:
    """Runs ``java -version`` (0.1 to 0.3 s), and compares the version.

    Raises:
        SessionError: There is no Java, it does not run, or it is older than 17.
    """
    java = find_java()
    try:
        run = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )
    except OSError as fault:
        raise SessionError("Java cannot be started", field=str(java), value=str(fault), hint=HINT) from fault
    if run.returncode != 0:
        # macOS has a /usr/bin/java that only reports that there is no Java.
        raise SessionError("Java does not run", field=str(java), value=run.stderr.strip()[-200:], hint=HINT)
    version = java_version(run.stderr + run.stdout)
    if version < OLDEST_JAVA:
        raise SessionError(
            "Java is too old for Spark 4", field=str(java), value=version, rule="17 or newer", hint=HINT
        )


def java_version(banner: str) -> int:
    """The major version in what ``java -version`` prints: 17 for ``openjdk version "17.0.15"``, 8 for ``"1.8.0_401"``.

    Raises:
        SessionError: There is no version in the text.
    """
    found = re.search(r'version "(?:1\.)?(\d+)', banner)
    if found is None:
        raise SessionError("cannot tell the version of Java", field="java -version", value=banner, hint=HINT)
    return int(found.group(1))
