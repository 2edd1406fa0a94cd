"""The checker of fault tests: it reads only the input and the sinks, and knows nothing of how the wheel works.

What a wheel has done is decided by the ledger checker (:mod:`wheel_udf.testing.ledger`); the purgatory's rows are compared here.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from tests.faults.world import END_S, WHERE, files, watched_files
from tests.spark.streams import at_ms
from wheel_udf.testing import ledger

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


RULES = ledger.Rules(until_ms=at_ms(END_S), in_order=True, read_within_ms=0)
"""The files are in the order of their event times, which are the clock."""


def faults_of(spark: SparkSession, folder: Path) -> list[str]:
    """What is wrong with the sinks; empty when nothing is."""
    tables = [spark.read.format("delta").load(str(folder / "tables" / name)).toArrow() for name in WHERE]
    fired = [
        row | {"table": name} for name, table in zip(WHERE, tables, strict=True) for row in table.to_pylist()
    ]
    return ledger_faults(fired, spark.read.format("delta").load(str(folder / "rejects")).toArrow())


def ledger_faults(fired: ledger.Frame, rejects: ledger.Frame) -> list[str]:
    """What the ledger checker finds in the rows; what it cannot decide is a fault, too: all is known of this input."""
    report = ledger.check([row for rows in files() for row in rows], fired, rejects, rules=RULES)
    return [f"{each.kind}: {each}" for each in (*report.findings, *report.examples)]


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
