"""A checkpoint belongs to one mode and one store: a start with another is refused before anything is created, by the
job and by the library.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from tests.delta.pending.verbs import ask
from tests.spark.streams import add_files, due, read_files
from wheel_udf.checkpoint.identity import open_checkpoint
from wheel_udf.common.errors import CheckpointError, GeometryChangedError, StoreError
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.clocks import EventClock, StoreClock
from wheel_udf.delivery.query import deliver
from wheel_udf.metrics.batch_log import read_batches
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import Destinations
from wheel_udf.store.layout import StoreLayout
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.stream.schedule_operator import schedule
from wheel_udf.tiered.run import TieredWheel
from wheel_udf.tiered.start import Outlet, start_tiered

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

WHEEL = Wheel(tick_ms=1_000, size=20, levels=4)
LAYOUT = StoreLayout(WHEEL, state_levels=1)
CLOCK = EventClock(max_ahead_ms=None)
DIRECT: dict[str, Any] = {
    "mode": "direct",
    "wheel": {"tick": "1 second", "size": 20, "levels": 4, "shards": 2},
    "store": None,
}
# All that has fired is due 5; `far` waits where the mode keeps it.
COMMANDS = [due("a", 5, 0), due("far", 3_000, 0), due("now", 6, 10)]


class Job:
    """The job of tests.delta.pending.verbs in a folder, by the command line and by the library."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        add_files(folder / "in", COMMANDS)

    def __call__(self, verb: str, **changes: Any) -> tuple[int, str]:
        """Exit code and what is said of errors."""
        schema = (
            "schedule_id string, seq long, deliver_at timestamp, event_time timestamp, destination string"
        )
        source = {"format": "parquet", "path": str(self.folder / "in"), "schema": schema}
        code, _, err = ask(self.folder, verb, source=source, trigger="available-now", **changes)
        return code, "\n".join(err)

    def refused(self, *said: str, code: int, **changes: Any) -> None:
        """Both verbs refuse it with these words, and leave every file as it was."""
        before = self.files()
        for verb in ("run", "dry-run"):
            found, error = self(verb, **changes)
            assert found == code, error
            assert [text for text in said if text not in error] == [], error
        assert self.files() == before

    def files(self) -> dict[str, bytes]:
        found = (file for file in self.folder.rglob("*") if file.name != "job.yml")
        return {str(file): file.read_bytes() if file.is_file() else b"" for file in found}

    def outlet(self) -> dict[str, Any]:
        return {
            "destinations": Destinations({"*": DeltaSink(str(self.folder / "tables"), create=True)}),
            "rejects": DeltaSink(str(self.folder / "rejects")),
        }

    def deliver(self) -> None:
        """Starts the direct mode of the library."""
        frame = schedule(read_files(self.spark, self.folder / "in"), wheel=WHEEL, clock=CLOCK, shards=2)
        deliver(frame, **self.outlet(), checkpoint=str(self.folder / "checkpoint"))

    def start_tiered(self, store: str = "store", checkpoint: str = "checkpoint") -> None:
        """Starts the tiered mode of the library."""
        start_tiered(
            read_files(self.spark, self.folder / "in"),
            TieredWheel(layout=LAYOUT, store=str(self.folder / store), clock=CLOCK, shards=2),
            outlet=Outlet(**self.outlet()),
            checkpoint=str(self.folder / checkpoint),
        )

    def fired(self) -> list[str]:
        table = self.spark.read.format("delta").load(str(self.folder / "tables" / "out"))
        return sorted(row.schedule_id for row in table.collect())


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    return Job(spark, tmp_path)


def leave_a_killed_first_start(folder: Path) -> None:
    """What a tiered run leaves that is killed while both queries plan their first batch: a store without rows, two
    checkpoints without batches.
    """
    parts = {
        "intake": {"wheel_fingerprint": LAYOUT.fingerprint(), "clock_kind": CLOCK.kind},
        "wheel": {"wheel_fingerprint": WHEEL.fingerprint(), "clock_kind": StoreClock.kind},
    }
    for part, asked in parts.items():
        open_checkpoint(str(folder / part), name="desk", shards=2, **asked)
        for name in ("offsets/.0.3888.tmp", "offsets/..0.3888.tmp.crc", "commits/.0.1850.tmp"):
            (folder / part / name).parent.mkdir(exist_ok=True)
            (folder / part / name).touch()
        (folder / part / "metadata").write_text(json.dumps({"id": str(uuid4())}))


def require_the_table_that_was_read(job: Job, store: SlotStore) -> None:
    """The wheel may plan its first batch before the intake has written to the store: a kill then leaves a store that
    nobody has written.
    """
    planned = job.folder / "checkpoint" / "wheel" / "offsets" / "0"
    for read, expected in ((store.table_id, 0), (str(uuid4()), 1)):
        offset = {"sourceVersion": 1, "reservoirId": read, "reservoirVersion": 1, "index": -1}
        planned.write_text(f'v1\n{{}}\n{{"wheel_clock": 0}}\n{json.dumps(offset)}')
        code, error = job("dry-run")
        assert (code, "belongs to another slot store" in error) == (expected, bool(expected)), error
    planned.unlink()


def test_a_tiered_job_starts_in_its_own_mode_with_its_own_store_alone(job: Job, spark: SparkSession) -> None:
    leave_a_killed_first_start(job.folder / "checkpoint")
    store = SlotStore.open(spark, str(job.folder / "store"), LAYOUT, create=True)
    require_the_table_that_was_read(job, store)
    assert job("run", metrics={"observed": True}) == (0, "")
    assert job.fired() == ["a", "now"]
    lines = read_batches(str(job.folder / "checkpoint"), 0)
    assert {line["query"] for line in lines} == {"intake", "wheel"}
    assert sum(line["received"] for line in lines if line["query"] == "wheel") == 3
    assert [(line["near"], line["far"]) for line in lines if line["query"] == "wheel"][-1] == (0, 1)

    job.refused("(mode tiered there, direct here)", code=2, **DIRECT)
    elsewhere = str(job.folder / "elsewhere")
    another = "the checkpoint belongs to another slot store"
    job.refused(another, f"{elsewhere} = 'missing'", "set store.path to", code=1, store={"path": elsewhere})

    SlotStore.open(spark, str(job.folder / "empty"), LAYOUT, create=True)
    before = job.files()
    with pytest.raises(GeometryChangedError, match="mode tiered there, direct here"):
        job.deliver()
    with pytest.raises(StoreError, match=f"{another}.*elsewhere = 'missing'"):
        job.start_tiered("elsewhere")
    with pytest.raises(StoreError, match=f"{another}.*empty = 'an empty store'"):
        job.start_tiered("empty")
    with pytest.raises(
        StoreError, match=r"store belongs to another checkpoint.*a new checkpoint begins with"
    ):
        job.start_tiered(checkpoint="new")
    shutil.rmtree(job.folder / "checkpoint" / "wheel")
    with pytest.raises(CheckpointError, match=r"a part of the checkpoint is missing: .*/checkpoint/wheel"):
        job.start_tiered()
    assert job.files().keys() == {file for file in before if "/checkpoint/wheel" not in file}


@pytest.mark.sentinel
def test_a_direct_job_starts_in_its_own_mode_alone(job: Job) -> None:
    assert job("run", **DIRECT) == (0, "")
    assert job.fired() == ["a", "now"]
    job.refused("(mode direct there, tiered here)", code=2)
    with pytest.raises(GeometryChangedError, match="mode direct there, tiered here"):
        job.start_tiered()
    assert not (job.folder / "store").exists()
