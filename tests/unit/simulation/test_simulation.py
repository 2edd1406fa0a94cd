"""The simulator: some seeds of each mode, the planted faults, and the runs that once showed a defect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from tests.simulation.core import Command, Core
from tests.simulation.direct import DirectWorld
from tests.simulation.disk import installed
from tests.simulation.faults import FAULTS
from tests.simulation.oracle import Row
from tests.simulation.run import Failure, replay, run_seed
from tests.simulation.shrink import described, shrunk
from tests.simulation.world import Step

CAUGHT_BY = {
    ("direct", "commit before sink"): 0,
    ("direct", "no transaction check"): 24,
    ("direct", "state not tied to a batch"): 4,
    ("direct", "plan with the new clock"): 4,
    ("direct", "replay reads more"): 101,
    ("direct", "replay with the new settings"): 70,
    ("direct", "nothing is remembered"): 0,
    ("direct", "the clock follows a step back"): 0,
    ("direct", "watermark going back"): 60,
    ("direct", "zombie commit accepted"): 16,
    ("direct", "a lost hint counts as idle"): 60,
    ("direct", "rejects before tables"): 20,
    ("direct", "fires within the tick"): 0,
    ("direct", "acts are taken again after a restart"): 44,
    ("direct", "a replay takes acts that came later"): 76,
    ("direct", "a replay divides the limit anew"): 60,
    ("direct", "cancels after the clock"): 20,
    ("policies", "an edit doubles the occurrence at its boundary"): 1,
    ("policies", "an attempt counts twice"): 18,
    ("policies", "what comes back is lost at a restart"): 2,
    ("policies", "the tokens are full again after a restart"): 2,
    ("series", "an occurrence is lost at the hand-over"): 4,
    ("tiered", "hand-over without its cursor"): 0,
    ("tiered", "drop before append"): 86,
    ("tiered", "no cancels in a hand-over"): 61,
    ("tiered", "placed by an old cursor"): 775,
    ("tiered", "late files are dropped"): 673,
    ("tiered", "no look at news"): 505,
    ("tiered", "no marks are kept"): 873,
    ("tiered", "the clock passes the cursor"): 0,
    ("tiered", "a batch of the intake is stored again"): 0,
    ("tiered", "an act is taken again after a restart"): 1,
    ("tiered", "an act does not say what the wheel has"): 4389,
    ("backlog", "the intake does not wait for the wheel"): 0,
    ("backlog", "rows are released by the clock before theirs"): 1098,
    ("backlog", "hand-over without its cursor"): 0,
    ("purgatory", "commit before sink"): 9,
    ("purgatory", "no transaction check"): 28,
    ("purgatory", "state not tied to a batch"): 9,
    ("purgatory", "replay reads more"): 61,
}
"""A seed that shows each planted fault; `python -m tests.simulation --faults` finds them."""


@pytest.fixture(scope="module", autouse=True)
def _installed() -> Iterator[None]:
    with installed():
        yield


@pytest.fixture(scope="module")
def core() -> Core:
    return Core()


@pytest.mark.parametrize(
    ("mode", "seeds"),
    [("direct", 160), ("policies", 40), ("tiered", 80), ("series", 20), ("backlog", 40), ("purgatory", 60)],
)
def test_no_seed_breaks_a_promise(mode: str, seeds: int, core: Core) -> None:
    for seed in range(seeds):
        failure = run_seed(mode, seed, core=core)
        assert failure is None, described(shrunk(failure, core=core), f"{mode}, seed {seed}")


@pytest.mark.parametrize(
    ("mode", "fault"), [(mode, name) for mode, names in FAULTS.items() for name in names]
)
def test_a_planted_fault_is_caught_where_the_sound_protocol_passes(mode: str, fault: str, core: Core) -> None:
    seed = CAUGHT_BY[mode, fault]
    assert run_seed(mode, seed, core=core) is None
    assert run_seed(mode, seed, core=core, fault=fault) is not None


def test_a_failing_seed_becomes_a_few_steps_and_a_call_that_fails_in_the_same_way(core: Core) -> None:
    fault = "no transaction check"
    failure = run_seed("direct", CAUGHT_BY["direct", fault], core=core, fault=fault)
    assert failure is not None
    small = shrunk(failure, core=core, fault=fault)
    assert len(small.steps) <= 6 < len(failure.steps)
    text = described(small, "seed")
    call = text[text.index("replay(") :]

    def replay_with_fault(*run: object) -> Failure | None:
        return replay(*run, core=core, fault=fault)  # type: ignore[arg-type]

    again = eval(call, {"replay": replay_with_fault, "Command": Command})
    assert again is not None
    assert again.what == small.what


def test_a_seed_is_the_same_run_each_time() -> None:
    fault = "rejects before tables"
    runs = [run_seed("direct", CAUGHT_BY["direct", fault], core=Core(), fault=fault) for _ in range(2)]
    assert runs[0] == runs[1] != None  # noqa: E711  # a failure, twice the same


def delivered(shards: int, core: Core, steps: Sequence[Step], **settings: object) -> dict[str, list[Row]]:
    """What the sinks hold at the end, with the clock of each row's release."""
    world = DirectWorld(core, settings={"size": 4, "shards": shards, **settings})
    world.run(steps)
    return {to: sorted(rows) for to, rows in world.written().items()}


