"""The slot store on real Delta: made once, written once, with a cursor that only rises, and a stream that hears of
near rows alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from wheel_udf.common.errors import GeometryChangedError, StoreError, StoreMovedError
from wheel_udf.common.geometry import Wheel
from wheel_udf.store import table as store_table
from wheel_udf.store.head import CURSOR, Appended, Head
from wheel_udf.store.layout import StoreLayout
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.store.table import STORE_DDL, STORE_SCHEMA
from wheel_udf.tables import delta_log as tables, log_checkpoints
from wheel_udf.tables.delta_transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LAYOUT = StoreLayout(Wheel(tick_ms=1_000, size=20, levels=4), state_levels=1)
HOUR = 3_600_000


def row(level: int, slot: int, schedule_id: str, event_time_ms: int | None = None) -> tuple[Any, ...]:
    values = dict.fromkeys(STORE_SCHEMA.names) | {
        "level": level,
        "slot": slot,
        "act": 0,
        "schedule_id": schedule_id,
        "deliver_at_ms": HOUR,
        "value": b"\x00" + schedule_id.encode(),
        "event_time_ms": event_time_ms,
        "arrived": 1,
    }
    return tuple(values.values())


@pytest.fixture
def frame(spark: SparkSession) -> Callable[..., DataFrame]:
    def make(*rows: tuple[Any, ...]) -> DataFrame:
        return spark.createDataFrame(list(rows), STORE_SCHEMA)

    return make


@pytest.fixture
def store(spark: SparkSession, tmp_path: Path) -> SlotStore:
    return SlotStore.open(spark, str(tmp_path / "store"), LAYOUT, create=True)


def commits(store: SlotStore) -> list[list[dict[str, Any]]]:
    logs = sorted(Path(store.path, "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in log.read_text().splitlines()] for log in logs]


def ids(frame: DataFrame) -> list[str]:
    return sorted(found.schedule_id for found in frame.select("schedule_id").collect())


# --- creation and reopening -----------------------------------------------------------------------


def test_a_store_is_made_by_one_commit_and_opened_again_as_it_is(
    spark: SparkSession, store: SlotStore
) -> None:
    again = SlotStore.open(spark, store.path, LAYOUT, create=False)

    assert len(commits(store)) == 1
    assert again.head() == Head(version=0, cursor_ms=None, clock_ms=None, batches={})
    assert again.partitions() == []
    assert again.rows().schema.simpleString() == STORE_SCHEMA.simpleString()
    metadata = next(action["metaData"] for action in commits(store)[0] if "metaData" in action)
    assert metadata["partitionColumns"] == ["level", "slot"]
    assert metadata["configuration"] == {
        "delta.logRetentionDuration": "interval 86400 seconds",
        "delta.deletedFileRetentionDuration": "interval 86400 seconds",
        "delta.dataSkippingStatsColumns": "act,id_hash,seq,deliver_at_ms,event_time_ms,arrived,anchor_ms",
        "delta.enableDeletionVectors": "false",
        "wheel_udf.layout": "tick_ms=1000,size=20,levels=4,state_levels=1",
        "wheel_udf.format_version": "4",
    }


def test_what_a_killed_creation_leaves_is_no_hindrance(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "store" / "_delta_log"
    log.mkdir(parents=True)
    (log / ".00000000000000000000.json.1f.tmp").write_text("half a comm")

    store = SlotStore.open(spark, str(tmp_path / "store"), LAYOUT, create=True)

    assert store.head().version == 0


def test_of_two_creations_at_a_time_both_have_the_one_store(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties, place = store_table.table_properties, str(tmp_path / "store")

    def late(*given: Any) -> Any:
        monkeypatch.undo()
        SlotStore.open(spark, place, LAYOUT, create=True)
        return properties(*given)

    monkeypatch.setattr(store_table, "table_properties", late)

    assert SlotStore.open(spark, place, LAYOUT, create=True).head().version == 0


def test_a_store_does_not_depend_on_what_the_session_gives_new_tables(
    spark: SparkSession, tmp_path: Path, frame: Callable[..., DataFrame]
) -> None:
    for name, value in {
        "columnMapping.mode": "name",
        "appendOnly": "true",
        "enableRowTracking": "true",
    }.items():
        spark.conf.set(f"spark.databricks.delta.properties.defaults.{name}", value)
    store = SlotStore.open(spark, str(tmp_path / "store"), LAYOUT, create=True)

    store.append(frame(row(2, 190, "a"), row(2, 191, "b")), app_id="intake", batch_id=0)
    store.append(frame(row(2, 190, "c")), app_id="intake", batch_id=1)
    store.drop([(2, 191)])

    assert "delta.columnMapping.mode" not in tables.snapshot(store.path).properties()
    assert ids(SlotStore.open(spark, store.path, LAYOUT, create=False).rows()) == ["a", "c"]


def test_a_comment_on_a_column_of_the_store_is_no_other_column(spark: SparkSession, store: SlotStore) -> None:
    spark.sql(f"ALTER TABLE delta.`{store.path}` ALTER COLUMN value COMMENT 'the payload'")
    assert SlotStore.open(spark, store.path, LAYOUT, create=False).head().version == 1


def test_a_missing_store_is_made_only_when_asked(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="missing"):
        SlotStore.open(spark, str(tmp_path / "store"), LAYOUT, create=False)
    assert not (tmp_path / "store").exists()


def test_another_layout_or_format_is_refused_and_both_are_said(spark: SparkSession, store: SlotStore) -> None:
    other = StoreLayout(LAYOUT.wheel, state_levels=2)
    with pytest.raises(GeometryChangedError, match=r"another layout.*state_levels=1.*state_levels=2"):
        SlotStore.open(spark, store.path, other, create=True)

    spark.sql(f"ALTER TABLE delta.`{store.path}` SET TBLPROPERTIES ('wheel_udf.format_version' = '7')")
    with pytest.raises(GeometryChangedError, match=r"another format.*'7'; rule: 4"):
        SlotStore.open(spark, store.path, LAYOUT, create=True)


def test_what_is_no_slot_store_is_refused_and_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.format("delta").save(str(tmp_path / "delta"))
    spark.range(3).write.parquet(str(tmp_path / "parquet"))
    (tmp_path / "file").write_text("text")

    for place, said in [
        ("delta", "not a slot store"),
        ("parquet", "not empty and holds no slot store"),
        ("file", "not empty and holds no slot store"),
    ]:
        for create in (True, False):
            with pytest.raises(StoreError, match=said):
                SlotStore.open(spark, str(tmp_path / place), LAYOUT, create=create)
    assert spark.read.format("delta").load(str(tmp_path / "delta")).count() == 3
    assert not (tmp_path / "parquet" / "_delta_log").exists()


def test_a_store_with_other_columns_is_refused(spark: SparkSession, store: SlotStore) -> None:
    spark.sql(f"ALTER TABLE delta.`{store.path}` ADD COLUMNS (more string)")
    with pytest.raises(StoreError, match="other columns"):
        SlotStore.open(spark, store.path, LAYOUT, create=False)


# --- append ---------------------------------------------------------------------------------------


def test_a_batch_is_appended_once_and_tells_what_it_wrote(
    store: SlotStore, frame: Callable[..., DataFrame]
) -> None:
    rows = frame(row(0, 180, "a", 7), row(2, 190, "b", 9), row(2, 190, "c"), row(3, 10, "d", 8))

    told = store.append(rows, app_id="intake", batch_id=4)

    assert told == Appended(written=True, version=1, rows=4, clock_ms=None)
    nothing = Appended(written=False, version=1, rows=0, clock_ms=None)
    assert store.append(rows, app_id="intake", batch_id=4) == nothing
    assert store.append(rows, app_id="intake", batch_id=3) == nothing
    assert ids(store.rows()) == ["a", "b", "c", "d"]
    assert store.head() == Head(version=1, cursor_ms=None, clock_ms=None, batches={"intake": 4})
    assert store.append(rows, app_id="other", batch_id=4).written


def test_rows_come_back_as_they_were_and_files_are_zstd(
    spark: SparkSession, store: SlotStore, frame: Callable[..., DataFrame]
) -> None:
    rows = frame(row(2, 190, "b", 9))
    store.append(rows.select(*reversed(rows.columns)), app_id="intake", batch_id=0)

    assert store.rows().collect() == rows.collect()
    assert all(".zstd." in path.name for path in Path(store.path).glob("rows-*/level=*/slot=*/*.parquet"))


def test_many_spark_partitions_make_one_file_for_each_slot(spark: SparkSession, store: SlotStore) -> None:
    rows = spark.range(400, numPartitions=8).select(
        *(
            {
                "level": F.lit(2),
                "slot": F.col("id") % 5,
                "act": F.lit(0),
                "arrived": F.lit(0),
                "schedule_id": F.col("id"),
            }.get(column.name, F.lit(None))
            .cast(column.dataType)
            .alias(column.name)
            for column in STORE_SCHEMA
        )
    )
    store.append(rows, app_id="intake", batch_id=0)
    assert [p.files for p in store.partitions()] == [1, 1, 1, 1, 1]


def test_cursor_and_clock_stand_in_the_same_commit_and_never_go_back(
    store: SlotStore, frame: Callable[..., DataFrame]
) -> None:
    store.append(frame(row(2, 190, "a")), app_id="intake", batch_id=0, cursor_ms=HOUR, clock_ms=5_000)
    last = commits(store)[-1]
    marks = {action["txn"]["appId"]: action["txn"]["version"] for action in last if "txn" in action}
    assert marks == {"intake": 0, "cursor": HOUR, "clock": 5_000}
    assert sum("add" in action for action in last) == 1

    told = store.append(frame(row(2, 190, "b")), app_id="intake", batch_id=1, cursor_ms=0, clock_ms=4_000)
    assert told.clock_ms == 5_000
    assert store.head() == Head(2, HOUR, 5_000, {"intake": 1}, clock_before_ms=5_000)

    store.append(None, app_id="cascade", batch_id=0, cursor_ms=HOUR + 20_000, clock_ms=6_000)
    assert store.head() == Head(3, HOUR + 20_000, 6_000, {"intake": 1, "cascade": 0}, clock_before_ms=5_000)


def test_negative_instants_are_cursors_and_clocks_too(store: SlotStore) -> None:
    store.append(None, app_id="intake", batch_id=0, cursor_ms=-40_000, clock_ms=-55_000)
    store.append(None, app_id="intake", batch_id=1, cursor_ms=-20_000, clock_ms=-55_001)

    assert store.head() == Head(2, -20_000, -55_000, {"intake": 1}, clock_before_ms=-55_000)


def test_the_clock_may_be_made_of_the_largest_event_time(
    store: SlotStore, frame: Callable[..., DataFrame]
) -> None:
    heard: list[int | None] = []

    def ten_seconds_behind(largest_ms: int | None) -> int | None:
        heard.append(largest_ms)
        return None if largest_ms is None else largest_ms - 10_000

    batches = [
        [row(0, 1, "a", 50_000), row(2, 1, "b", 70_000), row(2, 1, "c")],
        [row(0, 1, "d")],
        [row(0, 1, "e", 60_000)],
    ]
    clocks = [
        store.append(frame(*rows), app_id="intake", batch_id=number, clock_ms=ten_seconds_behind).clock_ms
        for number, rows in enumerate(batches)
    ]

    assert heard == [70_000, None, 60_000]
    assert clocks == [60_000, 60_000, 60_000]


def test_rows_placed_by_a_cursor_that_has_moved_are_not_written(
    spark: SparkSession, store: SlotStore, frame: Callable[..., DataFrame]
) -> None:
    other = SlotStore.open(spark, store.path, LAYOUT, create=False)
    store.append(None, app_id="cascade", batch_id=0, cursor_ms=HOUR)
    other.append(None, app_id="cascade", batch_id=1, cursor_ms=HOUR + 20_000)

    with pytest.raises(StoreMovedError, match=r"3620000; rule: 3600000"):
        store.append(frame(row(2, 180, "a")), app_id="intake", batch_id=0, expect={CURSOR: HOUR})

    assert store.partitions() == []
    assert "intake" not in store.head().batches
    assert store.append(
        frame(row(2, 181, "a")), app_id="intake", batch_id=0, expect={CURSOR: HOUR + 20_000}
    ).written


def between_write_and_commit(
    store: SlotStore, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]
) -> None:
    """Lets another do something after the store's next append has written its files, and before it commits them."""
    commit = Transaction.commit_append

    def late(*args: Any, **more: Any) -> int:
        monkeypatch.undo()
        act()
        return commit(*args, **more)

    monkeypatch.setattr(Transaction, "commit_append", late)


