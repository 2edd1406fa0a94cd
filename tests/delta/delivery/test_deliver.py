"""Delivery into real Delta tables: exactly once over failures and restarts, one checkpoint for one wheel and one
process.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.streams import T0, add_files, at_ms, cancel, due, read_files
from wheel_udf.checkpoint.lease import Lease
from wheel_udf.common.errors import CheckpointError, ContractError, GeometryChangedError, LeaseError
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.clocks import Clock, EventClock, SimulatedClock
from wheel_udf.delivery import query
from wheel_udf.delivery.query import deliver
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import Destinations
from wheel_udf.spark.failures import explain
from wheel_udf.stream.schedule_operator import schedule

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from wheel_udf.delivery.report import BatchReport

WHEEL = Wheel(tick_ms=1_000, size=20, levels=6)
END = EventClock(until_ms=at_ms(1_000))

# said at   0        100                 200       300
FILES: list[list[dict[str, Any]]] = [
    [due("a", 50, 0), due("b", 150, 0, destination="other"), due("c", 900, 0), due(None, 1, 0)],
    [due("a", 400, 100, seq=2), due("d", 250, 100)],
    [cancel("c", 200, seq=2), due("e", 90, 200)],
    [],
    [due("b", 700, 300, seq=2), due("d", 250, 300)],
]


class World:
    """A folder with input, tables and a checkpoint, and runs over them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        (folder / "in").mkdir(parents=True)
        self.reports: list[BatchReport] = []

    def start(
        self,
        clock: Clock = END,
        wheel: Wheel = WHEEL,
        shards: int = 2,
        trigger: str = "available-now",
        **settings: Any,
    ) -> StreamingQuery:
        frame = schedule(
            read_files(self.spark, self.folder / "in"), wheel=wheel, clock=clock, shards=shards, **settings
        )
        return deliver(
            frame,
            destinations=Destinations({"*": DeltaSink(str(self.folder / "tables"), create=True)}),
            rejects=DeltaSink(str(self.folder / "rejects"), create=True),
            checkpoint=str(self.folder / "checkpoint"),
            trigger=trigger,
            on_batch=self.on_batch,
        )

    def on_batch(self, report: BatchReport) -> None:
        self.reports.append(report)

    def run(self, clock: Clock = END, **settings: Any) -> None:
        self.start(clock, **settings).awaitTermination()

    def table(self, name: str) -> list[tuple[str, int, float, float]]:
        """(id, seq, due, fired), by id and seq, in seconds from the beginning."""
        folder = self.folder / "tables" / name
        if not folder.exists():
            return []
        rows = self.spark.read.format("delta").load(str(folder)).orderBy("schedule_id", "seq").collect()
        seconds = T0.timestamp()
        return [
            (
                row.schedule_id,
                row.seq,
                row.deliver_at.timestamp() - seconds,
                row.fired_at.timestamp() - seconds,
            )
            for row in rows
        ]

    def rejected(self) -> list[str]:
        rows = self.spark.read.format("delta").load(str(self.folder / "rejects")).collect()
        return sorted(row.error_code for row in rows)


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    return World(spark, tmp_path)


# clock     0 (file 1), 0 (file 2), 100 (file 3), 200 (file 4), 200 (file 5), 300 (tick), 1000 (until)
OUT = [("a", 2, 400, 1_000), ("b", 2, 700, 1_000), ("d", 1, 250, 300), ("e", 1, 90, 100)]
OTHER = [("b", 1, 150, 200)]


@pytest.mark.sentinel
def test_each_destination_gets_its_rows_once_and_the_account_closes(world: World) -> None:
    add_files(world.folder / "in", *FILES)
    world.run()
    assert (world.table("out"), world.table("other"), world.rejected()) == (OUT, OTHER, ["no_schedule_id"])
    last = world.reports[-1]
    counts = {name: count for name, count in last.counts.items() if count}
    assert counts == {
        "fired": 5,
        "superseded": 1,
        "cancelled": 1,
        "applied": 1,
        "duplicate": 1,
        "rejected": 1,
    }
    assert (last.pending, last.backlog, last.next_due_ms) == (0, False, None)
    assert sum(report.received for report in world.reports) == 10


