"""Shortens the start of a local session. Everything works without this module; each part has its figure in
``docs/performance.md``.

::

    make setup  --> byte code   for pyspark's zips, which Python cannot write to: else each worker compiles its imports
                --> archive     of the JVM's classes: a short run is recorded (jars/spark.jsa, 190 MB)
    a session   --> jvm_options the archive; from Java 19 on the JVM makes it when it ends, where there is none
                                the second compiler (C2) starts later: most code of a start runs a few thousand times

Java does without the archive if its version or the class path differs; a folder that holds files is such a difference.
"""

from __future__ import annotations

import compileall
import py_compile
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from wheel_udf.common.errors import SessionError
from wheel_udf.common.interrupts import INTERRUPTED
from wheel_udf.spark import jars, versions

_QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""An archive that does not fit is not used, and nothing is printed about it."""

LATE_C2: Final = (
    "-XX:Tier4InvocationThreshold=150000 -XX:Tier4MinInvocationThreshold=18000 "
    "-XX:Tier4CompileThreshold=450000 -XX:Tier4BackEdgeThreshold=1200000"
)
"""Thirty times the thresholds at which HotSpot gives a method to its second compiler."""
_LONGEST_S: Final = 300


def archive_file() -> Path:
    """Where the archive of this Python environment is, or would be."""
    return jars.jars_folder().parent / "spark.jsa"


def jvm_options(given: str) -> str:
    """The given options of a JVM, and those of this module that they do not have."""
    made = []
    if "-XX:Tier" not in given:
        made.append(LATE_C2)
    if "SharedArchiveFile" not in given and "ArchiveClassesAtExit" not in given:
        made.append(f'-XX:+AutoCreateSharedArchive "-XX:SharedArchiveFile={archive_file()}" {_QUIET}')
    # Java 17 does not make the archive itself, and a JVM does not start with an unknown option.
    ignoring = ["-XX:+IgnoreUnrecognizedVMOptions"] if made else []
    return " ".join(filter(None, [given, *ignoring, *made]))


def build_archive() -> None:
    """Makes the archive, replacing an earlier one.

    Raises:
        SessionError: The run that loads the classes failed; an earlier archive is gone.
    """
    file = archive_file()
    file.unlink(missing_ok=True)  # the run would use it
    fresh = file.with_suffix(".new")
    options = f'"-XX:ArchiveClassesAtExit={fresh}" {_QUIET}'
    command = [sys.executable, "-m", "wheel_udf.spark.recorded_run", options]
    # Java writes the archive when it ends, which is later than its Python; until then it holds the pipe.
    run = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, timeout=_LONGEST_S
    )
    if run.returncode != 0 or not fresh.is_file():
        why = (run.stderr or run.stdout).strip()[-500:]
        raise SessionError("the class archive was not made", field=str(file), value=why)
    fresh.replace(file)


def add_byte_code(file: Path) -> None:
    """Adds the byte code of its modules to a zip, unchecked (PEP 552). The zip is replaced as a whole."""
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        shutil.unpack_archive(file, f"{folder}/zip")
        unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
        compileall.compile_dir(f"{folder}/zip", quiet=2, legacy=True, force=True, invalidation_mode=unchecked)
        Path(shutil.make_archive(f"{folder}/new", "zip", f"{folder}/zip")).replace(file)


def main() -> int:
    """Makes byte code and archive (``make setup``)."""
    try:
        for file in sorted((versions.pyspark_folder() / "python" / "lib").glob("*.zip")):
            add_byte_code(file)
        build_archive()
    except (SessionError, OSError, subprocess.TimeoutExpired) as fault:
        sys.stderr.write(f"note: sessions will start more slowly: {fault}\n")
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
