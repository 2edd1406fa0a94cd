"""The function Spark calls for each shard, with a group state made by hand: no JVM, no Spark query."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from wheel_udf.common.errors import ConfigError, GeometryChangedError
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.tick import Tick
from wheel_udf.policies.punctual import NOTED_PROPERTY, Punctual
from wheel_udf.policies.sender_news import Confirmed, SenderNews
from wheel_udf.shard.arrow_text import table_to_text
from wheel_udf.shard.formats import FORMAT_VERSION
from wheel_udf.shard.rows import ACTED
from wheel_udf.shard.state import STATE_COLUMNS
from wheel_udf.stream import wheel_worker
from wheel_udf.stream.sharding import shard_keys
from wheel_udf.stream.status_row import WheelStatus
from wheel_udf.stream.wheel_worker import WheelWorker, command_bits
from wheel_udf.stream.worker import NO_LONG
from wheel_udf.wheel.acted import ACT_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator

WHEEL = Wheel(tick_ms=1_000, size=20, levels=3)
T0 = 1_700_000_000_000


class Group:
    """Stands in for Spark's GroupState: one row of state, a watermark, a batch time; counts the writes."""

    def __init__(self) -> None:
        self.row: tuple[Any, ...] | None = None
        self.writes = 0
        self.watermark_ms = 0
        self.processing_ms = 0

    @property
    def exists(self) -> bool:
        return self.row is not None

    @property
    def get(self) -> tuple[Any, ...]:
        assert self.row is not None
        return self.row

    def update(self, row: tuple[Any, ...]) -> None:
        self.row, self.writes = row, self.writes + 1

    def getCurrentWatermarkMs(self) -> int:  # noqa: N802  # Spark's name
        return self.watermark_ms

    def getCurrentProcessingTimeMs(self) -> int:  # noqa: N802  # Spark's name
        return self.processing_ms


def step(clock_kind: str = "processing", **settings: Any) -> WheelWorker:
    fixed = {
        "wheel": WHEEL,
        "shards": 1,
        "keys": shard_keys(1),
        "first_ms": 0,
        "delay_ms": 0,
        "memory_ms": 300_000,
    }
    return WheelWorker(
        clock_kind=clock_kind, board_folder=None, stores=(), **{"limit": None, **fixed, **settings}
    )


def command(schedule_id: str, deliver_at_ms: int, **others: Any) -> dict[str, Any]:
    row = dict.fromkeys(("destination", "key", "value", "headers", "source", "reject", "tick"))
    bits = command_bits(
        others.pop("op", 0), others.pop("seq_given", 1), others.pop("act", 0), others.pop("amend", 0)
    )
    row |= {"command_bits": bits, "seq": 1, "max_lateness_ms": NO_LONG}
    return row | {"schedule_id": schedule_id, "deliver_at_ms": deliver_at_ms, "destination": "out"} | others


def tick(instant_ms: int | None = None) -> dict[str, Any]:
    return command(None, NO_LONG, destination=None, seq=0, tick=Tick("run-1", instant_ms).to_text())  # type: ignore[arg-type]


def frames(rows: list[dict[str, Any]], chunks: int = 1) -> Iterator[pd.DataFrame]:
    frame = pd.DataFrame(rows).astype({"command_bits": np.int32, "seq": np.int64, "deliver_at_ms": np.int64})
    return iter([frame.iloc[part] for part in np.array_split(np.arange(len(rows)), chunks)])


def run(what: WheelWorker, group: Group, *rows: dict[str, Any], chunks: int = 1) -> pd.DataFrame:
    return pd.concat(list(what((what.keys[0],), frames(list(rows), chunks), group)))


def of_kind(out: pd.DataFrame, kind: str, *columns: str) -> list[tuple[Any, ...]]:
    rows = out.loc[out["kind"] == kind, list(columns)].itertuples(index=False)
    return [tuple(None if value is pd.NA else value for value in row) for row in rows]


def status_of(out: pd.DataFrame) -> dict[str, Any]:
    (text,) = out.loc[out["kind"] == "status", "detail"]
    status: dict[str, Any] = json.loads(text)
    return status


