"""``make demo``: a year of real departures as a stream of commands through the wheel.

Four steps, each announced by a line::

    1 prepare   data/departures/commands      once; later runs use the same files
    2 run       spark-submit jobs/delay_scheduler.py run --config conf/departures.yml ...
    3 account   the rows of the tables and the counts of the wheel, compared with a result computed by pandas from the flights
    4 picture   data/departures/reminders_per_hour.png

Deletion: each run keeps the prepared commands only. It removes the tables, the rejects and the checkpoint of the run
before, and only inside a folder with the demo's marker file (:mod:`jobs.demos.workspace`).

Time: the clock is the watermark, and a year is read in 12 files. A batch therefore spans about a month of data, and an
entry is released at the end of that span. The job prints this distance as ``data time after due``; it says nothing
about speed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import IO, TYPE_CHECKING

import pandas as pd
import pyarrow.dataset as ds

from jobs.demos import departures_data, workspace
from jobs.demos.departures_account import FIRED_COLUMNS, draw, per_hour, render, summary_counts, take_account
from jobs.demos.workspace import exclusive, job_environment, outcome_of, short, submit_command
from wheel_udf.common.errors import SessionError
from wheel_udf.common.progress import Progress
from wheel_udf.control.wall import elapsed_ms
from wheel_udf.spark.interrupts import ending_on_interrupt
from wheel_udf.spark.job_progress import showing_tasks
from wheel_udf.spark.session import build_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path("data/departures")
UNTIL = "2014-01-02T00:00:00Z"  # the last reminder is due at 2014-01-01T04:56Z
OUTPUTS = ("tables", "rejects", "checkpoint", "store")
PICTURE = "reminders_per_hour.png"

LEAST_FILES = 3
"""A short run has a few batches, too."""
_LAST_LINES = 200


def main(argv: Sequence[str], root: Path, *, print_line: Callable[[str], None]) -> int:
    """Runs the demo.

    Args:
        argv: Arguments without the program's name.
        root: The project's root, where `conf`, `jobs` and `data` are.
        print_line: Receives each line for the user.

    Returns:
        Exit code: 0 if the account agrees, 1 if it does not or a step failed, 130 after Ctrl-C.
    """
    asked = _arguments(argv)
    began_s = perf_counter()

    def work() -> int:
        with exclusive(root / FOLDER) as lock:
            agrees = _steps(root, lock, print_line, tiered=asked.tiered, months=asked.months)
        verdict = "the account agrees" if agrees else "the account does NOT agree, see MISMATCH above"
        print_line(f"{verdict}; {perf_counter() - began_s:.0f} s in all")
        return 0 if agrees else 1

    return outcome_of(work, print_line)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m jobs.demos.departures",
        description="A year of real departures through the wheel.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--tiered",
        action="store_true",
        help="keep far levels in a slot store instead of Spark's state; the result is the same",
    )
    parser.add_argument(
        "--months",
        type=int,
        choices=range(1, departures_data.YEAR + 1),
        default=departures_data.YEAR,
        metavar="N",
        help="only the flights of the first N months",
    )
    return parser.parse_args(argv)


def _steps(
    root: Path, lock: IO[str], print_line: Callable[[str], None], *, tiered: bool, months: int
) -> bool:
    folder = root / FOLDER
    print_line(f"1 prepare: the departures as commands, in {FOLDER}/commands")
    files = max(LEAST_FILES, -(-departures_data.FILES * months // departures_data.YEAR))
    prepared = departures_data.prepare(folder / "commands", files=files, months=months)
    print_line(f"  {prepared.commands:,} commands in {len(prepared.files)} files, in order of event time")
    clear_outputs(folder)
    command = job_command(root, tiered=tiered)
    print_line(f"2 run: SPARK_CONF_DIR=conf {' '.join(short(root, command))}")
    with Progress("run", sys.stderr, elapsed_ms, unit="files") as progress:
        batches = _Batches(progress, len(prepared.files))
        last_lines = run_job(root, command, lock, batches.around(print_line))
    print_line("3 account: reading the tables back")
    flights = departures_data.read_flights(departures_data.flights_path(), months)
    fired, rejects = read_outputs(folder)
    lines = take_account(
        flights, read_commands(folder / "commands"), fired, rejects, summary_counts(last_lines)
    )
    print_line(render(lines))
    picture = draw(per_hour(fired), folder / PICTURE)
    print_line(f"4 picture: {picture.relative_to(root)}")
    return all(line.agrees for line in lines)


class _Batches:
    """Shows how many files the job has read, from its lines: a batch reads one."""

    def __init__(self, progress: Progress, files: int) -> None:
        self._progress, self._files, self._read = progress, files, 0

    def around(self, print_line: Callable[[str], None]) -> Callable[[str], None]:
        """Returns `print_line`, with each line looked at."""
        shown = self._progress.around(print_line)

        def said(line: str) -> None:
            shown(line)
            self._read += line.lstrip().startswith("batch ")
            self._progress.show(min(self._read, self._files), self._files)

        return said


def clear_outputs(folder: Path) -> None:
    """Removes what an earlier run wrote; the prepared commands stay. See :func:`jobs.demos.workspace.clear_outputs`."""
    workspace.clear_outputs(folder, (*OUTPUTS, PICTURE))


def job_command(root: Path, *, tiered: bool = False) -> list[str]:
    """The command line a user would type at the root. See :func:`jobs.demos.workspace.submit_command`."""
    arguments = ["run", "--config", "conf/departures.yml", "--trigger", "available-now", "--until", UNTIL]
    if tiered:
        arguments += ["--set", "mode=tiered", "--set", f"store.path={FOLDER}/store"]
    return submit_command(root, arguments)


def run_job(
    root: Path, command: Sequence[str], lock: IO[str], print_line: Callable[[str], None]
) -> list[str]:
    """Runs the job at the root and passes its output on line by line.

    Returns:
        Its last lines, the summary among them.

    Raises:
        SessionError: It did not end with exit code 0.
    """
    kept: deque[str] = deque(maxlen=_LAST_LINES)
    with subprocess.Popen(
        command,
        cwd=root,
        env=job_environment(root),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=[lock.fileno()],
    ) as job:
        assert job.stdout is not None, "it was asked for"
        try:
            _pass_on(job.stdout, kept, print_line)
        except KeyboardInterrupt:
            # Ctrl-C reaches the job as well; it finishes its batch and prints its summary.
            _pass_on(job.stdout, kept, print_line)
            raise
    if job.returncode != 0:
        raise SessionError(
            "the job failed", field="exit code", value=job.returncode, hint="see its output above"
        )
    return list(kept)


def _pass_on(stream: IO[str], kept: deque[str], print_line: Callable[[str], None]) -> None:
    for line in stream:
        kept.append(line.rstrip())
        print_line(f"  {kept[-1]}")


def read_commands(folder: Path) -> pd.DataFrame:
    """Of each prepared command: schedule_id, op, seq, key and value (bytes)."""
    files = sorted(str(path) for path in folder.glob("*.parquet"))
    columns = ["schedule_id", "op", "seq", "key", "value"]
    frame: pd.DataFrame = ds.dataset(files, format="parquet").to_table(columns=columns).to_pandas()
    return frame


def read_outputs(folder: Path) -> tuple[pd.DataFrame, int]:
    """Reads the tables back through Spark.

    Returns:
        The fired rows of all tables there are, columns :data:`jobs.demos.departures_account.FIRED_COLUMNS`, and the
        number of rejects.
    """
    spark = build_session("departures: account")
    with ending_on_interrupt(spark), Progress("account", sys.stderr, elapsed_ms) as progress:
        try:
            with showing_tasks(spark, progress):
                frames, count = _read_all(spark, folder)
        finally:
            stop_session(spark)
    return (pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=FIRED_COLUMNS)), count


def _read_all(spark: SparkSession, folder: Path) -> tuple[list[pd.DataFrame], int]:
    tables = sorted(path for path in (folder / "tables").glob("*") if (path / "_delta_log").is_dir())
    frames = [_read_table(spark, path) for path in tables]
    rejects = folder / "rejects"
    has_rejects = (rejects / "_delta_log").is_dir()
    return frames, spark.read.format("delta").load(str(rejects)).count() if has_rejects else 0


def _read_table(spark: SparkSession, path: Path) -> pd.DataFrame:
    table = (
        spark.read.format("delta")
        .load(str(path))
        .selectExpr(
            "schedule_id",
            "seq",
            "destination",
            "key",
            "value",
            "unix_millis(deliver_at) AS deliver_at_ms",
            "unix_millis(fired_at) AS fired_at_ms",
            "lateness_ms",
            "fire_id",
        )
    )
    return table.toPandas().assign(table=path.name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parents[2], print_line=partial(print, flush=True)))
