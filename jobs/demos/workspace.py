"""Shared by the demos: the folder that a demo writes to, and the command line of the job.

A demo's folder holds a marker file. A demo deletes nothing in a folder without it. The file is also the lock that
prevents two demos at once; the job inherits the lock, so a job that outlives its killed demo still holds it.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from wheel_udf.common.errors import LeaseError, SessionError, WheelError
from wheel_udf.spark import jars, java

MARKER = ".demo"
INTERRUPTED = 130
"""Exit code after Ctrl-C, as a shell has it."""

_MARKER_TEXT = "Made by a demo of wheel_udf: its next run deletes what the last one wrote beside this file.\n"


@contextmanager
def exclusive(folder: Path) -> Iterator[IO[str]]:
    """Locks a demo's folder for one run; creates it if it is missing.

    Yields:
        The open lock file; a child process that inherits it holds the folder too.

    Raises:
        WheelError: The folder is not empty and was not made by a demo.
        LeaseError: Another demo, or a job it started, is still running there.
    """
    marker = folder / MARKER
    if not marker.is_file() and folder.exists() and any(folder.iterdir()):
        raise WheelError(
            "the demo's folder holds files that the demo did not make", field=str(folder), hint="move it away"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with marker.open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LeaseError(
                "a demo is running already", field=str(folder), hint="wait until it ends, or stop it"
            ) from None
        lock.truncate(0)
        lock.write(_MARKER_TEXT)
        lock.flush()
        yield lock


def outcome_of(work: Callable[[], int], print_line: Callable[[str], None]) -> int:
    """Runs a demo and returns its exit code; an error is reported in one line, Ctrl-C gives :data:`INTERRUPTED`."""
    os.environ.pop("SPARK_HOME", None)  # another Spark on this machine would win over the pinned one
    try:
        java.find_java()  # before any work
        return work()
    except (WheelError, OSError) as error:
        print_line(f"demo: {error}")
        return 1
    except KeyboardInterrupt:
        print_line("demo: stopped")
        return INTERRUPTED


def at_least(least: int) -> Callable[[str], int]:
    """Returns an argparse type: a whole number with a lower bound."""

    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            message = f"a whole number, at least {least}: {text!r}"
            raise argparse.ArgumentTypeError(message)
        return int(text)

    return number


def clear_outputs(folder: Path, names: Sequence[str]) -> None:
    """Removes what an earlier run wrote.

    Args:
        folder: The demo's folder.
        names: Files and folders in it to remove.

    Raises:
        WheelError: The folder has no marker of a demo, or an output is a symbolic link.
    """
    if not (folder / MARKER).is_file():
        raise WheelError("not a folder of the demo", field=str(folder), rule=f"holds {MARKER}")
    for path in (folder / name for name in names):
        if path.is_symlink():
            raise WheelError("an output folder is a link", field=str(path), hint="remove the link")
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def submit_command(root: Path, arguments: Sequence[str]) -> list[str]:
    """Returns the command line of the job, with `spark-submit` from the running Python environment.

    Args:
        root: The project's root.
        arguments: Arguments of `jobs/delay_scheduler.py`.

    Raises:
        SessionError: There is no spark-submit in the environment.
    """
    submit = Path(sys.executable).parent / "spark-submit"
    if not submit.is_file():
        raise SessionError("no spark-submit beside Python", field=str(submit), hint="run `make setup`")
    environment = []
    if Path(sys.prefix) != root / ".venv":  # conf/spark-defaults.conf names what `make setup` makes in .venv
        environment = [
            "--conf",
            f"spark.pyspark.python={sys.executable}",
            "--conf",
            f"spark.jars={jars.jars_folder()}/*.jar",
        ]
    return [str(submit), *environment, "jobs/delay_scheduler.py", *arguments]


def job_environment(root: Path) -> dict[str, str]:
    """Returns the environment of the job: that of this process, with the paths of its settings and its Python."""
    return os.environ | {
        "SPARK_CONF_DIR": str(root / "conf"),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONUNBUFFERED": "1",  # otherwise a pipe buffers the progress lines
    }


def short(root: Path, command: Sequence[str]) -> list[str]:
    """Shortens the paths of a command line to what a user would type at the root."""
    return [part.removeprefix(f"{root}/") for part in command]