@pytest.mark.parametrize(
    "first",
    [
        Command("a", due_ms=1_050),
        Command("a", bad=True),
        Command("a", op=1),
    ],
    ids=["a firing", "a reject", "a waiting cancel"],
)
def test_after_a_step_back_of_the_clock_the_output_does_not_depend_on_the_number_of_shards(
    first: Command, core: Core
) -> None:
    # One batch is at 1,100; then the clock is set back to 1,040. The wheel stands at 1,100, so what is due at 1,090
    # fires at once.
    steps: list[Step] = [
        ("batch",),
        ("wait", 100),
        ("send", first),
        ("batch",),
        ("jump", -60),
        ("send", Command("b", due_ms=1_090)),
        *[("batch",)] * 2,
    ]
    one, two, three = (delivered(shards, core, steps, clock="processing") for shards in (1, 2, 3))
    assert one == two == three
    assert ("b", 1, 0, 1_090, 1_100) in one["left"]


# ---- found by the simulator ----------------------------------------------------------------------

POLICIES = {"shards": 1, "size": 4, "levels": 3, "memory": None, "clock": "processing"}
EVERY_7_MS = '{"repeat": "every 7 ms", "time_zone": "UTC", "count": 2}'


def test_a_dead_letter_of_a_series_has_the_number_of_its_occurrence() -> None:
    # It was null, so `redrive` took the letter for one of the series itself.
    series = Command("s", to="flaky", said_ms=1_000, repeat=EVERY_7_MS)
    settings = {**POLICIES, "shards": 2, "retries": (3, 2, True), "rates": (5, 2, ("flaky",))}
    assert replay("policies", settings, [("send", series), ("stop",), ("batch",)]) is None


def test_what_could_not_be_delivered_comes_back_after_somebody_has_emptied_the_board() -> None:
    # It waited until the next start.
    steps: list[Step] = [
        (
            "send",
            Command("t", seq=3, to="flaky", said_ms=1_000, repeat=EVERY_7_MS.replace(', "count": 2', "")),
        ),
        ("wait", 30),
        ("batch",),
        ("wipe",),
        *[("batch",), ("batch",)],
    ]
    settings = {**POLICIES, "shards": 2, "retries": (3, 2, True), "rates": (5, 2, ("flaky",))}
    assert replay("policies", settings, steps) is None


def test_a_batch_that_is_replayed_under_other_settings_keeps_its_rates() -> None:
    # It released rows without a rate, into a table that had the batch already: they were lost.
    steps: list[Step] = [
        ("send", Command("t", seq=2, due_ms=1_005, to="right", said_ms=1_000)),
        ("send", Command("b", seq=2, due_ms=1_005, to="right", said_ms=1_000)),
        ("batch",),
        ("send", Command("d", due_ms=1_008, to="right", said_ms=1_010)),
        ("wait", 9),
        ("crash", 10),
        ("set", {"bounded": False, "until": 1_030}),
    ]
    assert replay("policies", {**POLICIES, "rates": (5, 1, ("right",))}, steps) is None


def test_a_shard_that_refuses_a_series_writes_its_clock() -> None:
    # After a step back of the clock, what was due by then waited, as long as no other shard had gone on.
    over = '{"repeat": "every 7 ms", "time_zone": "UTC", "until_ms": 900}'
    steps: list[Step] = [
        ("batch",),
        ("wait", 100),
        ("send", Command("s", said_ms=1_000, repeat=over)),
        ("batch",),
        ("jump", -60),
        ("send", Command("b", due_ms=1_090)),
        *[("batch",)] * 2,
    ]
    assert replay("policies", POLICIES, steps) is None


TIERED = {"shards": 1, "size": 4, "levels": 3, "state_levels": 1, "memory": None, "limit": None}


