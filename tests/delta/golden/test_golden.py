"""This release goes on with the checkpoints and stores of its formats, which are kept in tests/golden."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.delta.transfer.homes import SMALL, Home, Job
from tests.golden import unpack
from tests.golden.purgatory import AFTER, watch_over
from tests.spark.streams import due
from tests.spark.watches import add_rows
from wheel_udf.platform import delta_log, identity_of
from wheel_udf.purgatory.state import WATCH_FORMAT_VERSION
from wheel_udf.store.table import FORMAT_VERSION as STORE_FORMAT_VERSION
from wheel_udf.wheel import FORMAT_VERSION

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

DIRECT, TIERED, WATCH = "direct-8", "tiered-8-2", "watch-3"
FORMER = "direct-5", "tiered-5-2", "direct-6", "tiered-6-2", "direct-7", "tiered-7-2"


def test_the_golden_files_are_of_the_formats_of_this_release() -> None:
    names = f"direct-{FORMAT_VERSION}", f"tiered-{FORMAT_VERSION}-{STORE_FORMAT_VERSION}"

    assert (*names, f"watch-{WATCH_FORMAT_VERSION}") == (DIRECT, TIERED, WATCH)


@pytest.mark.parametrize("name", [DIRECT, TIERED, *FORMER])
def test_a_golden_wheel_goes_on(spark: SparkSession, tmp_path: Path, name: str) -> None:
    unpack(name, tmp_path)
    job = Job(spark, tmp_path)
    home = Home(job, "checkpoint", SMALL, 2, tiered=name.startswith("tiered"))
    home.store = job.place("store")

    job.say([due("early cancel", 800, 100), due("fired", 30, 100)])
    home.run(until_s=6_000)

    # What has fired before is in no table here, and does not fire again.
    assert job.fired() == [("far", 1, 5_000), ("near", 1, 95)]
    ended = {"fired": 4, "cancelled": 2, "duplicate": 1, "applied": 2}
    assert job.account == {"pending": 0, **ended}


def test_a_golden_checkpoint_says_its_format(spark: SparkSession, tmp_path: Path) -> None:
    unpack(TIERED, tmp_path)
    properties = delta_log.snapshot(spark, str(tmp_path / "store")).properties()

    assert identity_of(str(tmp_path / "checkpoint" / "wheel")).format_version == 8
    assert properties["wheel_udf.format_version"] == "2"


@pytest.mark.parametrize("name", [WATCH, "watch-2"])
def test_a_golden_purgatory_goes_on(spark: SparkSession, tmp_path: Path, name: str) -> None:
    unpack(name, tmp_path)
    add_rows(tmp_path, *AFTER)

    last = watch_over(spark, tmp_path, until_s=1_000)[-1]

    rows = spark.read.format("delta").load(str(tmp_path / "tables" / "out"))
    found = sorted((row.op_id, row.outcome, row.by_key) for row in rows.collect())
    assert found == [
        ("expires", "expired", None),
        ("half", "completed", "d"),
        ("late", "completed", "ahead"),
        ("waits", "completed", "b"),
    ]
    assert {name: count for name, count in last.counts.items() if count} == {
        "completed": 4,
        "expired": 1,
        "duplicate": 1,
        "events": 5,
    }
