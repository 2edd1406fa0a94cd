"""Finds the Java that Spark will start, and checks it before Spark does.

Only the standard library is used: the Makefile runs this check before any package is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from wheel_udf.common.errors import SessionError

OLDEST_JAVA = 17
"""Spark 4 runs on this version of Java and newer."""

_HINT = "install Java 17 or 21 (a JRE is enough) and let JAVA_HOME or PATH lead to it"


def find_java() -> Path:
    """Checks and returns the ``java`` that Spark will start: of ``JAVA_HOME`` if set, else the first on ``PATH``.

    Raises:
        SessionError: There is no Java, it does not run, or it is older than 17.
    """
    java = _java_command()
    # Asking Java itself takes 0.1 to 0.3 s.
    version = stated_version(java) or java_version(_java_banner(java))
    if version < OLDEST_JAVA:
        raise SessionError(
            "Java is too old for Spark 4", field=str(java), value=version, rule="17 or newer", hint=_HINT
        )
    return java


def stated_version(java: Path) -> int | None:
    """The major version in the file ``release`` of a Java's folder; None without one, or if it is not HotSpot."""
    try:
        text = (java.resolve().parents[1] / "release").read_text(encoding="utf-8")
    except (OSError, IndexError, UnicodeDecodeError):
        return None
    found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    return None if found is None or "OpenJ9" in text else int(found.group(1))


def java_version(banner: str) -> int:
    """The major version in what ``java -version`` prints: 17 for ``openjdk version "17.0.15"``, 8 for ``"1.8.0_401"``.

    Raises:
        SessionError: There is no version in the text.
    """
    found = re.search(r'version "(?:1\.)?(\d+)', banner)
    if found is None:
        raise SessionError("cannot tell the version of Java", field="java -version", value=banner, hint=_HINT)
    return int(found.group(1))


def _java_command() -> Path:
    home = os.environ.get("JAVA_HOME")
    if home:
        java = shutil.which("java", path=str(Path(home) / "bin"))
        if java is None:
            raise SessionError(
                "there is no Java where JAVA_HOME points",
                field="JAVA_HOME",
                value=home,
                rule="holds bin/java",
                hint=_HINT,
            )
        return Path(java)
    java = shutil.which("java")
    if java is None:
        raise SessionError("Java is missing", field="java", rule="on PATH, or in JAVA_HOME", hint=_HINT)
    return Path(java)


def _java_banner(java: Path) -> str:
    try:
        run = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )
    except OSError as fault:
        raise SessionError("Java cannot be started", field=str(java), value=str(fault), hint=_HINT) from fault
    if run.returncode != 0:
        # macOS has a /usr/bin/java that only reports that there is no Java.
        raise SessionError("Java does not run", field=str(java), value=run.stderr.strip()[-200:], hint=_HINT)
    return run.stderr + run.stdout
