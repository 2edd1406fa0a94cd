"""From a seed to a list of steps: a workload, and one of many ways in which processes die in it.

::

    seed 4711 = workload 235, schedule 11 of 20
    workload    settings, rounds of commands and of waiting                    random.Random("workload 235")
    schedule    how each round is run: to its end, or with crashes, zombies,   random.Random("schedule 4711")
                other settings, a lost board

The twenty schedules of a workload mostly make the same calls of the core, which are remembered
(:mod:`tests.simulation.core`): so a seed costs a few ms. Everything is small on purpose: a wheel of 3 or 4 slots a
level, 4 ids, due times within 40 ms, memories of 5 or 20 ms, so that versions collide and slots are reached.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.simulation.core import Command
from tests.simulation.purgatory import Ask
from tests.simulation.world import START_MS, Step
from tests.unit.purgatory.watch_model import BEAT, SUM, Event, Request

SCHEDULES = 20
"""Schedules of a workload."""

_IDS = "abcd"
_FLOOD_IDS = "efghijklmnop"
_WAITS = (0, 1, 2, 3, 5, 9, 20, 45)
_DUES = (-5, -1, 0, 1, 1, 2, 3, 4, 6, 9, 9, 12, 20, 40)


def steps_of(seed: int) -> tuple[dict[str, Any], list[Step]]:
    """The settings and the steps of a seed of the direct mode."""
    work = random.Random(f"workload {seed // SCHEDULES}")
    settings = _settings(work)
    rounds = [_round(work, number, settings) for number in range(work.randint(3, 6))]
    _flood(random.Random(f"flood {seed // SCHEDULES}"), rounds, settings)
    how = random.Random(f"schedule {seed}")
    steps: list[Step] = []
    for each in rounds:
        run = _run(how, settings)
        if how.random() < 0.3:
            run.insert(how.randint(0, len(run)), _act(how))
        steps += [*each, *run]
    return settings, _numbered(steps)


def _settings(work: random.Random) -> dict[str, Any]:
    bounded = work.random() < 0.2
    return {
        "clock": work.choices(("processing", "event", "simulated"), (7, 2, 1))[0],
        "shards": work.choice((1, 1, 2)),
        "size": work.choice((3, 4)),
        "levels": work.choice((2, 3)),
        "memory": work.choice((5, 20, None)),
        "limit": work.choice((None, None, 1, 2, 3)),
        "bounded": bounded,
        "until": START_MS + work.choice((10, 50)) if bounded and work.random() < 0.5 else None,
        "files": work.choice((1, 2, 100)),
    }


def _round(work: random.Random, number: int, settings: dict[str, Any]) -> list[Step]:
    now_ms = START_MS + 8 * number
    commands: list[Step] = [
        ("send", _command(work, now_ms, settings)) for _ in range(work.choice((0, 1, 1, 2, 3)))
    ]
    passing: Step = ("wait", work.choice(_WAITS))
    if work.random() < 0.15:
        passing = ("jump", work.choice((-30, -7, -1, 15, 100)))
    return [*commands, passing]


def _flood(work: random.Random, rounds: list[list[Step]], settings: dict[str, Any]) -> None:
    """Makes one of eight workloads one with a backlog: more entries are due at one instant than a batch may release,
    and more of them in one shard.
    """
    if work.random() < 0.125:
        settings |= {"shards": 2, "limit": work.choice((2, 3, 4, 6))}
        number = work.randrange(len(rounds))
        due_ms = START_MS + 8 * number + work.choice((0, 2, 9))
        of_round = [
            Command(name, op=0, seq=1, due_ms=due_ms, to="left", said_ms=due_ms - 2, seq_given=True)
            for name in work.sample(_FLOOD_IDS, work.randint(5, 12))
        ]
        rounds[number][:0] = [("send", each) for each in of_round]


def _command(work: random.Random, now_ms: int, settings: dict[str, Any]) -> Command:
    name = work.choice(_IDS)
    given = name != "d"  # an id keeps to one kind
    return Command(
        id=name,
        op=int(work.random() < 0.25),
        seq=work.randint(1, 4) if given else 0,
        due_ms=now_ms + work.choice(_DUES),
        to=work.choice(("left", "right", "right", "topic")),
        lateness_ms=work.choice((None, None, None, None, 0, 3)),
        seq_given=given,
        said_ms=now_ms + work.choice((-3, 0, 0, 2)),
        bad=work.random() < 0.06,
    )


def _run(how: random.Random, settings: dict[str, Any]) -> list[Step]:
    """How a round is run."""
    plain: list[Step] = [("batch",)] * how.choice((1, 2, 2))
    luck = how.random()
    if luck < 0.45:
        return plain
    if luck < 0.75:
        return [("crash", how.randint(0, 30)), *_outage(how), *_new_settings(how), *plain]
    if luck < 0.85:
        return [
            ("zombie", how.randint(3, 25)),
            *_new_settings(how),
            ("run", how.randint(0, 25)),
            ("haunt", how.randint(1, 12)),
            ("batch",),
            ("haunt", how.randint(1, 20)),
            *plain,
        ]
    if luck < 0.92:
        return [("stop",), *_new_settings(how), *plain]
    if luck < 0.96:
        return [("wipe",), *plain]
    return [("run", how.randint(1, 20)), *plain]


def _outage(how: random.Random) -> list[Step]:
    """Time that passes before the next start, or a clock that somebody sets meanwhile."""
    luck = how.random()
    if luck < 0.7:
        return []
    return [("wait", how.choice((1, 4, 30)))] if luck < 0.9 else [("jump", how.choice((-20, 10)))]


def _new_settings(how: random.Random) -> list[Step]:
    luck = how.random()
    if luck < 0.6:
        return []
    if luck < 0.85:
        return [("set", {"limit": how.choice((None, 1, 2, 3))})]
    return [("set", {"bounded": how.random() < 0.5, "until": how.choice((None, START_MS + 30))})]


def _numbered(steps: list[Step]) -> list[Step]:
    """Commands without a given version have their offset as version, as from Kafka."""
    offset = 0
    numbered: list[Step] = []
    for step in steps:
        if step[0] == "send":
            command = step[1]
            numbered.append(("send", command if command.seq_given else _with_offset(command, offset)))
            offset += 1
        else:
            numbered.append(step)
    return numbered


def _with_offset(command: Command, offset: int) -> Command:
    return Command(**{**command.__dict__, "seq": offset})


# ---- policies ------------------------------------------------------------------------------------

_SERIES_IDS = "stu"


def policy_steps_of(seed: int) -> tuple[dict[str, Any], list[Step]]:
    """The settings and the steps of a seed of the direct mode with series, retries and rates."""
    work = random.Random(f"policy workload {seed // SCHEDULES}")
    settings = _settings(work) | {
        "clock": work.choices(("processing", "event"), (5, 1))[0],
        "retries": work.choice((None, (2, 3, True), (2, 3, False), (3, 2, True))),
        "rates": work.choice((None, None, (5, 2, ("right",)), (10, 3, ("right",)))),
        "moody": bool(seed // SCHEDULES % 2),
    }
    if settings["retries"] and work.random() < 0.3:
        settings["rates"] = (5, 2, work.choice((("flaky",), ("right", "flaky"))))
    kinds = work.choice(("series", "one-shots", "both", "both"))
    versions = {name: [*range(1, 40)] for name in _IDS + _SERIES_IDS}
    rounds = [_policy_round(work, number, settings, kinds, versions) for number in range(work.randint(3, 6))]
    how = random.Random(f"policy schedule {seed}")
    steps: list[Step] = []
    for each in rounds:
        # A process that has recorded its settings also has its lease, which the model takes some points later.
        run = [
            (name, *(n + 12 for n in of)) if name == "zombie" else (name, *of)
            for name, *of in _run(how, settings)
        ]
        steps += [*each, *run]
    return settings, steps


def _policy_round(
    work: random.Random, number: int, settings: dict[str, Any], kinds: str, versions: dict[str, list[int]]
) -> list[Step]:
    now_ms, steps = START_MS + 8 * number, []
    places = ("left", "right", *(("flaky", "flaky") if settings["retries"] else ()))
    for _ in range(work.choice((0, 1, 2, 3, 4) if number else (2, 3, 5))):
        if kinds == "series" or (kinds == "both" and work.random() < 0.5):
            command = _command_of_series(work, now_ms, versions, places)
        else:
            command = _common_command(work, now_ms, work.choice(_IDS), versions, places)
            command = replace(command, due_ms=now_ms + work.choice(_DUES))
        steps.append(("send", command))
    return [
        *steps,
        ("wait", work.choice(_WAITS)) if work.random() < 0.85 else ("jump", work.choice((-7, -1, 15))),
    ]


def _common_command(
    work: random.Random, now_ms: int, name: str, versions: dict[str, list[int]], places: Sequence[str]
) -> Command:
    return Command(
        name,
        op=int(work.random() < 0.2),
        seq=versions[name].pop(0),
        to=work.choice(places),
        lateness_ms=work.choice((None, None, None, None, 0, 6)),
        said_ms=now_ms + work.choice((-3, 0, 0, 2)),
        bad=work.random() < 0.04,
    )


def _command_of_series(
    work: random.Random, now_ms: int, versions: dict[str, list[int]], places: Sequence[str]
) -> Command:
    command = _common_command(work, now_ms, work.choice(_SERIES_IDS), versions, places)
    return command if command.op else replace(command, **_series(work, now_ms))


def _series(work: random.Random, now_ms: int) -> dict[str, Any]:
    """What a series has more than a schedule."""
    told: dict[str, Any] = {"repeat": f"every {work.choice((2, 5, 7, 7, 7))} ms", "time_zone": "UTC"}
    told |= work.choice(
        ({}, {}, {"on_missed": "none"}, {"on_missed": "all"}, {"on_missed": "all", "most": 2})
    )
    ends = {"count": work.choice((1, 2, 4))}, {"until_ms": now_ms + work.choice((-2, 9, 30))}
    told |= work.choice(({}, *ends) if told.get("on_missed") != "all" else ends)
    return {
        "repeat": json.dumps(told),
        "starts_ms": None if work.random() < 0.7 else now_ms + work.choice((-9, -2, 0, 4, 20)),
    }


# ---- tiered --------------------------------------------------------------------------------------


def tiered_steps_of(seed: int) -> tuple[dict[str, Any], list[Step]]:
    """The settings and the steps of a seed of the tiered mode."""
    work = random.Random(f"tiered workload {seed // SCHEDULES}")
    forgets = work.random() < 0.5
    settings = {
        "clock": "processing",
        "shards": work.choice((1, 1, 2)),
        "size": work.choice((3, 4)),
        "levels": work.choice((2, 3)),
        "state_levels": 1,
        "memory": work.choice((0, 5, 20)) if forgets else None,
        "limit": work.choice((None, None, 1, 2)),
        "pause_at": 2 if seed // SCHEDULES % 5 == 4 else None,
    }
    versions = {name: list(range(1, 40)) for name in _IDS}
    if not forgets:
        for each in versions.values():
            # Beyond what is remembered, an older version is new: only there versions come in any order.
            head = each[:6]
            work.shuffle(head)
            each[:6] = head
    rounds = [_tiered_round(work, number, versions) for number in range(work.randint(3, 5))]
    how = random.Random(f"tiered schedule {seed}")
    steps: list[Step] = []
    for each in rounds:
        steps += [*each, *_tiered_run(how)]
    if seed % _LANDINGS == _LANDINGS - 1:
        return {**settings, "limit": None, "pause_at": None}, _landing(how, steps)
    return settings, steps


_LANDINGS = 97
"""One seed of so many begins with a hand-over of a killed process that lands between the look of the next process and
its commit. By chance alone that comes too seldom.
"""


def _landing(how: random.Random, then: list[Step]) -> list[Step]:
    def send(name: str, due_ms: int) -> Step:
        return "send", Command(name, seq=1, due_ms=START_MS + due_ms, to="left", said_ms=START_MS)

    first: list[Step] = [send("x", how.choice((9, 12, 15, 40))), ("run", 200), ("wait", 20)]
    lands: list[Step] = [("crash", how.randint(1, 5)), ("nest", how.randint(0, 1), (("land",),))]
    return [*first, send("y", how.choice((9, 12, 15))), *lands, ("turns", "i" * 9), ("run", 200), *then]


def _tiered_round(work: random.Random, number: int, versions: dict[str, list[int]]) -> list[Step]:
    now_ms = START_MS + 8 * number
    count = work.choice((0, 1, 1, 2, 3))
    steps: list[Step] = [("send", _tiered_command(work, now_ms, versions)) for _ in range(count)]
    return [*steps, ("wait", work.choice(_WAITS)) if work.random() < 0.9 else ("jump", work.choice((-9, 40)))]


def series_steps_of(seed: int) -> tuple[dict[str, Any], list[Step]]:
    """The settings and the steps of a seed of the tiered mode with series, beside entries that are not."""
    settings, _ = tiered_steps_of(seed)
    settings = {**settings, "limit": None, "pause_at": None, "series": True}
    work = random.Random(f"series workload {seed // SCHEDULES}")
    versions = {name: [*range(1, 40)] for name in _IDS + _SERIES_IDS}
    rounds: list[list[Step]] = []
    for number in range(work.randint(3, 5)):
        series = [
            _command_of_series(work, START_MS + 8 * number, versions, ("left", "right", "topic"))
            for _ in range(work.choice((1, 1, 2, 3)))
        ]
        rounds.append([*(("send", each) for each in series), *_tiered_round(work, number, versions)])
    how = random.Random(f"series schedule {seed}")
    return settings, [step for each in rounds for step in (*each, *_tiered_run(how))]


def backlog_steps_of(seed: int) -> tuple[dict[str, Any], list[Step]]:
    """The settings and the steps of a seed of the tiered mode under the event clock: many small batches, read faster
    than they fire.
    """
    settings, _ = tiered_steps_of(seed)
    settings = {**settings, "clock": "event", "pause_at": None}
    work = random.Random(f"backlog workload {seed // SCHEDULES}")
    settings["files"] = work.choice((1, 1, 2, 3))
    settings["turns"] = work.random() < 0.5
    how = random.Random(f"backlog schedule {seed}")
    steps: list[Step] = []
    now_ms, versions = START_MS, {name: list(range(1, 60)) for name in _IDS}
    for _ in range(work.randint(2, 4)):
        for _ in range(work.choice((1, 2, 4, 7))):
            steps.append(("send", _tiered_command(work, now_ms, versions)))
            now_ms += work.choice((0, 1, 2, 4, 9, 25))
        steps += [*([("wait", 5)] if work.random() < 0.2 else []), *_tiered_run(how)]
    return settings, steps


def _tiered_command(work: random.Random, now_ms: int, versions: dict[str, list[int]]) -> Command:
    name = work.choice(_IDS)
    return Command(
        id=name,
        op=int(work.random() < 0.25),
        seq=versions[name].pop(0),
        due_ms=now_ms + work.choice(_TIERED_DUES),
        to=work.choice(("left", "right", "topic")),
        lateness_ms=work.choice((None, None, None, None, 3)),
        said_ms=now_ms,
        bad=work.random() < 0.06,
    )


_TIERED_DUES = (-5, 0, 1, 3, 6, 9, 12, 15, 20, 26, 33, 40, 70)


def _tiered_run(how: random.Random) -> list[Step]:
    steps: list[Step] = []
    luck = how.random()
    if how.random() < 0.4:
        steps.append(("nest", how.choice((0, 0, 1, 1, 2, 3, 4, 6)), _nested(how)))
    if luck < 0.3:
        steps.append(("turns", "".join(how.choices("iwk", (4, 4, 2), k=how.randint(4, 30)))))
    elif luck < 0.65:
        steps += [("crash", how.randint(0, 60)), *_outage(how)]
        if how.random() < 0.25:
            steps.append(("set", {"limit": how.choice((None, 1, 2))}))
        if how.random() < 0.5:
            steps += [("turns", "i" * how.randint(0, 9) + "kkw"), ("land",)]
    elif luck < 0.78:
        steps += (
            [("nest", 1, tuple("k" * how.randint(1, 2))), _act(how)] if how.random() < 0.5 else [_act(how)]
        )
    elif luck < 0.82:
        steps.append(("wipe",))
    return [*steps, *[("run", 200)] * how.choice((0, 1, 1))]


def _nested(how: random.Random) -> tuple[Any, ...]:
    if how.random() < 0.4:
        return (_act(how),)
    if how.random() < 0.5:
        return tuple("i" * how.randint(2, 9) + "w" * how.choice((0, 12)))
    return tuple(how.choices("iwk", k=how.randint(1, 12)))


def _act(how: random.Random) -> Step:
    kind = how.choice(("cancel", "move", "reroute"))
    return ("act", kind, how.randint(0, 3), START_MS + how.choice((5, 20, 40, 70)))


# ---- purgatory -----------------------------------------------------------------------------------


def watch_steps_of(seed: int) -> tuple[dict[str, Any], list[Step]]:
    """The settings and the steps of a seed of a purgatory."""
    work = random.Random(f"watch workload {seed // SCHEDULES}")
    settings = {
        "shards": work.choice((1, 1, 2)),
        "lookback": work.choice((0, 3)),
        "bounded": work.random() < 0.3,
        "files": work.choice((1, 2, 100)),
    }
    how = random.Random(f"watch schedule {seed}")
    steps: list[Step] = []
    time_ms = START_MS
    for _ in range(work.randint(3, 6)):
        for _ in range(work.choice((1, 2, 3, 4))):
            steps.append(("send", _ask(work, time_ms)))
            time_ms += work.choice((1, 1, 2, 5, 15))
        steps += [step for step in _run(how, settings) if step[0] != "set"]
    return settings, steps


def _ask(work: random.Random, time_ms: int) -> Ask:
    group = work.choice("gggh")
    if work.random() < 0.5:
        what = work.choice((0, 0, 0, 0, 1, 2))
        name = work.choice("op") if what == 2 else work.choice("abc")
        early_ms = work.choice((0, 0, 1, 3))  # at most DELAY_MS: none is late
        event = Event(name, time_ms - early_ms, what, work.choice((0.1, 0.7)), group)
        return Ask(event, bad=work.random() < 0.05)
    keys = tuple(work.sample("abc", work.randint(1, 3)))
    need = work.choice((SUM, BEAT, *range(1, len(keys) + 1)))
    deadline = time_ms + work.choice((1, 3, 8, 20))
    limit = deadline + work.choice((4, 9)) if need > 0 and work.random() < 0.3 else None
    name = work.choice("op")
    request = Request(name, keys, need, time_ms, deadline, 1.0, limit, group)
    return Ask(request, to={"go": "left", "gp": "topic"}.get(group + name, "right"))