def test_an_entry_waits_until_it_is_due_and_fires_once() -> None:
    group, what = Group(), step()
    group.processing_ms = T0
    assert of_kind(run(what, group, command("a", T0 + 5_000)), "fired", "schedule_id") == []
    group.processing_ms = T0 + 4_999
    assert of_kind(run(what, group, tick()), "fired", "schedule_id") == []
    group.processing_ms = T0 + 5_001
    out = run(what, group, tick())
    assert of_kind(out, "fired", "schedule_id", "deliver_at_ms", "fired_at_ms") == [
        ("a", T0 + 5_000, T0 + 5_001)
    ]
    assert of_kind(run(what, group, tick()), "fired", "schedule_id") == []


def test_an_idle_tick_writes_no_state() -> None:
    group, what = Group(), step()
    run(what, group, command("a", T0))
    writes = group.writes
    group.processing_ms = 1_000
    status = status_of(run(what, group, tick()))
    assert group.writes == writes
    assert (status["pending"], status["next_due_ms"], status["clock_ms"], status["run"]) == (
        1,
        T0,
        1_000,
        "run-1",
    )


def test_a_rejected_row_passes_through_with_its_reason_and_is_counted() -> None:
    group, what = Group(), step()
    bad = command("a", NO_LONG, reject="no due time", value=b"v")
    bad_cancel = command("a", NO_LONG, op=1, reject="bad seq")
    out = run(what, group, bad, bad_cancel, command("b", T0))
    assert of_kind(out, "rejected", "schedule_id", "detail", "value", "deliver_at_ms") == [
        ("a", "no due time", b"v", NO_LONG),
        ("a", "bad seq", None, NO_LONG),
    ]
    status = status_of(out)
    assert (status["received"], status["pending"], status["rejected"], status["cancel_rejected"]) == (
        3,
        1,
        1,
        1,
    )


def test_a_seq_beyond_2_to_the_53_keeps_all_its_bits() -> None:
    group, what = Group(), step()
    group.processing_ms = T0
    out = run(what, group, command("a", T0, seq=2**63 - 1), tick(), chunks=2)
    assert of_kind(out, "fired", "schedule_id", "seq") == [("a", 2**63 - 1)]


def test_the_limit_of_a_batch_is_shared_by_the_shards_at_least_one_each() -> None:
    shares = [
        step(shards=4, limit=limit).share_of_limit(shard, None) for limit in (2, 10) for shard in range(4)
    ]
    assert shares == [1, 1, 1, 1, 3, 3, 2, 2]


def test_a_share_that_the_clock_brings_counts_in_its_batch_only() -> None:
    group, what = Group(), step(shards=4, keys=shard_keys(4), limit=4)
    run(what, group, *(command(f"id{number}", T0) for number in range(9)))
    group.processing_ms = T0
    shared = tick() | {"tick": Tick("run-1", share=5).to_text()}
    released = [status_of(run(what, group, row))["fired_now"] for row in (tick(), shared, tick())]
    assert released == [1, 5, 1]


def test_the_event_clock_is_the_watermark_and_tells_the_next_one() -> None:
    group, what = Group(), step("event", delay_ms=10)
    group.watermark_ms = T0
    row = command("a", T0 + 500) | {"event_at": pd.Timestamp(T0 + 700, unit="ms", tz="UTC")}
    status = status_of(run(what, group, row))
    assert (status["clock_ms"], status["watermark_ms"]) == (T0, T0 + 690)


def test_until_moves_the_clock_on_and_never_back() -> None:
    group, what = Group(), step("event")
    group.watermark_ms = T0
    assert of_kind(run(what, group, command("a", T0 + 500)), "fired", "schedule_id") == []
    assert of_kind(run(what, group, tick(T0 + 500)), "fired", "fired_at_ms") == [(T0 + 500,)]
    assert status_of(run(what, group, tick(T0 + 100)))["clock_ms"] == T0 + 500