def test_a_cursor_that_moves_between_write_and_commit_is_noticed_by_the_commit(
    spark: SparkSession, store: SlotStore, frame: Callable[..., DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = SlotStore.open(spark, store.path, LAYOUT, create=False)
    store.append(None, app_id="cascade", batch_id=0, cursor_ms=HOUR)
    between_write_and_commit(
        store, monkeypatch, lambda: other.append(None, app_id="cascade", batch_id=1, cursor_ms=HOUR + 20_000)
    )

    with pytest.raises(StoreMovedError):
        store.append(frame(row(2, 180, "a")), app_id="intake", batch_id=0, expect={CURSOR: HOUR})

    assert store.rows().count() == 0
    assert store.head().batches == {"cascade": 1}


def test_a_clock_that_rises_meanwhile_stays_and_the_rows_are_written_once(
    spark: SparkSession, store: SlotStore, frame: Callable[..., DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = SlotStore.open(spark, store.path, LAYOUT, create=False)
    between_write_and_commit(
        store,
        monkeypatch,
        lambda: other.append(frame(row(2, 1, "b")), app_id="b", batch_id=0, clock_ms=9_000),
    )

    told = store.append(frame(row(2, 1, "a")), app_id="a", batch_id=0, clock_ms=7_000)

    assert (told.written, told.clock_ms) == (True, 9_000)
    assert store.head() == Head(2, None, 9_000, {"a": 0, "b": 0}, clock_before_ms=9_000)
    assert ids(store.rows()) == ["a", "b"]


def test_a_batch_that_another_process_has_written_meanwhile_is_not_written_again(
    spark: SparkSession, store: SlotStore, frame: Callable[..., DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = SlotStore.open(spark, store.path, LAYOUT, create=False)
    rows = frame(row(2, 1, "a"))
    between_write_and_commit(store, monkeypatch, lambda: other.append(rows, app_id="intake", batch_id=0))

    assert not store.append(rows, app_id="intake", batch_id=0).written
    assert ids(store.rows()) == ["a"]


def test_a_frame_with_other_columns_and_an_app_id_of_the_store_s_own_are_refused(
    spark: SparkSession, store: SlotStore, frame: Callable[..., DataFrame]
) -> None:
    rows = frame(row(2, 1, "a"))
    for wrong in (rows.drop("key"), rows.withColumn("more", F.lit(1)), rows.withColumn("seq", F.lit("1"))):
        with pytest.raises(StoreError, match="not rows of the slot store"):
            store.append(wrong, app_id="intake", batch_id=0)
    with pytest.raises(StoreError, match="the app id is reserved"):
        store.append(rows, app_id="cursor", batch_id=0)
    assert store.head().version == 0


# --- partitions and drop --------------------------------------------------------------------------


def test_partitions_are_counted_from_the_log(store: SlotStore, frame: Callable[..., DataFrame]) -> None:
    store.append(
        frame(row(0, 180, "a"), row(2, 190, "b"), row(2, 190, "c"), row(2, -3, "d")), app_id="i", batch_id=0
    )
    store.append(frame(row(2, 190, "e"), row(3, 10, "f")), app_id="i", batch_id=1)

    found = store.partitions()

    assert [(p.level, p.slot, p.files, p.rows) for p in found] == [
        (0, 180, 1, 1),
        (2, -3, 1, 1),
        (2, 190, 2, 3),
        (3, 10, 1, 1),
    ]
    for p in found:
        files = Path(store.path).glob(f"rows-*/level={p.level}/slot={p.slot}/*.parquet")
        assert p.bytes == sum(file.stat().st_size for file in files)


def test_partitions_follow_what_others_append_drop_and_compact(
    spark: SparkSession, store: SlotStore, frame: Callable[..., DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = SlotStore.open(spark, store.path, LAYOUT, create=False)
    store.append(frame(row(2, 190, "a"), row(2, 191, "b")), app_id="i", batch_id=0)
    assert [(p.slot, p.files, p.rows) for p in store.partitions()] == [(190, 1, 1), (191, 1, 1)]
    # From here on the commits alone are read.
    monkeypatch.setattr(store.live_files, "read_all", lambda: pytest.fail("read in full again"))

    other.append(frame(row(2, 191, "c"), row(3, 10, "d")), app_id="i", batch_id=1)
    other.drop([(2, 190)])
    assert [(p.slot, p.files, p.rows) for p in store.partitions()] == [(191, 2, 2), (10, 1, 1)]

    spark.sql(f"OPTIMIZE delta.`{store.path}`")
    assert [(p.slot, p.files, p.rows) for p in store.partitions()] == [(191, 1, 2), (10, 1, 1)]
    store.drop([(2, 191)])
    assert ids(store.rows()) == ["d"]
    assert [(p.slot, p.files, p.rows) for p in store.partitions()] == [(10, 1, 1)]


def test_partitions_are_read_in_full_again_where_the_log_has_been_cleaned_up(
    spark: SparkSession, store: SlotStore, frame: Callable[..., DataFrame]
) -> None:
    assert store.partitions() == []
    for number, name in enumerate("abc"):
        store.append(frame(row(2, 190, name)), app_id="i", batch_id=number)
    log_checkpoints.write_checkpoint(store.path, keeps_log=True)
    for version in range(3):
        Path(store.path, "_delta_log", f"{version:020}.json").unlink()

    assert [(p.slot, p.files, p.rows) for p in store.partitions()] == [(190, 3, 3)]


def test_a_store_is_the_same_to_a_reader_that_begins_at_a_checkpoint_of_its_log(
    spark: SparkSession,
    store: SlotStore,
    tmp_path: Path,
    frame: Callable[..., DataFrame],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_checkpoints, "EVERY", 3)
    store.append(frame(row(2, 190, "a"), row(2, -3, "b")), app_id="i", batch_id=7, cursor_ms=HOUR, clock_ms=5)
    store.append(frame(row(0, 180, "c"), row(2, -3, "d")), app_id="i", batch_id=8)
    store.drop([(2, 190)])
    log_checkpoints.finish()
    store.append(frame(row(3, 10, "e")), app_id="j", batch_id=0)
    partitions, head = store.partitions(), store.head()
    moved = Path(store.path).rename(tmp_path / "moved")
    for file in (f"{version:020}.json" for version in range(4)):
        (moved / "_delta_log" / file).unlink()

    again = SlotStore.open(spark, str(moved), LAYOUT, create=False)

    assert (again.partitions(), again.head()) == (partitions, head)
    assert ids(again.rows()) == ["b", "c", "d", "e"]
    again.append(frame(row(0, 180, "twice")), app_id="i", batch_id=8)
    assert again.head() == head


def test_a_drop_removes_whole_partitions_by_one_commit_of_metadata_and_no_others(
    store: SlotStore, frame: Callable[..., DataFrame]
) -> None:
    store.append(
        frame(row(0, 190, "a"), row(2, 190, "b"), row(2, 191, "c"), row(3, 190, "d"), row(2, -3, "e")),
        app_id="i",
        batch_id=0,
    )
    store.append(frame(row(2, 190, "f")), app_id="i", batch_id=1, cursor_ms=HOUR, clock_ms=1)

    store.drop([(2, 190), (2, -3), (2, 77)])

    assert ids(store.rows()) == ["a", "c", "d"]
    assert ids(store.rows(version=2)) == ["a", "b", "c", "d", "e", "f"]
    kinds = [kind for action in commits(store)[-1] for kind in action]
    assert sorted(kinds) == ["commitInfo", "remove", "remove", "remove", "txn"], "no data file is written"
    counts = commits(store)[-1][0]["commitInfo"]["operationMetrics"]
    assert (counts["numRemovedFiles"], counts["numDeletedRows"]) == ("3", "3")
    assert store.head() == Head(3, HOUR, 1, {"i": 1})

    store.drop([(2, 190), (2, -3), (2, 77)])
    store.drop([])
    assert store.head().version == 3, "what is gone is not dropped again"


def test_what_was_dropped_is_deleted_when_it_has_been_kept_for_as_long_as_the_store_says(
    spark: SparkSession, tmp_path: Path, frame: Callable[..., DataFrame]
) -> None:
    store = SlotStore.open(spark, str(tmp_path / "kept"), LAYOUT, create=True, keep_ms=7_200_000)
    store.append(frame(row(2, 190, "a"), row(2, 191, "b")), app_id="i", batch_id=0)
    store.drop([(2, 190)])

    store.vacuum()
    assert ids(store.rows(version=1)) == ["a", "b"], "two hours are not over"

    properties = "('delta.deletedFileRetentionDuration' = 'interval 0 seconds')"
    spark.sql(f"ALTER TABLE delta.`{store.path}` SET TBLPROPERTIES {properties}")
    store.vacuum()
    assert ids(store.rows()) == ["b"]
    assert [file.parent.name for file in Path(store.path).rglob("*.parquet")] == ["slot=191"]


def test_of_two_drops_at_a_time_both_end_with_the_partitions_gone(
    spark: SparkSession, store: SlotStore, frame: Callable[..., DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(frame(row(2, 190, "a"), row(2, 191, "b"), row(2, 192, "c")), app_id="i", batch_id=0)
    other = SlotStore.open(spark, store.path, LAYOUT, create=False)
    current = store.live_files.current

    def late() -> Any:
        monkeypatch.undo()
        found = dict(current())
        other.drop([(2, 190)])
        return found

    monkeypatch.setattr(store.live_files, "current", late)
    store.drop([(2, 190), (2, 191)])

    assert ids(store.rows()) == ["c"]


def test_what_came_after_the_version_that_was_read_is_not_dropped(
    spark: SparkSession, store: SlotStore, frame: Callable[..., DataFrame]
) -> None:
    store.append(frame(row(2, 190, "read")), app_id="i", batch_id=0)
    read_version = store.head().version
    store.append(frame(row(2, 190, "late"), row(2, 191, "other")), app_id="i", batch_id=1)

    store.drop([(2, 190)], read_version=read_version)
    assert ids(store.rows()) == ["late", "other"]

    store.drop([(2, 190)], read_version=store.head().version)
    assert ids(store.rows()) == ["other"]


def test_a_compaction_is_dropped_with_its_partition_unless_it_holds_what_came_late(
    spark: SparkSession, store: SlotStore, frame: Callable[..., DataFrame]
) -> None:
    for number, name in enumerate("ab"):
        store.append(frame(row(2, 190, name), row(2, 191, name)), app_id="i", batch_id=number)
    read_version = store.head().version
    spark.sql(f"OPTIMIZE delta.`{store.path}` WHERE slot = 190")
    store.drop([(2, 190)], read_version=read_version)
    assert [(p.level, p.slot) for p in store.partitions()] == [(2, 191)]

    store.append(frame(row(2, 191, "late")), app_id="i", batch_id=2)
    spark.sql(f"OPTIMIZE delta.`{store.path}`")
    with pytest.raises(StoreError, match="compaction"):
        store.drop([(2, 191)], read_version=read_version)
    assert ids(store.rows()) == ["a", "b", "late"]


# --- the near stream ------------------------------------------------------------------------------


@pytest.mark.sentinel
def test_the_stream_sees_near_rows_once_and_neither_drops_nor_compactions_disturb_it(
    spark: SparkSession, store: SlotStore, frame: Callable[..., DataFrame], tmp_path: Path
) -> None:
    def run() -> list[str]:
        """Continues the stream to the end of what is there now; all that it has ever given."""
        query = (
            store.near_stream()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "heard"))
        )
        query.awaitTermination()
        return ids(spark.read.schema("schedule_id string").parquet(str(tmp_path / "heard")))

    store.append(frame(row(0, 179, "a"), row(2, 190, "far")), app_id="i", batch_id=0)
    store.append(frame(row(0, 179, "b")), app_id="i", batch_id=1)
    assert run() == ["a", "b"]

    spark.sql(f"OPTIMIZE delta.`{store.path}`")
    store.append(
        frame(row(0, 190, "c"), row(3, 10, "also far")), app_id="cascade", batch_id=0, cursor_ms=HOUR
    )
    store.drop([(2, 190), (0, 179)])
    assert run() == ["a", "b", "c"]

    store.append(frame(row(0, 190, "d")), app_id="i", batch_id=2)
    spark.sql(f"OPTIMIZE delta.`{store.path}`")
    assert run() == ["a", "b", "c", "d"]


def test_a_new_store_is_streamed_from_its_log_and_a_first_batch_that_was_cut_off_is_read_the_same(
    store: SlotStore, frame: Callable[..., DataFrame], tmp_path: Path
) -> None:
    heard: list[tuple[int, list[str]]] = []

    def run(near: DataFrame, *, cut_off: bool = False) -> dict[str, Any]:
        def hear(rows: DataFrame, batch_id: int) -> None:
            heard.append((batch_id, ids(rows)))
            if cut_off:
                raise OSError("cut off")

        writer = near.writeStream.foreachBatch(hear).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        if cut_off:
            with pytest.raises(StreamingQueryException, match="cut off"):
                query.awaitTermination()
        else:
            query.awaitTermination()
        return json.loads(query.lastProgress["sources"][0]["endOffset"]) if query.lastProgress else {}

    store.append(None, app_id="cascade", batch_id=0, cursor_ms=HOUR)
    of_a_new_store = store.near_stream()
    store.append(frame(row(0, 179, "a"), row(2, 190, "far")), app_id="i", batch_id=0)
    store.append(frame(row(0, 179, "b")), app_id="i", batch_id=1)
    run(of_a_new_store, cut_off=True)
    # As a new start does it: the store has rows now.
    run(store.near_stream())
    store.append(frame(row(0, 190, "c")), app_id="i", batch_id=2)
    end = run(store.near_stream())

    assert heard == [(0, ["a", "b"]), (0, ["a", "b"]), (1, ["c"])]
    assert (end["reservoirVersion"], end["isStartingVersion"]) == (5, False)


def test_a_stream_of_a_store_with_rows_begins_with_those_that_are_there(
    store: SlotStore, frame: Callable[..., DataFrame]
) -> None:
    store.append(frame(row(0, 179, "old")), app_id="i", batch_id=0)
    store.drop([(0, 179)])
    store.append(frame(row(0, 190, "a")), app_id="i", batch_id=1)

    query = (
        store.near_stream().writeStream.format("memory").queryName("begun").trigger(availableNow=True).start()
    )
    query.awaitTermination()

    assert ids(store.spark.table("begun")) == ["a"]


def test_the_ddl_says_the_schema() -> None:
    assert STORE_DDL.startswith(
        "level int NOT NULL, slot bigint NOT NULL, act tinyint NOT NULL, schedule_id string, "
    )
