"""The metrics of a job: which samples a report gives, and how they look to Prometheus."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.delivery.test_report import report
from tests.unit.metrics.jobs import T, exported, meter, progress
from wheel_udf.delivery.report import Stored
from wheel_udf.metrics.figures import Figures
from wheel_udf.metrics.names import METRICS
from wheel_udf.shard.holdings import Holdings
from wheel_udf.wheel.lateness import LatenessHistogram


def values(now_ms: int, *reports: Any) -> dict[str, Any]:
    """The samples after some reports, each at the instant T, as ``name{labels}``."""
    figures = Figures(("job", "direct", "processing", "1"))
    for each in reports:
        figures.add_report(each, T)
    return {f"{name}{{{','.join(labels)}}}": value for name, labels, value in figures.samples(now_ms)}


def test_each_metric_has_a_unit_in_its_name_and_a_sentence() -> None:
    for metric in METRICS.values():
        assert metric.text.endswith("."), metric.name
        assert metric.name.startswith("wheel_"), metric.name
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert ("_seconds" in metric.name) == (metric.unit == "s"), metric.name
        assert ("_bytes" in metric.name) == (metric.unit == "bytes"), metric.name


def test_the_account_counts_since_the_checkpoint_began() -> None:
    found = values(
        T, report(pending=3, counts={"fired": 10, "cancelled": 2, "applied": 2, "cancel_rejected": 1})
    )

    assert found["wheel_scheduled_total{}"] == 15
    assert found["wheel_schedules_total{fired}"] == 10
    assert found["wheel_schedules_total{missed}"] == 0
    assert found["wheel_cancels_total{applied}"] == 2
    assert found["wheel_cancels_total{rejected}"] == 1


def test_the_account_of_some_shards_is_not_exported() -> None:
    first = values(T, report(counts={"fired": 10}, complete=False))
    later = values(T, report(counts={"fired": 10}), report(1, counts={"fired": 4}, complete=False))

    assert "wheel_schedules_total{fired}" not in first
    assert later["wheel_schedules_total{fired}"] == 10


def test_a_purgatory_counts_operations_and_events() -> None:
    counts = {"completed": 5, "expired": 2, "generations": 1, "events": 20, "event_rejected": 3}
    found = values(T, report(purgatory=True, pending=4, counts=counts))

    assert found["wheel_scheduled_total{}"] == 10
    assert found["wheel_operations_total{completed}"] == 5
    assert found["wheel_events_total{used}"] == 20
    assert found["wheel_events_total{rejected}"] == 3
    assert not any(name.startswith("wheel_schedules") for name in found)


def test_a_batch_that_is_repeated_counts_once() -> None:
    batch = report(
        7, fired=3, received=4, undeliverable=1, codes={"no_id": 1}, lateness=LatenessHistogram.of([9])
    )
    found = values(T, batch, batch)

    assert found["wheel_fired_total{}"] == 3
    assert found["wheel_received_total{}"] == 4
    assert found["wheel_undeliverable_total{}"] == 1
    assert found["wheel_rejected_total{no_id}"] == 1
    assert found["wheel_batches_total{wheel}"] == 1
    assert found["wheel_lateness_seconds{}"].count == 1


def test_what_waits_is_told_by_place_level_and_destination() -> None:
    held = Holdings(bytes=900, remembered=7, by_level={1: 2, 2: 3}, due_within={"1m": 2, "24h": 5})
    store = Stored(4, 800, {"3": 6, "inbox": 1}, {"1m": 0, "24h": 6}, {"3": 40})
    found = values(T, report(pending=12, far=7, held=held, store=store, by_destination={"a": 4, "": 1}))

    assert found["wheel_pending{state}"] == 5
    assert found["wheel_pending{store}"] == 7
    assert found["wheel_pending_by_level{state,2}"] == 3
    assert found["wheel_pending_by_level{store,inbox}"] == 1
    assert found["wheel_pending_by_destination{a}"] == 4
    assert found["wheel_pending_by_destination{(other)}"] == 1
    assert found["wheel_due_within{24h}"] == 11
    assert found["wheel_handed_over_total{3}"] == 40
    assert found["wheel_state_rows{remembered}"] == 7
    assert (found["wheel_state_bytes{}"], found["wheel_store_files{}"], found["wheel_store_bytes{}"]) == (
        900,
        4,
        800,
    )


def test_without_a_store_nothing_is_told_of_one() -> None:
    found = values(T, report(pending=2))

    assert [name for name in found if "store" in name or "handed_over" in name] == []


def test_ages_grow_while_no_batch_ends() -> None:
    late = report(next_due_ms=T - 2_000, clock_ms=T, watermark_ms=T - 500)

    assert values(T, late)["wheel_oldest_due_age_seconds{}"] == 2
    assert values(T + 60_000, late)["wheel_oldest_due_age_seconds{}"] == 62
    assert values(T + 60_000, late)["wheel_clock_lag_seconds{}"] == 60
    assert values(T + 60_000, late)["wheel_watermark_lag_seconds{}"] == 60.5
    assert values(T, report(next_due_ms=T + 5_000))["wheel_oldest_due_age_seconds{}"] == 0
    assert values(T, report(next_due_ms=None))["wheel_oldest_due_age_seconds{}"] == 0


def test_under_the_event_clock_an_entry_ages_from_the_moment_it_was_seen_due() -> None:
    figures = Figures(("job", "direct", "event", "1"))
    waits = report(clock_kind="event", backlog=True, next_due_ms=5, clock_ms=90)
    figures.add_report(waits, T)
    figures.add_report(replace(waits, batch_id=1), T + 1_000)
    assert figures.oldest_due_since_ms == T
    figures.add_report(replace(waits, batch_id=2, next_due_ms=6), T + 2_000)
    assert figures.oldest_due_since_ms == T + 2_000
    figures.add_report(replace(waits, batch_id=3, next_due_ms=99, backlog=False), T + 3_000)
    assert figures.oldest_due_since_ms is None


def test_the_text_for_prometheus_has_every_kind_of_metric() -> None:
    job = meter()
    job.on_batch(
        report(3, fired=3, clock_ms=T, counts={"fired": 3}, lateness=LatenessHistogram.of([0, 300, 90_000]))
    )
    job.on_progress(progress(3, addBatch=400, triggerExecution=500))
    lines = exported(job).splitlines()

    assert "# HELP wheel_healthy 1 if /healthz answers 200, else 0." in lines
    assert "# TYPE wheel_schedules_total counter" in lines
    assert 'wheel_schedules_total{outcome="fired"} 3.0' in lines
    assert 'wheel_batch_phase_seconds_sum{phase="addBatch",query="wheel"} 0.4' in lines
    assert 'wheel_batch_seconds_count{query="wheel"} 1.0' in lines
    assert [line for line in lines if line.startswith("wheel_lateness_seconds_bucket")][:3] == [
        'wheel_lateness_seconds_bucket{le="0.1"} 1.0',
        'wheel_lateness_seconds_bucket{le="0.25"} 1.0',
        'wheel_lateness_seconds_bucket{le="0.5"} 2.0',
    ]
    assert 'wheel_lateness_seconds_bucket{le="+Inf"} 3.0' in lines
    (total,) = [line.split()[1] for line in lines if line.startswith("wheel_lateness_seconds_sum")]
    assert float(total) == pytest.approx(90.3, rel=0.01)


def test_what_is_exported_is_declared_and_parses() -> None:
    job = meter()
    job.on_batch(
        report(pending=9, far=4, levels={"30s": 1}, full={"pending": 0.5}, paused=True, watermark_ms=1, clock_ms=1,
               store=Stored(1, 1, {"3": 4}, {"1m": 0}, {"3": 1}), by_destination={"a": 5}, codes={"no_id": 1},
               held=Holdings(1, 1, {1: 5}, last_due_ms=9), in_flight=2, held_by={"a": 1}, breakers={"a": "open"}),
    )  # fmt: skip
    job.on_progress(progress(0, addBatch=1, triggerExecution=1))
    families = {family.name: family for family in text_string_to_metric_families(exported(job))}
    declared = {metric.name.removesuffix("_total"): metric for metric in METRICS.values()}

    assert families.keys() - declared.keys() == set()
    assert declared.keys() - families.keys() == {"wheel_operations", "wheel_events"}
    for name, family in families.items():
        assert family.type == declared[name].kind
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert labels == set(declared[name].labels), name


@pytest.mark.parametrize("late_ms", [[], [0], [99, 100, 101], [250] * 7 + [2**62]])
def test_the_buckets_of_lateness_add_up(late_ms: list[int]) -> None:
    histogram = LatenessHistogram.of(np.array(late_ms, np.int64))

    assert histogram.at_most(2**63 - 1) == len(late_ms)
    assert histogram.at_most(-1) == 0
    assert histogram.sum_ms == pytest.approx(sum(late_ms), rel=0.011, abs=1)