def test_a_missed_row_says_what_its_bound_was() -> None:
    group, what = Group(), step()
    group.processing_ms = T0 + 100
    out = run(what, group, command("a", T0, max_lateness_ms=99), command("b", T0, max_lateness_ms=100))
    assert of_kind(out, "fired", "schedule_id") == [("b",)]
    assert of_kind(out, "missed", "schedule_id", "fired_at_ms", "detail") == [("a", T0 + 100, "99")]


def offset(schedule_id: str, source: str, seq: int, **others: Any) -> dict[str, Any]:
    """A command of Kafka's whose version is its offset."""
    return command(schedule_id, T0 + 5_000, source=source, seq=seq, **{"seq_given": False} | others)


def test_an_entry_brings_its_coordinates_out_again() -> None:
    group, what = Group(), step()
    group.processing_ms = T0 + 9_000
    out = run(what, group, offset("a", "orders/3/41", 41))
    assert of_kind(out, "fired", "schedule_id", "source") == [("a", "orders/3/41")]


@pytest.mark.parametrize(
    ("before", "now", "spread"),
    [
        ([], [("a", "t/0/1", 1), ("a", "t/0/2", 2), ("b", "t/1/2", 2)], 0),
        ([], [("a", "t/0/1", 1), ("a", "t/1/2", 2), ("a", "t/0/3", 3), ("b", "t/1/9", 9)], 1),
        ([("a", "t/0/1", 1), ("b", "t/0/2", 2)], [("a", "t/1/1", 1), ("b", "t/0/7", 7)], 1),
        ([("a", "t/0/7", 7)], [("a", "u/0/9", 9)], 1),
        ([("a", "t/1/7", 7)], [("a", "t/11/9", 9)], 1),
    ],
    ids=["one partition each", "within a batch", "against what is pending", "two topics", "1 and 11"],
)
def test_ids_whose_versions_are_offsets_of_several_partitions_are_counted(
    before: list[tuple[str, str, int]], now: list[tuple[str, str, int]], spread: int
) -> None:
    group, what = Group(), step()
    group.processing_ms = T0
    run(what, group, *(offset(*each) for each in before), tick())
    assert status_of(run(what, group, *(offset(*each) for each in now)))["spread_now"] == spread


def test_an_id_with_versions_of_its_own_may_come_over_any_partition() -> None:
    group, what = Group(), step()
    group.processing_ms = T0
    rows = [offset("a", f"t/{n}/5", n, seq_given=True) for n in range(3)]
    assert status_of(run(what, group, *rows))["spread_now"] == 0


def test_commands_without_a_seq_that_have_one_version_and_differ_are_counted_as_ambiguous() -> None:
    group, what = Group(), step()
    group.processing_ms = T0
    rows = [command("a", T0 + due_ms, seq=7, seq_given=False) for due_ms in (10, 20)]
    assert status_of(run(what, group, *rows))["ambiguous_now"] == 1


def test_the_status_tells_the_largest_entry_of_each_destination() -> None:
    group, what = Group(), step()
    group.processing_ms = T0 + 9_000
    rows = [command("a", T0, value=b"12345"), command("bb", T0, key=b"123", headers="[]")]
    out = run(what, group, *rows, command("c", T0, destination="other"))
    assert status_of(out)["largest"] == {"out": 7, "other": 1}


def test_state_of_another_geometry_is_refused_with_both_values() -> None:
    group = Group()
    run(step(), group, command("a", T0))
    other = step(wheel=Wheel(tick_ms=10, size=20, levels=3))
    with pytest.raises(GeometryChangedError, match=r"tick_ms=1000.*tick_ms=10,"):
        run(other, group, tick())


def test_what_a_level_has_added_comes_out_beside_the_instant_of_the_wheel() -> None:
    group, what = Group(), step()
    group.processing_ms = T0
    rounded = {"delay_level_ms": 30_000, "level_error_ms": 13_000}
    none = {"delay_level_ms": NO_LONG, "level_error_ms": NO_LONG}
    run(what, group, command("a", T0 + 30_000, **rounded), command("c", T0 + 30_000, **none))
    group.processing_ms = T0 + 30_001
    out = run(what, group, tick() | none)
    columns = ("schedule_id", "deliver_at_ms", "level_error_ms")
    assert of_kind(out, "fired", *columns) == [("a", T0 + 30_000, 13_000), ("c", T0 + 30_000, NO_LONG)]
    assert json.loads(status_of(out)["lateness"])["max"] == 1


