"""A job of real departures that changes its Spark in the middle: ``python -m tests.versions.moves``.

::

    January's commands, half 1  --> run under the first version --> [export, import] --> half 2 --> run under the second
                                                                                                        |
                                                  reminders in the tables = those worked out from the timetable

The tables are read without Spark, so that neither version is the judge.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pandas as pd
import yaml
from deltalake import DeltaTable

from jobs.demos import departures_data
from tests.versions.environments import ROOT, environment, python_of

FILES: Final = 4
UNTIL: Final = "2013-02-03T00:00:00Z"
_KEYS: Final = ["schedule_id", "seq", "deliver_at_ms", "destination"]
REFUSED: Final = "refused"
"""What :func:`change` says of a checkpoint that the other version does not take, with a way over in the error."""


class WrongError(AssertionError):
    """A step failed, or what came out is not what has to."""


def change(folder: Path, first: str, second: str, *, mode: str, by_export: bool) -> str:
    """Runs a job under one version of Spark and goes on under another.

    Args:
        folder: For all that the job writes; emptied.
        first: The version of the first half.
        second: The version of the second half.
        mode: ``direct`` or ``tiered``.
        by_export: Whether the job is exported by the first version and imported by the second.

    Returns:
        What happened, in a few words; :data:`REFUSED` if the checkpoint was refused, with export and import named.

    Raises:
        WrongError: Something else happened.
    """
    shutil.rmtree(folder, ignore_errors=True)
    commands = folder / "all"
    departures_data.prepare(commands, files=FILES, months=1)
    config = _config(folder, mode)
    _give(commands, folder / "in", range(FILES // 2))
    _expect(_wheel_udf(first, "run", "--config", str(config)), "the first half")
    more: list[str] = []
    if by_export:
        export = str(folder / "export")
        _expect(_wheel_udf(first, "export", "--config", str(config), "--to", export), "the export")
        more = ["--set", f"checkpoint={folder}/moved"]
        more += ["--set", f"store.path={folder}/moved-store"] if mode == "tiered" else []
        _expect(_wheel_udf(second, "import", "--config", str(config), *more, "--from", export), "the import")
    _give(commands, folder / "in", range(FILES // 2, FILES))
    done = _wheel_udf(second, "run", "--config", str(config), *more, "--until", UNTIL)
    if done.returncode == 2 and "export" in done.stderr and "import" in done.stderr:
        return REFUSED
    _expect(done, "the second half")
    return _compared(folder)


def _config(folder: Path, mode: str) -> Path:
    config = yaml.safe_load((ROOT / "conf" / "departures.yml").read_text(encoding="utf-8"))
    config["source"]["path"] = str(folder / "in")
    config["destinations"]["reminders_*"]["path"] = str(folder / "tables")
    config["rejects"]["path"] = str(folder / "rejects")
    config["checkpoint"] = str(folder / "checkpoint")
    config["mode"] = mode
    if mode == "tiered":
        config["store"] = {"path": str(folder / "store")}
    file = folder / "job.yml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    return file


def _give(commands: Path, source: Path, numbers: range) -> None:
    source.mkdir(exist_ok=True)
    files = sorted(commands.glob("*.parquet"))
    for number in numbers:
        shutil.copy2(files[number], source)  # with its modification time, by which Spark orders


def _wheel_udf(minor: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(python_of(minor)), "-m", "wheel_udf", *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def _expect(done: subprocess.CompletedProcess[str], what: str) -> None:
    if done.returncode:
        raise WrongError(f"{what} failed (exit {done.returncode}): {(done.stderr or done.stdout)[-1500:]}")


def _compared(folder: Path) -> str:
    expected = departures_data.expected_reminders(
        departures_data.read_flights(departures_data.flights_path(), months=1)
    )
    tables = [DeltaTable(str(path)).to_pandas() for path in sorted((folder / "tables").iterdir())]
    fired = pd.concat(tables, ignore_index=True)
    fired["deliver_at_ms"] = departures_data.epoch_ms(fired["deliver_at"])
    both = fired[_KEYS].merge(expected[_KEYS], how="outer", indicator=True)
    missing, more = (int((both["_merge"] == side).sum()) for side in ("right_only", "left_only"))
    if missing or more or len(fired) != len(expected):
        raise WrongError(f"{len(fired)} of {len(expected)} reminders; {missing} missing, {more} not expected")
    return f"{len(fired):,} reminders, each once"
