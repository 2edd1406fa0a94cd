"""How a run is watched and ended, and which settings stay with a planned batch. Queries are played by a stand-in."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from tests.unit.delivery.test_report import report
from wheel_udf.commands import header_names
from wheel_udf.common.errors import CheckpointError, ConfigError, ContractError, LeaseError, SourceLostError
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.clocks import EventClock, ProcessingClock, SimulatedClock
from wheel_udf.delivery.report import BatchReport
from wheel_udf.job import compose as job, loader as config
from wheel_udf.job.dry_run import geometry_table, lateness_text, levels_text, limits_text
from wheel_udf.job.models.levels import LevelsConfig
from wheel_udf.job.models.scheduler import SchedulerConfig
from wheel_udf.job.models.service import rates_of, retries_of
from wheel_udf.job.replay import note_settings, require_columns, row_settings, with_row_settings
from wheel_udf.job.supervise import ClockRewindDetector, Supervisor, graceful_signals, supervise
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.file_sink import FileSink
from wheel_udf.sinks.kafka_sink import KafkaSink
from wheel_udf.spark.failures import explain

SETTINGS: dict[str, Any] = {
    "clock": {"kind": "event", "max_ahead": "none"},
    "source": {"format": "json", "path": "in"},
    "contract": {"memory": "1 minute", "max_lateness": "1 hour"},
    "destinations": {
        "a*": {"sink": "delta", "path": "tables", "create": True},
        "b": {"sink": "csv", "path": "files"},
    },
    "rejects": {"sink": "delta", "path": "bad"},
    "limits": {"fired_per_batch": 10},
    "checkpoint": "state",
}


def checked(**changes: Any) -> SchedulerConfig:
    job = config.check(SETTINGS | changes)
    assert isinstance(job, SchedulerConfig)
    return job


@dataclass
class Query:
    """A query that plays scripted moments: each is what happens while the supervisor waits."""

    moments: list[Callable[[Query], None]]
    ended: bool = False
    stopped_at: int | None = None
    played: int = 0
    status: dict[str, Any] = field(default_factory=lambda: {"isTriggerActive": True})
    lastProgress: dict[str, Any] | None = None  # noqa: N815  (Spark's name)

    def awaitTermination(self, timeout: Any) -> bool:  # noqa: N802  (Spark's name)
        assert timeout < 1
        if self.played < len(self.moments):
            self.moments[self.played](self)
            self.played += 1
        return self.ended

    def stop(self) -> None:
        self.stopped_at = self.played


def commit(batch_id: int) -> Callable[[Query], None]:
    def act(query: Query) -> None:
        query.lastProgress = {"batchId": batch_id}

    return act


def end(query: Query) -> None:
    query.ended = True


def nothing(_query: Query) -> None:
    return


def test_a_query_that_ends_by_itself_is_not_stopped() -> None:
    query = Query([nothing, end])
    supervise(query, Supervisor(None))
    assert (query.played, query.stopped_at) == (2, None)


def test_the_source_is_looked_at_every_5_s_and_a_loss_stops_the_query() -> None:
    query, looks = Query([nothing] * 1_000), []

    def look() -> None:
        looks.append(query.played)
        if len(looks) == 3:
            raise SourceLostError("topic t was deleted and created again")

    with pytest.raises(SourceLostError):
        supervise(query, Supervisor(None), None, look)
    assert (looks, query.stopped_at) == ([25, 50, 75], 75)


def test_the_source_of_a_query_that_has_ended_is_looked_at_once_more() -> None:
    query, looks = Query([nothing, end]), []
    supervise(query, Supervisor(None), None, lambda: looks.append(query.played))
    assert looks == [2]


def test_until_stops_the_query_once_the_batch_that_reached_it_is_committed() -> None:
    reports: list[BatchReport] = []
    supervisor = Supervisor(1_000, reports.append)
    query = Query(
        [
            lambda _query: supervisor.on_batch(report(0, clock_ms=999)),
            commit(0),
            lambda _query: supervisor.on_batch(report(1, clock_ms=1_000)),
            nothing,
            commit(1),
            nothing,
        ]
    )
    supervise(query, supervisor)
    assert query.stopped_at == 5
    assert [each.clock_ms for each in reports] == [999, 1_000]


def test_until_waits_while_what_is_due_is_left_over_the_limit() -> None:
    supervisor = Supervisor(1_000)
    supervisor.on_batch(report(0, clock_ms=2_000, backlog=True))
    assert not supervisor.wants_end
    supervisor.on_batch(report(1, clock_ms=2_000))
    assert supervisor.wants_end


@pytest.mark.parametrize(
    ("changes", "ends"),
    [
        ({"clock_ms": 0, "watermark_ms": 1_000}, True),
        ({"clock_ms": 0, "watermark_ms": 999}, False),
        ({"clock_ms": 0, "watermark_ms": 1_000, "next_due_ms": 1_000}, False),
        ({"clock_ms": 0, "watermark_ms": 1_000, "next_due_ms": 1_001}, True),
        ({"clock_ms": 1_000, "next_due_ms": 1_001}, True),
        ({"clock_ms": 1_000, "complete": False}, False),
        ({}, False),
    ],
)
def test_until_is_reached_by_the_clock_or_the_watermark_with_nothing_due_by_then(
    changes: dict[str, Any], ends: bool
) -> None:
    supervisor = Supervisor(1_000)
    supervisor.on_batch(report(0, **changes))
    assert supervisor.wants_end == ends


def test_a_stop_lets_the_running_batch_finish() -> None:
    supervisor = Supervisor(None)
    supervisor.on_batch(report(4))
    supervisor.end_after_this_batch()
    query = Query([commit(4), nothing, commit(5), nothing])
    supervise(query, supervisor)
    assert query.stopped_at == 3


def test_a_stop_between_two_batches_is_done_at_once() -> None:
    supervisor = Supervisor(None)
    supervisor.end_after_this_batch()
    query = Query([nothing, nothing], status={"isTriggerActive": False})
    supervise(query, supervisor)
    assert query.stopped_at == 1


def test_a_batch_that_does_not_finish_after_a_signal_is_cut_off_after_20_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # By the clock and not by the looks, which may take longer.
    elapsed_ms = itertools.count(0, 200)
    monkeypatch.setattr("wheel_udf.job.supervise.elapsed_ms", lambda: next(elapsed_ms))
    supervisor = Supervisor(None)
    query = Query([lambda _query: supervisor.end_by(signal.SIGTERM), *[nothing] * 200])
    supervise(query, supervisor)
    assert query.stopped_at == 101


def test_a_query_is_stopped_after_its_batch_when_the_wall_clock_was_set_back() -> None:
    def pause(query: Query) -> None:
        query.status = {"isTriggerActive": False}

    ahead = iter([0, 0, -3_600_000, -3_600_000, -3_600_000])
    query = Query([nothing, nothing, nothing, pause, nothing])
    assert supervise(query, Supervisor(None), ClockRewindDetector(lambda: next(ahead))) == 3_600_000
    assert query.stopped_at == 4


def test_a_step_forward_or_a_small_one_back_does_not_stop_the_query() -> None:
    ahead = iter([0, 7_200_000, 7_195_001, 7_190_002, 7_190_002])
    query = Query([*[nothing] * 4, end], status={"isTriggerActive": False})
    assert supervise(query, Supervisor(None), ClockRewindDetector(lambda: next(ahead))) == 0
    assert query.stopped_at is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_for_the_end_and_the_handlers_of_before_come_back(number: signal.Signals) -> None:
    lines: list[str] = []
    supervisor = Supervisor(None)
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with graceful_signals(supervisor, lines.append):
        os.kill(os.getpid(), number)
        assert supervisor.wants_end
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert lines == [f"{number.name}: stopping after this batch; a second signal stops at once"]


def test_the_settings_of_a_planned_batch_survive_the_journal_and_come_back_as_they_were() -> None:
    then = checked(levels={"list": ["5s", "1m"], "on_beyond": "exact"})
    recorded = json.loads(json.dumps(row_settings(then, 77)))
    assert recorded == row_settings(then, 77)
    now = checked(
        contract={"memory": "unlimited", "default_destination": "c"},
        destinations={
            "c": {"sink": "json", "path": "elsewhere"},
            "a*": {"sink": "delta", "path": "moved", "create": True},
        },
        rejects={"sink": "json", "path": "worse"},
        limits={},
        clock={"kind": "event", "heartbeat": "9 minutes"},
        levels={"policy": "binary"},
    )
    restored = with_row_settings(now, recorded)
    assert recorded["until_ms"] == 77
    assert row_settings(restored, 77) == recorded
    assert job.contract_of(restored) == job.contract_of(then)
    assert job.clock_of(restored.clock, 77) == EventClock(
        max_ahead_ms=None, heartbeat_ms=540_000, until_ms=77
    )
    assert dict(job.destinations_of(restored)) == dict(job.destinations_of(then))


def test_rates_and_retries_of_a_planned_batch_come_back_and_later_ones_do_not_count() -> None:
    hook = {"sink": "http", "url": "https://example.com/{destination}"}
    table = {"sink": "delta", "path": "tables", "create": True}
    retries = {"policy": "list", "waits": ["1 second"], "attempts": 3, "in_batch": 2}
    served = {
        "hook": hook | {"rate": "90/min", "retries": retries},
        "table": table | {"rate": "5/s", "burst": 8},
        "dead": table,
    }
    plain = {"hook": hook | {"retries": 2}, "table": table, "dead": table}
    with_both = checked(destinations=served, dead_letters="dead")
    without = checked(destinations=plain)
    for then, now in ((with_both, without), (without, with_both), (with_both, with_both)):
        recorded = json.loads(json.dumps(row_settings(then, None)))
        restored = with_row_settings(now, recorded)
        assert row_settings(restored, None) == recorded
        assert retries_of(restored.destinations, restored.dead_letters) == retries_of(
            then.destinations, then.dead_letters
        )
        assert rates_of(restored.destinations, 1) == rates_of(then.destinations, 1)
        assert restored.destinations["hook"].retries.in_batch == 2
    assert row_settings(without, None)["destinations"]["hook"] == {"sink": "http"}


@pytest.mark.parametrize(
    "clock",
    [
        {"kind": "processing"},
        {"kind": "simulated", "start": "1970-01-01", "step": "1 second"},
        {"kind": "simulated", "instants": ["1970-01-01", "1970-01-02"]},
    ],
)
def test_the_recorded_settings_of_every_clock_come_back_equal(clock: dict[str, Any]) -> None:
    then = checked(clock=clock)
    recorded = json.loads(json.dumps(row_settings(then, None)))
    restored = with_row_settings(then, recorded)
    assert job.clock_of(restored.clock, None) == job.clock_of(then.clock, None)
    assert row_settings(then, None) == recorded


def test_settings_are_recorded_as_a_file_would_have_them() -> None:
    clock = {"kind": "simulated", "instants": ["1970-01-01", "1970-01-02"]}
    then = over_kafka(
        contract={"memory": "1 minute", "max_lateness": "1 hour", "max_delay": "unlimited"},
        clock=clock,
        levels={"policy": "binary", "topics": {"delay_4s": "4 seconds"}, "paused": ["4s"]},
    )
    assert row_settings(then, 77) == {
        "contract": {
            "preset": "native",
            **dict.fromkeys(header_names.SETTINGS),
            "default_delay": None,
            "max_delay": "unlimited",
            "memory": "60000 ms",
            "max_lateness": "3600000 ms",
            "time_zone": "UTC",
            "most_missed": 1_000,
            "max_value_bytes": 1_048_576,
            "default_destination": None,
        },
        "clock": {
            "kind": "simulated",
            "start": None,
            "step": None,
            "instants": ["1970-01-01T00:00:00.000Z", "1970-01-02T00:00:00.000Z"],
        },
        "limits": {
            "fired_per_batch": 10,
            "pending": None,
            "per_destination": None,
            "per_slot": None,
            "soft": 1.0,
            "on_limit": "reject",
        },
        "levels": {"policy": "binary", "topics": {"delay_4s": "4000 ms"}},
        "delivery": {"punctual": False, "ahead": None, "rows": 200_000, "bytes": 268_435_456},
        "destinations": {"a*": {"sink": "kafka"}, "b": {"sink": "csv", "path": "files"}},
        "rejects": {"sink": "kafka", "topic": "bad"},
        "endingOffsets": '{"in": {"0": 5}}',
        "until_ms": 77,
    }


def test_a_record_that_cannot_be_read_names_its_settings() -> None:
    recorded = row_settings(over_kafka(), None)
    recorded["limits"]["fired_per_batch"] = 0
    recorded["clock"]["kind"] = "sundial"
    with pytest.raises(
        CheckpointError, match=r"planned batch cannot be read: clock, limits\.fired_per_batch;"
    ):
        with_row_settings(over_kafka(), recorded)


def test_what_does_not_change_rows_is_not_recorded() -> None:
    others = checked(
        trigger="9 seconds",
        name="other",
        clock={"kind": "event", "max_ahead": "none", "heartbeat": "2 hours"},
    )
    assert row_settings(others, None) == row_settings(checked(), None)


def test_sections_become_the_objects_of_the_library() -> None:
    processing = checked(clock={"kind": "processing", "heartbeat": "2 seconds"}).clock
    stepped = checked(clock={"kind": "simulated", "start": "1970-01-01", "step": "1 second"}).clock
    listed = checked(clock={"kind": "simulated", "instants": ["1970-01-02"]}).clock
    assert job.clock_of(processing, None) == ProcessingClock(heartbeat_ms=2_000)
    assert job.clock_of(stepped, 5) == SimulatedClock(start_ms=0, step_ms=1_000, until_ms=5)
    assert job.clock_of(listed, None) == SimulatedClock(instants_ms=(86_400_000,))
    assert dict(job.destinations_of(checked())) == {
        "a*": DeltaSink("tables", create=True),
        "b": FileSink("files", "csv"),
    }
    assert job.contract_of(checked()).destinations == ("a*", "b")


def test_the_geometry_is_told_in_human_units() -> None:
    assert list(geometry_table(Wheel(tick_ms=1_000, size=20, levels=4))) == [
        "    level            tick        interval",
        "        1           1.0 s          20.0 s",
        "        2          20.0 s         6.7 min",
        "        3         6.7 min           2.2 h",
        "        4           2.2 h           1.9 d and all beyond",
    ]


def test_the_worst_lateness_is_a_trigger_and_a_batch_and_more_where_a_limit_binds() -> None:
    assert lateness_text(checked(trigger="5 seconds", limits={})) == (
        "at worst one trigger (5.0 s) plus the time of one batch; measured on the wheel's own clock"
    )
    assert "plus one batch for each 10 rows that fall due together" in lateness_text(checked())
    assert "one batch, plus the time between two runs" in lateness_text(checked(trigger="available-now"))


def test_a_dry_run_says_what_happens_at_the_limits() -> None:
    bounds = {"pending": 1_000_000, "per_slot": 200_000}
    assert limits_text(checked(limits=bounds | {"soft": 0.5})) == (
        "pending 1,000,000, per_slot 200,000; at a limit new entries are rejected (some of them from 50% of it on); shared by 4 shards"
    )
    tiered = checked(
        mode="tiered",
        store={"path": "store"},
        clock={"kind": "processing"},
        limits=bounds | {"on_limit": "pause"},
    )
    assert limits_text(tiered) == (
        "pending 1,000,000, per_slot 200,000; at a limit the intake pauses and resumes by itself"
    )


def test_a_dry_run_says_which_policy_of_levels_it_is_and_which_topics_wait() -> None:
    topics = {"delay_1m": "1m", "delay_5s": "5s"}
    levels = TypeAdapter[Any](LevelsConfig).validate_python(
        {"list": ["5s", "1m"], "topics": topics, "paused": ["5s"]}
    )
    assert levels_text(levels) == (
        "fixed: delays are rounded up to one of 5s 1m; longer delays are rejected; topic delay_1m has 1m; topic delay_5s has 5s, paused"
    )
    top = TypeAdapter[Any](LevelsConfig).validate_python({"on_beyond": "top"})
    assert levels_text(top).endswith(
        " 1h 2h; longer delays get the last level and fire earlier than requested"
    )
    binary = TypeAdapter[Any](LevelsConfig).validate_python({"policy": "binary"})
    assert levels_text(binary) == "binary: 1, 2, 4, ... ticks; delays are kept as they are"


@pytest.mark.parametrize("topics", [{}, {"delay_5s": "5s"}, {"delay_5s": "5s", "other": "10s"}])
def test_topics_of_levels_are_fixed_by_the_first_start_and_their_levels_and_pauses_are_not(
    tmp_path: Path, topics: dict[str, str]
) -> None:
    def over(topics: dict[str, str], *paused: str) -> SchedulerConfig:
        return over_kafka(checkpoint=str(tmp_path), levels={"topics": topics, "paused": paused})

    first = {"delay_5s": "5s", "delay_1m": "1m"}
    note_settings(over(first), None)
    (tmp_path / "offsets").mkdir()
    (tmp_path / "commits").mkdir()
    (tmp_path / "metadata").write_text('{"id": "x"}')
    (tmp_path / "offsets" / "0").write_text('v1\n{"batchTimestampMs": 0}\n{}')
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    assert note_settings(over(first | {"delay_5s": "30s"}, "1m"), None) is None
    with pytest.raises(ConfigError, match="other topics of levels"):
        note_settings(over(topics), None)


PURGATORY: dict[str, Any] = {
    "clock": {"kind": "processing"},
    "operations": {"format": "json", "path": "operations"},
    "events": {"format": "json", "path": "events"},
    "destinations": {"*": {"sink": "delta", "path": "tables"}},
    "contract": {"default_destination": "out"},
    "rejects": {"sink": "delta", "path": "bad"},
}
TIERED: dict[str, Any] = SETTINGS | {"mode": "tiered", "store": {"path": "store"}}


@pytest.mark.parametrize(
    ("settings", "part", "changed"),
    [
        (TIERED, "wheel", {"limits": {"fired_per_batch": 2}}),
        (PURGATORY, "", {"watch": {"lookback": "1 minute"}}),
    ],
    ids=["tiered", "purgatory"],
)
def test_a_batch_that_the_very_first_run_planned_is_not_replayed_with_other_settings(
    tmp_path: Path, settings: dict[str, Any], part: str, changed: dict[str, Any]
) -> None:
    before = settings | {"checkpoint": str(tmp_path)}
    note_settings(config.check(before), None)
    checkpoint = tmp_path / part
    (checkpoint / "offsets").mkdir()
    (checkpoint / "metadata").write_text('{"id": "x"}')
    (checkpoint / "offsets" / "0").write_text('v1\n{"batchTimestampMs": 0}\n{}')
    with pytest.raises(ConfigError, match="a planned batch under other settings"):
        note_settings(config.check(before | changed), None)
    assert note_settings(config.check(before), None) is None


@pytest.mark.parametrize(
    ("settings", "part", "section"),
    [(SETTINGS, "", "source"), (TIERED, "wheel", "source"), (PURGATORY, "", "operations")],
    ids=["direct", "tiered", "purgatory"],
)
def test_a_source_that_lost_a_column_between_two_runs_is_refused_and_not_read_with_nulls(
    tmp_path: Path, settings: dict[str, Any], part: str, section: str
) -> None:
    job = config.check(settings | {"checkpoint": str(tmp_path)})

    def start(*columns: str) -> None:
        note_settings(job, None, None, {section: columns})

    start("destination", "value")
    checkpoint = tmp_path / part
    (checkpoint / "offsets").mkdir()
    (checkpoint / "commits").mkdir()
    (checkpoint / "metadata").write_text('{"id": "x"}')
    for batch in ("0", "1"):
        (checkpoint / "offsets" / batch).write_text('v1\n{"batchTimestampMs": 0}\n{}')
        (checkpoint / "commits" / batch).write_text("v1\n{}")
        start()  # a folder without files has no columns that are known
        start("destination", "key", "note", "value")
    path = getattr(job, section).path
    for refused in (
        lambda: start("destination", "key", "payload"),
        lambda: require_columns(job, {section: ["destination", "key"]}),
    ):
        with pytest.raises(ContractError) as caught:
            refused()
        assert str(caught.value).startswith(
            f"the source has lost a column since the last run: value: {section}.path = {path!r}; "
            "rule: the columns of the contract that it had: destination, key, value; it has: destination, key"
        )
    start("destination", "key", "value", "headers")


KAFKA: dict[str, Any] = {"kafka.bootstrap.servers": "h:1", "kafka.ssl.key.password": "hunter2-canary"}


def over_kafka(**changes: Any) -> SchedulerConfig:
    return checked(
        **{
            "source": {
                "format": "kafka",
                "topics": ["in"],
                "options": KAFKA | {"endingOffsets": '{"in": {"0": 5}}'},
            },
            "destinations": {
                "a*": {"sink": "kafka", "options": KAFKA},
                "b": {"sink": "csv", "path": "files"},
            },
            "rejects": {"sink": "kafka", "topic": "bad", "options": KAFKA},
        }
        | changes
    )


def test_sinks_of_kafka_come_back_with_the_options_of_today_and_none_is_recorded() -> None:
    recorded = json.loads(json.dumps(row_settings(over_kafka(), None)))
    assert "hunter2" not in json.dumps(recorded)
    assert recorded["rejects"] == {"sink": "kafka", "topic": "bad"}
    today = KAFKA | {"kafka.acks": "all"}
    now = over_kafka(
        source={"format": "kafka", "topics": ["in"], "options": KAFKA},
        destinations={"a*": {"sink": "kafka", "options": today}},
        rejects={"sink": "kafka", "topic": "worse", "options": today},
    )
    restored = with_row_settings(now, recorded)
    assert row_settings(restored, None) == recorded
    assert dict(job.destinations_of(restored)) == {
        "a*": KafkaSink(today),
        "b": FileSink("files", "csv"),
    }
    assert job.sink_of(restored.rejects) == KafkaSink(today, topic="bad")


def test_a_planned_batch_for_kafka_needs_the_options_of_its_cluster() -> None:
    recorded = row_settings(over_kafka(), None)
    gone = over_kafka(destinations={"b": {"sink": "csv", "path": "files"}})
    with pytest.raises(ConfigError, match=r"planned batch with rows for Kafka: destinations\.a\*"):
        with_row_settings(gone, recorded)


def test_a_lost_lease_stops_the_query_and_is_no_cause_of_a_new_start() -> None:
    query = Query([nothing] * 1_000)

    def require_lease() -> None:
        if query.played == 3:
            raise LeaseError("this process has lost the lease of the checkpoint")

    with pytest.raises(LeaseError) as lost:
        supervise(query, Supervisor(None), require_lease=require_lease)
    assert query.stopped_at == 3
    assert (explain(lost.value).exit_code, explain(lost.value).transient) == (1, False)