def test_levels_and_destinations_are_sampled_once_a_minute_and_when_nothing_is_left() -> None:
    group, what = Group(), step()
    start_ms = T0 + 50 * 86_400_000  # no other test has sampled at about this time

    def sampled(at_ms: int, *rows: dict[str, Any]) -> tuple[object, object]:
        group.processing_ms = start_ms + at_ms
        status = status_of(run(what, group, *(rows or [tick()])))
        return status["levels"], status["by_destination"]

    rows = [
        command("a", start_ms + 30_000, delay_level_ms=30_000),
        command("b", start_ms + 90_000, delay_level_ms=30_000, destination="other"),
        command("c", start_ms + 30_000, delay_level_ms=NO_LONG),
    ]
    assert sampled(0, *rows) == ({"30s": 2}, {"out": 2, "other": 1})
    assert sampled(30_000) == (None, None)
    assert sampled(60_000) == ({"30s": 1}, {"other": 1})
    assert sampled(90_000) == ({}, {})


def test_state_of_another_format_version_is_refused_with_both_values() -> None:
    group = Group()
    run(step(), group, command("a", T0))
    assert group.row is not None
    group.row = (99, *group.row[1:])
    with pytest.raises(GeometryChangedError, match=rf"format version.*99.*{FORMAT_VERSION}"):
        run(step(), group, tick())


def test_an_instant_in_the_clock_row_and_a_reject_make_a_shard_write_its_clock_and_a_plain_tick_does_not() -> (
    None
):
    # So after a step back each shard stands where the latest batch stood, however many shards there are.
    clock, group, what = list(STATE_COLUMNS).index("clock_ms"), Group(), step()
    group.processing_ms = T0
    run(what, group, tick())
    assert not group.exists
    run(what, group, tick(T0 + 50))
    assert group.get[clock] == T0 + 50
    run(what, group, tick(T0 + 40))
    assert group.get[clock] == T0 + 50
    group.processing_ms = T0 + 90
    run(what, group, command("bad", NO_LONG, reject="{}"))
    assert group.get[clock] == T0 + 90


def test_a_batch_of_acts_alone_that_come_too_late_wrote_the_state_without_its_clock() -> None:
    # Unlike one of commands, or of rejects, alone; after a step back its shard stood before the others.
    act = {
        "schedule_id": "gone",
        "seq": 1,
        "amend": 1,
        "deliver_at_ms": T0 + 9_000,
        "destination": "out",
        "op": 0,
    }
    text = table_to_text(pa.Table.from_pylist([act], schema=ACT_SCHEMA))
    written = []
    for row in (
        tick() | {"tick": Tick("run-1", acts=(text,)).to_text()},
        command("bad", NO_LONG, reject="{}"),
        command("c", 0, op=1),
    ):
        group, what = Group(), step()
        run(what, group, tick(T0))
        group.processing_ms = T0 + 90
        run(what, group, row)
        written.append(group.get[list(STATE_COLUMNS).index("clock_ms")])
    assert written == [T0 + 90] * 3