def test_a_restart_between_any_two_batches_gives_the_same_tables(world: World) -> None:
    # Every file in a run of its own; the clock stands still between them, and runs on to the end in the last.
    for file in FILES:
        add_files(world.folder / "in", file)
        world.run(EventClock())
    world.run()
    assert [row[:3] for row in world.table("out")] == [row[:3] for row in OUT]
    assert [row[:3] for row in world.table("other")] == [row[:3] for row in OTHER]
    assert world.rejected() == ["no_schedule_id"]


def test_a_batch_that_failed_after_its_tables_were_written_is_repeated_without_a_copy(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_files(world.folder / "in", *FILES)
    written: list[int] = []
    write_batch = query.write_batch

    def fail_at_the_third(*rows: Any, batch_id: int, **more: Any) -> int:
        undeliverable = write_batch(*rows, batch_id=batch_id, **more)
        written.append(batch_id)
        if written == [0, 1, 2]:
            raise RuntimeError("the driver's last moment")
        return undeliverable

    monkeypatch.setattr(query, "write_batch", fail_at_the_third)
    with pytest.raises(Exception, match="the driver's last moment"):
        world.run()
    world.run()
    assert written[:4] == [0, 1, 2, 2]
    assert (world.table("out"), world.table("other"), world.rejected()) == (OUT, OTHER, ["no_schedule_id"])


def test_a_callback_that_fails_is_logged_and_fails_no_batch(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(report: BatchReport) -> None:
        raise RuntimeError(f"no report of {report.batch_id} today")

    world.on_batch = fail  # type: ignore[method-assign]
    add_files(world.folder / "in", *FILES)
    world.run()
    assert (world.table("out"), world.table("other"), world.rejected()) == (OUT, OTHER, ["no_schedule_id"])
    first = next(record for record in caplog.records if record.name == "wheel_udf.delivery.query")
    assert first.getMessage() == "on_batch failed for batch 0, which is written"
    assert first.exc_info is not None
    assert str(first.exc_info[1]) == "no report of 0 today"


def test_after_an_outage_what_fell_due_comes_out_once_oldest_first_in_bounded_batches(world: World) -> None:
    add_files(world.folder / "in", [due(f"id{n:02}", 10 * n, 0) for n in range(1, 11)])
    world.run(SimulatedClock(instants_ms=(at_ms(0),)), limit=4)
    month = 30 * 86_400
    world.run(SimulatedClock(instants_ms=(at_ms(0), at_ms(month))), limit=4, shards=2)
    assert [report.fired for report in world.reports if report.fired] == sorted(
        [report.fired for report in world.reports if report.fired], reverse=True
    )
    assert all(report.fired <= 4 for report in world.reports)
    assert [row[0] for row in world.table("out")] == [f"id{n:02}" for n in range(1, 11)]


def test_files_without_rows_are_input_and_not_its_end(world: World) -> None:
    add_files(world.folder / "in", [due("a", 500, 0)], [], [], [cancel("a", 10, seq=2)])
    world.run()
    assert world.table("out") == []
    assert world.reports[-1].counts["cancelled"] == 1


@pytest.mark.parametrize(
    ("change", "both"),
    [
        ({"wheel": Wheel(tick_ms=500, size=20, levels=6)}, r"tick_ms=1000.*tick_ms=500"),
        ({"shards": 4}, r"2.*4"),
        ({"clock": SimulatedClock(start_ms=0, step_ms=1)}, r"event.*simulated"),
    ],
)
def test_a_checkpoint_of_another_wheel_is_refused_with_both_values(
    world: World, change: dict[str, Any], both: str
) -> None:
    add_files(world.folder / "in", [due("a", 50, 0)])
    world.run()
    with pytest.raises(GeometryChangedError, match=both):
        world.start(**change)


def test_a_second_query_on_a_running_checkpoint_is_refused(world: World) -> None:
    query = world.start(trigger="1 hour")
    with pytest.raises(LeaseError, match="in use"):
        world.start()
    query.stop()
    world.run()


def _stop(world: World, query: StreamingQuery, _monkeypatch: pytest.MonkeyPatch) -> None:
    query.stop()


def _finish(world: World, query: StreamingQuery, _monkeypatch: pytest.MonkeyPatch) -> None:
    query.stop()
    world.start(trigger="available-now").awaitTermination()


def _fail(world: World, running: StreamingQuery, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> int:
        raise RuntimeError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(query, "write_batch", broken)
        add_files(world.folder / "in", [due("z", 50, 0)])
        with pytest.raises(Exception, match="disk full"):
            running.awaitTermination()


@pytest.mark.parametrize("end", [_stop, _finish, _fail])
def test_a_query_that_has_ended_has_given_its_lease_back(
    world: World, monkeypatch: pytest.MonkeyPatch, end: Callable[..., None]
) -> None:
    # Nobody keeps anything but the StreamingQuery, and nobody starts on the checkpoint again: any other process could.
    add_files(world.folder / "in", [due("a", 50, 0)])
    end(world, world.start(trigger="200 milliseconds"), monkeypatch)
    Lease(str(world.folder / "checkpoint")).acquire().close()


def test_a_batch_of_a_driver_that_has_lost_its_lease_writes_nothing_and_is_not_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_lease: Lease) -> None:
        raise LeaseError("this process has lost the lease of the checkpoint")

    add_files(world.folder / "in", [due("a", 50, 0)])
    with monkeypatch.context() as patch:
        patch.setattr(Lease, "check", lost)
        with pytest.raises(StreamingQueryException) as ended:
            world.run()
    failure = explain(ended.value)
    assert failure.sentence == "this process has lost the lease of the checkpoint"
    assert (failure.exit_code, failure.transient) == (1, False)
    assert world.table("out") == []
    world.run()
    assert [row[0] for row in world.table("out")] == ["a"]


def test_a_start_changes_no_setting_that_a_query_started_beside_it_would_inherit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.spark.conf.unset("spark.sql.streaming.checkpointFileManagerClass")
    before, start_with = dict(world.spark.conf.getAll), query.start_with
    during: list[dict[str, str]] = []

    def start(writer: DataStreamWriter, trigger: str, **settings: Any) -> StreamingQuery:
        during.append(dict(world.spark.conf.getAll))
        return start_with(writer, trigger, **settings)

    monkeypatch.setattr(query, "start_with", start)
    add_files(world.folder / "in", [due("a", 50, 0)])
    world.run()
    assert during == [before]


def test_a_checkpoint_that_lost_its_offsets_is_refused(world: World) -> None:
    add_files(world.folder / "in", [due("a", 50, 0)])
    world.run()
    for file in (world.folder / "checkpoint" / "offsets").glob("[0-9]*"):
        file.write_text("")
    with pytest.raises(CheckpointError):
        world.start()


def test_an_empty_folder_in_place_of_a_lost_checkpoint_starts_anew_and_loses_nothing(world: World) -> None:
    # The transaction ids of a new checkpoint are new: were they the old ones, Delta would skip its batches in silence.
    add_files(world.folder / "in", [due("a", 50, 0)])
    world.run()
    shutil.rmtree(world.folder / "checkpoint")
    world.run()
    assert [row[0] for row in world.table("out")] == ["a", "a"]


def test_a_frame_of_something_else_is_refused(world: World) -> None:
    add_files(world.folder / "in", [due("a", 50, 0)])
    with pytest.raises(ContractError, match="schedule"):
        deliver(
            read_files(world.spark, world.folder / "in"),
            destinations=Destinations({"*": DeltaSink(str(world.folder))}),
            rejects=DeltaSink(str(world.folder)),
            checkpoint=str(world.folder / "checkpoint"),
        )