def test_a_hand_over_that_a_killed_process_had_begun_does_not_land_after_a_batch_of_the_next_run() -> None:
    # It moved the cursor past an entry that nobody had handed over; the next run dropped the entry's slot.
    steps = [
        ("wait", 12),
        ("run", 200),
        ("wait", 2),
        ("send", Command("c", due_ms=1_025)),
        ("wait", 9),
        ("crash", 2),
        ("turns", "iiiiiiikkw"),
        ("land",),
    ]
    assert replay("tiered", TIERED, steps) is None


def test_a_batch_of_the_intake_that_a_killed_process_had_begun_is_handed_over_when_it_lands_later() -> None:
    # The next run's keeper took its inbox for empty: the entry stayed there when its time had come.
    steps = [
        ("send", Command("d", op=1, seq=4)),
        ("run", 200),
        ("turns", "wwiw"),
        ("send", Command("a", seq=3, due_ms=1_022, to="topic")),
        ("crash", 18),
        ("turns", "kkw"),
        ("land",),
        ("wait", 45),
        ("run", 200),
    ]
    assert replay("tiered", {**TIERED, "size": 3, "levels": 2, "pause_at": 2}, steps) is None


def test_a_board_that_somebody_has_emptied_is_published_again_before_the_next_commit() -> None:
    # The wheel's clock stood still until the next batch of the intake or the next hand-over.
    steps = [
        ("send", Command("a", due_ms=1_009)),
        ("wait", 20),
        ("turns", "iiiiiiiikkw"),
        ("wipe",),
        ("run", 200),
    ]
    assert replay("tiered", {**TIERED, "size": 3, "levels": 2, "memory": 5}, steps) is None


def test_the_first_run_of_the_tiered_mode_leaves_the_settings_of_its_planned_batch() -> None:
    # Its batch was replayed with the limit of the next start.
    steps = [
        ("wait", 20),
        ("send", Command("b", seq=2, due_ms=1_042)),
        ("send", Command("c", seq=6, due_ms=1_022, lateness_ms=3)),
        ("jump", 40),
        *[("crash", 56), ("set", {"limit": 2})],
    ]
    assert replay("tiered", {**TIERED, "levels": 2, "limit": 1}, steps) is None


def test_a_shard_that_is_due_by_the_clock_of_another_alone_does_not_get_batch_after_batch() -> None:
    # One shard had run on to `until`, the other had not: its entry was due by the largest clock and by no clock of its
    # own.
    settings = {"shards": 2, "size": 4, "limit": 1, "bounded": True, "until": 1_010}
    steps = [
        ("send", Command("a", seq=4, due_ms=1_002, to="topic")),
        ("set", {"until": 1_030}),
        *[("batch",), ("batch",)],
        ("send", Command("b", seq=2, due_ms=1_014, to="right", lateness_ms=3)),
        ("batch",),
    ]
    assert replay("direct", settings, steps) is None


def test_an_act_that_is_committed_while_its_entry_fires_delivers_nothing_a_second_time() -> None:
    # The entry fired, then its moved version did; after a reroute both destinations got it.
    steps = [
        ("wait", 6),
        ("send", Command("c", seq=6, due_ms=1_028)),
        ("wait", 2),
        ("run", 200),
        ("wait", 20),
        ("nest", 0, tuple("kwkkwkii")),
        ("act", "move", 0, 1_070),
        ("run", 200),
    ]
    assert replay("tiered", {**TIERED, "size": 3, "levels": 2}, steps) is None


def test_an_act_on_what_has_fired_and_is_forgotten_delivers_nothing_a_second_time() -> None:
    steps = [
        ("run", 200),
        ("send", Command("b", due_ms=1_011, to="topic")),
        ("send", Command("b", seq=2, due_ms=1_034, to="right")),
        ("wait", 45),
        ("nest", 4, (("act", "reroute", 3, 1_070),)),
        ("crash", 43),
        ("run", 200),
    ]
    assert replay("tiered", {**TIERED, "shards": 2, "memory": 0, "limit": 2, "pause_at": 2}, steps) is None


def test_an_act_that_lost_against_a_cancel_stays_late_when_its_entry_comes_back_after_a_jump_of_the_clock() -> (
    None
):
    steps = [
        ("send", Command("b", seq=3, due_ms=1_025, to="right")),
        ("wait", 45),
        ("crash", 46),
        ("nest", 0, (("act", "move", 0, 1_070),)),
        ("act", "cancel", 2, 1_020),
    ]
    assert replay("tiered", {**TIERED, "size": 3, "memory": 0}, steps) is None