def test_an_act_on_a_series_from_the_store_takes_the_payload_from_the_state_or_comes_too_late() -> None:
    rule = json.dumps({"repeat": "every 1 minute", "time_zone": "UTC"})
    what, group = step("store", stored=True), Group()
    blank = dict.fromkeys(("anchor_ms", "last_ms", "spread_ms", "occurrence"), NO_LONG) | {"repeat": None}
    begins = blank | {"repeat": rule, "anchor_ms": T0, "last_ms": T0, "spread_ms": 0}
    run(what, group, tick(T0) | blank, command("a", NO_LONG, value=b"v", destination="out") | begins)

    def act(occurrence: int, amend: int) -> dict[str, Any]:
        bits = int(command_bits(op=0, seq_given=1, act=ACTED, amend=amend))
        changed = blank | {"repeat": rule, "occurrence": occurrence, "command_bits": bits}
        return command("a", T0 + 60_000, destination="elsewhere", value=None) | changed

    out = run(what, group, tick(T0 + 60_000) | blank, act(occurrence=0, amend=1))
    assert of_kind(out, "fired", "destination", "value", "deliver_at_ms") == [
        ("elsewhere", b"v", T0 + 60_000)
    ]
    assert status_of(out)["received"] == 1
    out = run(what, group, tick(T0 + 120_000) | blank, act(occurrence=0, amend=2))
    assert of_kind(out, "fired", "destination") == [("elsewhere",)]
    status = status_of(out)
    assert (status["received"], status["pending"], status["superseded"]) == (1, 1, 2)


# ---- a sender ------------------------------------------------------------------------------------


def punctual(**settings: Any) -> WheelWorker:
    return step(punctual=Punctual(**{"ahead_ms": 4_000, **settings}))


