"""What-if replay: the same commands under several plans, in figures of the real step."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from wheel_udf.common.errors import ConfigError, ContractError
from wheel_udf.common.geometry import Wheel
from wheel_udf.replay.plans import Plan
from wheel_udf.replay.run import replay

WHEEL = Wheel(tick_ms=1_000, size=20, levels=4)
COLUMNS = pa.schema(
    [
        ("schedule_id", pa.string()),
        ("seq", pa.int64()),
        ("op", pa.int8()),
        ("deliver_at_ms", pa.int64()),
        ("event_time_ms", pa.int64()),
    ]
)


def table(*rows: tuple[str, int, int, int | None, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(COLUMNS.names, row, strict=True)) for row in rows], schema=COLUMNS)


def plan(**settings: Any) -> Plan:
    return Plan(**{"wheel": WHEEL, "shards": 2, **settings})


def figures(commands: pa.Table, *plans: Plan) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = replay(commands, plans).to_dict("records")
    return found


def test_an_entry_fires_at_the_first_trigger_after_its_due_time_and_empty_triggers_are_no_batches() -> None:
    commands = table(("a", 1, 0, 10_300, 200), ("b", 1, 0, 5_000, 200), ("c", 1, 0, 900_000, 800))
    (found,) = figures(commands, plan())
    # Batches at 1, 5, 11 and 900 s; a was 700 ms late, b and c on time.
    assert (found["fired"], found["batches"], found["lateness_max_ms"]) == (3, 4, 700)
    assert (found["lateness_p50_ms"], found["peak_pending"]) == (0, 3)
    assert (found["hand_overs"], found["far_files"]) == (0, 0)


@pytest.mark.parametrize("row", [("a", 1, 0, None, 200), ("a", 1, 2, 500, 200)])
def test_a_replay_of_a_series_or_a_fire_now_is_refused(row: tuple[str, int, int, int | None, int]) -> None:
    with pytest.raises(ContractError, match="no series and no FIRE_NOW: schedule_id = 'a'"):
        replay(table(("b", 1, 0, 10, 5), row), [plan()])


def test_a_longer_trigger_has_fewer_batches_and_more_lateness() -> None:
    rng = random.Random(3)
    rows = [(f"id{n}", 1, 0, n * 100 + rng.randrange(60_000), n * 100) for n in range(500)]
    short, long = figures(table(*rows), plan(trigger_ms=1_000), plan(trigger_ms=10_000))
    assert short["fired"] == long["fired"] == 500
    assert long["batches"] < short["batches"] / 5
    assert short["lateness_max_ms"] < 1_000 <= long["lateness_p99_ms"] < 10_000


def test_versions_and_cancels_count_as_in_a_run() -> None:
    commands = table(
        ("a", 1, 0, 5_000, 0), ("a", 2, 0, 9_000, 1_000), ("b", 1, 0, 5_000, 0), ("b", 1, 1, None, 2_000)
    )
    (found,) = figures(commands, plan())
    assert (found["fired"], found["lateness_max_ms"]) == (1, 0)


def test_a_limit_spreads_a_burst_over_batches() -> None:
    burst = table(*((f"id{n}", 1, 0, 5_000, 0) for n in range(40)))
    free, limited = figures(burst, plan(shards=1), plan(shards=1, limit=10))
    assert (free["batches"], limited["batches"]) == (2, 5)
    assert (free["lateness_max_ms"], limited["fired"]) == (0, 40)
    assert limited["lateness_max_ms"] == pytest.approx(3_000, rel=0.1)


def test_a_tiered_plan_fires_the_same_rows_with_less_in_the_state() -> None:
    rng = random.Random(5)
    rows = [(f"id{n}", 1, 0, n * 1_000 + rng.randrange(3_000_000), n * 1_000) for n in range(600)]
    rows += [(f"id{n}", 2, 1, None, 700_000) for n in range(0, 600, 7)]
    direct, tiered = figures(table(*rows), plan(), plan(state_levels=1))
    assert (tiered["fired"], tiered["lateness_max_ms"]) == (direct["fired"], direct["lateness_max_ms"])
    assert tiered["hand_overs"] > 10
    assert tiered["state_bytes"] < direct["state_bytes"] / 2


def test_a_tiered_plan_ends_a_near_entry_whose_new_version_goes_far() -> None:
    hour_ms = 3_600_000
    commands = table(
        ("a", 1, 0, 60_000, 0),  # near
        ("a", 2, 0, hour_ms, 10_000),  # the new version is far
        ("b", 1, 0, hour_ms, 0),  # far
        ("b", 2, 0, 2 * hour_ms, 500),  # both versions are far, and of one batch
        ("c", 1, 0, hour_ms, 0),  # far
        ("c", 2, 0, 40_000, 10_000),  # the new version is near
        ("d", 1, 0, 60_000, 0),
        ("d", 2, 0, hour_ms, 10_000),
        ("d", 3, 1, None, 20_000),  # ends in the store
    )
    direct, tiered = figures(commands, plan(), plan(state_levels=2))
    assert (direct["fired"], tiered["fired"]) == (3, 3)
    assert (direct["lateness_max_ms"], tiered["lateness_max_ms"]) == (0, 0)
    assert tiered["handed_over_rows"] == 2


def test_what_a_replay_needs_is_checked() -> None:
    with pytest.raises(ContractError, match="a column is missing: deliver_at_ms"):
        replay(table().select(["schedule_id"]), [plan()])
    with pytest.raises(ConfigError, match="a setting is out of range: trigger_ms = 0"):
        plan(trigger_ms=0)
    with pytest.raises(ConfigError, match="a setting is out of range: memory_ms = "):
        plan(memory_ms=2**62)
    with pytest.raises(ConfigError, match="state_levels"):
        plan(state_levels=9)
    assert figures(table(), plan())[0]["batches"] == 0
