"""Settings that a session of Spark Connect cannot serve are refused together, before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from wheel_udf import ConfigErrors, EventClock, ProcessingClock, Punctual, SimulatedClock
from wheel_udf.policies.retries import NO_RETRIES
from wheel_udf.stream.without_jvm import require_possible

RemoteSession = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
REMOTE: Any = RemoteSession()
CLASSIC: Any = object()


@pytest.mark.parametrize(
    "clock",
    [ProcessingClock(), EventClock(delay_ms=5), SimulatedClock(instants_ms=(0, 10))],
    ids=lambda c: c.kind,
)
def test_each_kind_of_clock_works(clock: Any) -> None:
    require_possible(REMOTE, clock, None, NO_RETRIES)


def test_what_needs_reports_of_the_shards_or_news_for_them_does_not() -> None:
    clock = SimulatedClock(start_ms=0, step_ms=10, until_ms=100)
    with pytest.raises(ConfigErrors) as raised:
        require_possible(REMOTE, clock, Punctual(), NO_RETRIES)
    assert [fault.field for fault in raised.value.faults] == ["punctual", "clock.until_ms", "clock.step_ms"]
    require_possible(CLASSIC, clock, Punctual(), NO_RETRIES)