def news_tick(*confirmed: Confirmed, ahead_ms: int = 4_000, rows: int = 100) -> dict[str, Any]:
    news = SenderNews(ahead_ms, rows, 10**8, confirmed)
    return tick() | {"tick": Tick("run-1", sender=news).to_text()}


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The number of the batch, which Spark tells its tasks."""
    batch = {"id": 7}
    monkeypatch.setattr(wheel_worker, "batch_of_task", lambda: (batch["id"], "query"))
    return batch


def test_rows_within_reach_of_the_sender_leave_ahead_and_are_told_by_destination(
    batches: dict[str, int],
) -> None:
    group, what = Group(), punctual()
    group.processing_ms = T0
    out = run(what, group, command("a", T0 + 3_000), command("b", T0), command("c", T0 + 9_000))
    assert of_kind(out, "ahead", "schedule_id", "deliver_at_ms", "fired_at_ms") == [
        ("a", T0 + 3_000, T0 + 3_000)
    ]
    assert of_kind(out, "fired", "schedule_id") == [("b",)]
    status = status_of(out)
    assert (status["pending"], status["in_flight"], status["handed"]) == (2, 1, {"out": 1})
    assert (status["next_due_ms"], status["beyond_ms"], status["complete_ms"]) == (
        T0 + 9_000,
        T0 + 9_000,
        T0 + 3_000,
    )


def test_the_news_of_a_tick_confirm_and_set_how_far_ahead_and_how_many(batches: dict[str, int]) -> None:
    group, what = Group(), punctual()
    group.processing_ms = T0
    run(what, group, command("a", T0 + 3_000), command("b", T0 + 9_000), command("c", T0 + 9_500))
    batches["id"] = 8
    group.processing_ms = T0 + 4_000
    out = run(what, group, news_tick(Confirmed(7, 7, T0 + 3_000), ahead_ms=6_000, rows=1))
    assert of_kind(out, "ahead", "schedule_id") == [("b",)]
    status = status_of(out)
    assert (status["fired"], status["confirmed_now"], status["fired_now"]) == (1, 1, 0)
    assert (status["pending"], status["in_flight"]) == (2, 1)


def test_without_news_the_shard_counts_the_room_itself(batches: dict[str, int]) -> None:
    group, what = Group(), punctual(rows=2)
    group.processing_ms = T0
    rows = [command(name, T0 + due) for name, due in (("a", 1_000), ("b", 2_000), ("c", 3_000))]
    assert of_kind(run(what, group, *rows), "ahead", "schedule_id") == [("a",), ("b",)]
    assert of_kind(run(what, group, command("d", T0 + 500)), "ahead", "schedule_id") == []


def test_batches_without_news_hand_over_no_more_bytes_than_the_sender_takes(batches: dict[str, int]) -> None:
    # Each batch took the whole room anew: a steady input of large rows filled the driver's memory.
    group, what = Group(), punctual(bytes=2_097_152)
    group.processing_ms = T0
    large = {"value": b"x" * 400_000}
    handed = [
        of_kind(run(what, group, command(name, T0 + 1_000, **large)), "ahead", "schedule_id")
        for name in "abcdefg"
    ]
    assert handed == [[("a",)], [("b",)], [("c",)], [("d",)], [("e",)], [], []]


def test_only_the_destinations_of_the_sender_are_served_by_it(batches: dict[str, int]) -> None:
    served = {"destinations": ("orders_*",), "among": ("orders_x", "orders_*", "tables")}
    group, what = Group(), punctual(**served)
    group.processing_ms = T0
    names = {"a": "orders_1", "b": "orders_x", "c": "tables"}
    out = run(what, group, *(command(each, T0 + 1_000, destination=names[each]) for each in names))
    assert of_kind(out, "ahead", "schedule_id") == [("a",)]


def test_turned_off_what_an_earlier_sender_had_noted_was_released_again(
    batches: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    group, on, off = Group(), punctual(), step()
    group.processing_ms = T0
    run(on, group, *(command(name, T0 + due) for name, due in (("a", 1_000), ("b", 2_000), ("c", 3_000))))
    news = SenderNews(0, 0, 0, (Confirmed(7, 7, T0 + 1_500), Confirmed(8, 7, -1)))
    monkeypatch.setattr(wheel_worker, "property_of_task", {NOTED_PROPERTY: json.dumps(news.to_json())}.get)
    batches["id"], group.processing_ms = 8, T0 + 2_500
    out = run(off, group, tick())
    assert of_kind(out, "fired", "schedule_id") == [("b",)]
    status = status_of(out)
    assert (status["fired"], status["pending"], status["next_due_ms"]) == (2, 1, T0 + 3_000)
    group.processing_ms = T0 + 3_000
    assert of_kind(run(off, group, tick()), "fired", "schedule_id") == [("c",)]


def test_what_a_shard_hands_over_counts_as_released_when_the_limit_is_divided(
    batches: dict[str, int],
) -> None:
    # It did not: beside a shard that is behind, one that handed much over had the smallest share, and delivered the
    # rest late.
    group, what = Group(), punctual()
    group.processing_ms = T0
    rows = [command("fires", T0), *(command(name, T0 + 1_000) for name in "abc")]
    status = WheelStatus.from_json(json.dumps(status_of(run(what, group, *rows))))
    assert status.report().released == 4


@pytest.mark.parametrize("setting", [{"ahead_ms": 99}, {"ahead_ms": 600_001}, {"rows": -1}, {"bytes": 1}])
def test_settings_of_punctual_delivery_have_bounds(setting: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"a setting of punctual delivery is out of range: punctual\."):
        Punctual(**setting)  # type: ignore[arg-type]


def test_rows_that_were_read_without_their_instant_were_released_by_the_clock_before_it() -> None:
    # In a tiered backfill a commit may come between the two questions of Spark, what the clock is and what the store
    # has. Then `fired_at`, and whether a row was missed, depended on milliseconds.
    group, what = Group(), step("store", waits_for_clock=True)
    run(what, group, tick(1_000), command("far", 10**9))
    late, later = command("late", 700), command("later", 1_500, max_lateness_ms=600)
    out = run(what, group, late, later, command("cancelled", 900))
    assert of_kind(out, "fired", "schedule_id") == []
    status = status_of(out)
    assert (status["clock_ms"], status["next_due_ms"], status["pending"], status["fired_now"]) == (
        1_000,
        700,
        4,
        0,
    )
    out = run(what, group, tick(2_000), command("cancelled", NO_LONG, op=1))
    assert of_kind(out, "fired", "schedule_id", "fired_at_ms") == [("late", 2_000), ("later", 2_000)]


def test_without_that_rule_rows_of_a_store_are_released_by_the_standing_clock() -> None:
    group, what = Group(), step("store")
    run(what, group, tick(1_000), command("far", 10**9))
    assert of_kind(run(what, group, command("late", 700)), "fired", "fired_at_ms") == [(1_000,)]
