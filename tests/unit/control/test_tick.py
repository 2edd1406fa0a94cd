"""The one value that travels to a shard with the time, and its one codec."""

from __future__ import annotations

import json

import pytest

from wheel_udf.control.tick import Tick
from wheel_udf.policies.sender_news import Confirmed, SenderNews

NEWS = SenderNews(4_000, 100, 10**6, (Confirmed(0, 4, -1), Confirmed(5, 4, 2**63 - 1)))


@pytest.mark.parametrize(
    "tick",
    [
        Tick("run"),
        Tick("run", 0),
        Tick("run", -(2**62), ("a|b", "c,d")),
        Tick("run", 5, (), NEWS, 0),
    ],
)
def test_a_tick_is_the_same_when_it_has_travelled(tick: Tick) -> None:
    assert Tick.from_text(tick.to_text()) == tick


def test_a_plain_tick_is_its_version_and_its_run() -> None:
    assert json.loads(Tick("run").to_text()) == {"version": 1, "run": "run"}
