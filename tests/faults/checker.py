"""The checker of fault tests: it reads only the input and the sinks, without Spark, and knows nothing of how the wheel
works.

What a wheel has done is decided by the ledger checker (:mod:`wheel_udf.testing.ledger`); the outcomes of a purgatory
are compared with those that its input was made for.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.faults.inputs import Watched, end_s
from tests.spark.streams import at_ms
from wheel_udf.testing import ledger

if TYPE_CHECKING:
    from pathlib import Path


def faults_of(folder: Path, commands: list[dict[str, Any]], files: int) -> list[str]:
    """What is wrong with the tables of a wheel; empty when nothing is."""
    fired, rejects = ledger.read_delta(folder / "tables"), ledger.read_delta(folder / "rejects")
    return ledger_faults(commands, fired, rejects, files)


def ledger_faults(
    commands: list[dict[str, Any]], fired: ledger.Frame, rejects: ledger.Frame, files: int
) -> list[str]:
    """What the ledger checker finds in the rows; what it cannot decide is a fault, too: all is known of this input.

    The files are in the order of their event times, which are the clock.
    """
    rules = ledger.Rules(until_ms=at_ms(end_s(files)), in_order=True, read_within_ms=0)
    return texts_of(ledger.check(commands, fired, rejects, rules=rules))


def texts_of(report: ledger.Report) -> list[str]:
    """What a report has found, and what it leaves open."""
    return [f"{each.kind}: {each}" for each in (*report.findings, *report.examples)]


def watch_faults_of(folder: Path, watched: Watched) -> list[str]:
    """What is wrong with the outcomes of a purgatory; empty when nothing is."""
    rejects = ledger.read_delta(folder / "rejects").num_rows
    return watch_faults(ledger.read_delta(folder / "tables").to_pylist(), rejects, watched)


def watch_faults(rows: list[dict[str, Any]], rejects: int, watched: Watched) -> list[str]:
    """What is wrong with the rows of a purgatory and the number of its rejects."""
    found = Counter((row["op_id"], row["outcome"], row["table"]) for row in rows)
    faults = [f"twice: {row}" for row, count in sorted(found.items()) if count > 1]
    faults += [f"missing: {row}" for row in sorted(watched.expected - found.keys())]
    faults += [f"not expected: {row}" for row in sorted(found.keys() - watched.expected)]
    if rejects != len(watched.pairs):
        faults.append(f"rejects: {rejects} instead of {len(watched.pairs)}")
    return faults
