"""The class archive: the classes of Spark in the form that Java maps into memory, so that a JVM of this environment starts faster.

::

    make setup --> class_training, a short run --> jars/spark.jsa (190 MB)
    build_session --> options() --> -XX:SharedArchiveFile=jars/spark.jsa         mapped, shared by all JVMs of the machine

Java checks the archive when it starts (its own version, the jars and their order) and does without it if anything differs. A class path
with a folder that holds files is such a difference, so a session that is started with a ``SPARK_CONF_DIR`` of the user's does without.

Measured on 2 cores: from the start of Python to the first result 6.0 s instead of 9.5, the first two commits to Delta 5.5 s instead of 7.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from wheel_udf.common import SessionError
from wheel_udf.platform import jars

_LONGEST_S = 300
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""An archive that does not fit is not used, and nothing is printed about it."""


def archive_file() -> Path:
    """Where the archive of this Python environment is, or would be."""
    return jars.jars_folder().parent / "spark.jsa"


def options() -> str:
    """The options that let a JVM use the archive; empty if there is none."""
    file = archive_file()
    return f'"-XX:SharedArchiveFile={file}" {_QUIET}' if file.is_file() else ""


def build() -> Path:
    """Makes the archive, replacing an earlier one. Takes half a minute and a JVM.

    Returns:
        The file.

    Raises:
        SessionError: The run that loads the classes failed; an earlier archive is gone.
    """
    file = archive_file()
    file.unlink(missing_ok=True)  # the run would use it
    fresh = file.with_suffix(".new")
    command = [
        sys.executable,
        "-m",
        "wheel_udf.platform.class_training",
        f'"-XX:ArchiveClassesAtExit={fresh}" {_QUIET}',
    ]
    # Java writes the archive when it ends, which is later than its Python; until then it holds the pipe.
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, timeout=_LONGEST_S
        )
    except subprocess.TimeoutExpired:
        raise _not_made(file, f"no end after {_LONGEST_S} s") from None
    if run.returncode != 0 or not fresh.is_file():
        raise _not_made(file, (run.stderr or run.stdout).strip()[-500:])
    fresh.replace(file)
    return file


def _not_made(file: Path, why: str) -> SessionError:
    hint = "sessions start without it, a few seconds later"
    return SessionError("the class archive was not made", field=str(file), value=why, hint=hint)
