"""The checker of fault tests: it reads only the input and the sinks, and knows nothing of how the wheel works."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.world import files

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
        name: spark.read.format("delta").load(str(folder / "tables" / name)).collect()
        for name in ("left", "right")
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
