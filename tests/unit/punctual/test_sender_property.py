"""Sender, state and note over random lives: hand-overs, acknowledgements, crashes, stops, steps of the wall clock. No
broker, no thread, no waiting.
"""

from __future__ import annotations

from typing import Any

from hypothesis import event, example, given, strategies as st

from tests.unit.punctual.sender_life import POINTS, Life
from wheel_udf.policies.punctual import Punctual

WAITS_MS = st.sampled_from((-5, 0, 1, 50, 99, 100, 101, 400, 5_000)) | st.integers(0, 700)

batches = st.tuples(
    st.just("batch"),
    st.fixed_dictionaries(
        {
            "waits_ms": st.lists(WAITS_MS, max_size=6),
            "cancels": st.lists(st.integers(0, 40), max_size=2),
            "brings_news": st.booleans(),
            "point": st.sampled_from(("", "", "", "", *POINTS)),
        }
    ),
)
ops = st.one_of(
    batches,
    batches,
    st.tuples(st.just("move"), st.sampled_from((0, 1, 30, 100, 400)) | st.integers(0, 300)),
    st.tuples(st.just("move"), st.sampled_from((-10_000, -400, -50, -1, 10_000))),
    st.tuples(st.just("acknowledge"), st.integers(1, 8)),
    st.tuples(st.sampled_from(("turn", "note", "crash", "repair", "stop", "off", "refuse")), st.none()),
)


def act(life: Life, name: str, terms: Any) -> None:
    if name == "batch":
        life.batch(**terms)
    elif name == "refuse":
        life.broker.acknowledge(1, fault="message timed out")
        life.turn()
    elif terms is None:
        getattr(life, name)()
    else:
        getattr(life, name)(terms)


@given(
    ahead_ms=st.sampled_from((100, 500, 600_000)),
    rows=st.sampled_from((0, 1, 3, 1_000)),
    some=st.lists(ops, min_size=1, max_size=40),
)
@example(  # a row of an earlier sender finds no room at the next one
    ahead_ms=100,
    rows=1,
    some=[
        ("batch", {"waits_ms": [50], "cancels": [], "brings_news": False, "point": ""}),
        ("batch", {"waits_ms": [1], "cancels": [], "brings_news": False, "point": POINTS[0]}),
        ("repair", None),
    ],
)
@example(  # a row that has arrived is in flight with one that is not due when the setting is turned off
    ahead_ms=500,
    rows=3,
    some=[
        ("batch", {"waits_ms": [1, 400], "cancels": [], "brings_news": False, "point": ""}),
        ("move", 50),
        ("off", None),
    ],
)
@example(  # a chunk confirmed in part stays whole beside a new one: four rows in flight, of which the sender has three
    ahead_ms=100,
    rows=3,
    some=[
        ("batch", {"waits_ms": [], "cancels": [], "brings_news": False, "point": ""}),
        ("batch", {"waits_ms": [1, 99, 99], "cancels": [], "brings_news": False, "point": ""}),
        ("move", -50),
        ("move", 100),
        ("batch", {"waits_ms": [1], "cancels": [], "brings_news": True, "point": ""}),
    ],
)
def test_nothing_is_early_or_lost_and_the_account_is_exact_over_lives_of_senders(
    ahead_ms: int, rows: int, some: list[tuple[str, Any]]
) -> None:
    life = Life(Punctual(ahead_ms=ahead_ms, rows=rows))
    for name, terms in some:
        act(life, name, terms)
    event(f"{min(life.crashes, 3)} crashes")
    life.end()
