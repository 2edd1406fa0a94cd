"""The checker of fault tests: it reads only the input and the sinks, and knows nothing of how the wheel works."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from tests.faults.world import WHERE, files, watched_files

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def expected() -> set[tuple[str, int, str]]:
    """(id, seq, destination) of what must have fired: of each id the last version, unless that is a CANCEL.

    The input is made so that every later version is said long before the earlier one is due.
    """
    last = {row["schedule_id"]: row for rows in files() for row in rows if row["schedule_id"] is not None}
    return {(row["schedule_id"], row["seq"], row["destination"]) for row in last.values() if "op" not in row}


def faults_of(spark: SparkSession, folder: Path) -> list[str]:
    """What is wrong with the sinks; empty when nothing is."""
    tables = {
        name: spark.read.format("delta").load(str(folder / "tables" / name)).collect() for name in WHERE
    }
    rows = [(row.schedule_id, row.seq, name) for name, table in tables.items() for row in table]
    faults = [f"twice: {row}" for row in sorted({row for row in rows if rows.count(row) > 1})]
    faults += [f"missing: {row}" for row in sorted(expected() - set(rows))]
    faults += [f"not expected: {row}" for row in sorted(set(rows) - expected())]
    faults += [f"early: {row}" for table in tables.values() for row in table if row.fired_at < row.deliver_at]
    rejected = spark.read.format("delta").load(str(folder / "rejects")).count()
    if rejected != len(files()):
        faults.append(f"rejects: {rejected} instead of {len(files())}")
    return faults


def watch_expected() -> set[tuple[str, str, str]]:
    """(id, outcome, destination) of each operation. In the input no event is before its operation or after its deadline but that of the late ones."""
    operations = [row for rows, _ in watched_files() for row in rows if row["op_id"] is not None]
    said = [row for _, rows in watched_files() for row in rows]
    found = set()
    for row in operations:
        span = row["event_time"], row["event_time"] + timedelta(minutes=10)
        mine = [each for each in said if span[0] <= each["event_time"] <= span[1]]
        paid = any(each["key"] in row["keys"] for each in mine)
        called_off = any(each["key"] == row["op_id"] for each in mine)
        outcome = "completed" if paid else "cancelled" if called_off else "expired"
        found.add((row["op_id"], outcome, row["destination"]))
    return found


def watch_faults_of(spark: SparkSession, folder: Path) -> list[str]:
    """What is wrong with the outcomes; empty when nothing is."""
    tables = {name: spark.read.format("delta").load(str(folder / "tables" / name)) for name in WHERE}
    rows = [(row.op_id, row.outcome, name) for name, table in tables.items() for row in table.collect()]
    faults = [f"twice: {row}" for row in sorted({row for row in rows if rows.count(row) > 1})]
    faults += [f"missing: {row}" for row in sorted(watch_expected() - set(rows))]
    faults += [f"not expected: {row}" for row in sorted(set(rows) - watch_expected())]
    rejected = spark.read.format("delta").load(str(folder / "rejects")).count()
    if rejected != len(watched_files()):
        faults.append(f"rejects: {rejected} instead of {len(watched_files())}")
    return faults
