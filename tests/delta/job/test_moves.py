"""A job that reads a Delta table under a simulated clock and moves: the new one goes on behind the rows and at the
time of the old one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.command_line import say

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SOURCE = "schedule_id STRING, deliver_at STRING, destination STRING"


def add(spark: SparkSession, folder: Path, *due: tuple[str, str]) -> None:
    rows = [(name, f"2024-01-01T00:{at}Z", "out") for name, at in due]
    spark.createDataFrame(rows, SOURCE).write.format("delta").mode("append").save(str(folder / "orders"))


def told(folder: Path, config: dict[str, Any], verb: str, *more: str) -> str:
    file = folder / "job.yml"
    file.write_text(json.dumps(config))
    code, out, err = say(file, verb, *more)
    assert code == 0, err
    return out


@pytest.mark.sentinel
def test_rows_of_a_delta_table_are_read_once_over_a_move_under_a_simulated_clock(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = {
        "wheel": {"tick": "1 second", "size": 20, "levels": 3, "shards": 2},
        "clock": {"kind": "simulated", "start": "2024-01-01T00:00:00Z", "step": "10 seconds"},
        "source": {"format": "delta", "path": str(tmp_path / "orders")},
        # Nothing is remembered: a row that was read a second time would fire a second time.
        "contract": {"memory": "0 seconds", "max_delay": "unlimited"},
        "destinations": {"out": {"sink": "delta", "path": str(tmp_path / "tables"), "create": True}},
        "rejects": {"sink": "delta", "path": str(tmp_path / "rejects")},
        "trigger": "available-now",
        "checkpoint": str(tmp_path / "old"),
    }
    add(spark, tmp_path, ("a", "00:05"), ("b", "00:35"), ("c", "10:00"))
    told(tmp_path, config, "run", "--until", "2024-01-01T00:01:00Z")
    told(tmp_path, config, "export", "--to", str(tmp_path / "export"))

    config["checkpoint"] = str(tmp_path / "new")
    config["wheel"] = {"tick": "1 second", "size": 20, "levels": 3, "shards": 3}
    told(tmp_path, config, "import", "--from", str(tmp_path / "export"))
    # The clock of the old job has passed d: it fires at once, and not at an earlier time.
    add(spark, tmp_path, ("d", "00:45"), ("e", "05:00"))
    out = told(tmp_path, config, "run", "--until", "2024-01-01T00:10:00Z")

    assert "schedules   5 = 0 pending + 5 fired" in out
    rows = spark.read.format("delta").load(str(tmp_path / "tables" / "out"))
    found = {row.schedule_id: row for row in rows.collect()}
    assert rows.count() == 5
    fired = {name: row.fired_at.timestamp() - 1_704_067_200 for name, row in found.items()}
    # A bounded run goes on to its end in one step.
    assert fired == {"a": 10.0, "b": 60.0, "c": 600.0, "d": 60.0, "e": 600.0}
