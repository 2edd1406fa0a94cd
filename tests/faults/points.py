"""The matrix: the points at which a process is killed, and the chains of kills that ``make faults`` draws from it.

A chain is one job: it starts, is killed at a point, starts again from its checkpoint, is killed at the next point, and
so on; the last start runs it to its end, and the sinks are checked. So each kill is also the restart after the one
before.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

DIRECT, TIERED, PURGATORY = MODES = ("direct", "tiered", "purgatory")
ALL: Final = frozenset(MODES)
_TIERED: Final = frozenset([TIERED])

BATCH: Final = {
    "after the offset log": ALL,
    "in the source read": ALL,
    "in the function, before its step": ALL,
    "in the function, files of chunks written, their note not": ALL,
    "in the function, after its step": ALL,
    "in an upload of the state": ALL,
    "between two commits of the state": ALL,
    "after the commit of the state": ALL,
    "before the Delta commits": ALL,
    "in a Delta commit, its files written": ALL,
    "between two Delta commits": ALL,
    "after the Delta commits, before the rejects": ALL,
    "before the commit log": ALL,
    "in the clean-up of the logs": ALL,
    "at any moment": ALL,
    "after the offset log of the intake": _TIERED,
    "before the commit of the intake": _TIERED,
    "after the commit of the intake": _TIERED,
    "in a hand-over, before its commit": _TIERED,
    "in a hand-over, between append and drop": _TIERED,
    "in a retirement, between append and drop": _TIERED,
}
"""Points that a running job comes to, and the modes that have them."""

ACTS: Final = ("in an act, before its commit", "in an act, after its commit")
"""Points of a process of its own that acts on pending entries."""

_ACTED: Final = frozenset([DIRECT, TIERED])

EXPORTS: Final = (
    "in an export, between two tables",
    "in an export, before its manifest",
    "in an export, before the mark",
    "in an import, before it is done",
)
"""Points of a move to a new checkpoint; each is reached once in a job."""

KAFKA: Final = ("between Kafka and Delta", "between Delta and Kafka")
"""Points between the two sinks of a job that delivers to both."""

SEEDS: Final = 4
"""Seed 0 is the tenth that ``make nightly`` runs; each of the others has every point in each of its modes."""

_SENTINELS: Final = {
    DIRECT: ("after the commit of the state", ACTS[1], EXPORTS[2]),
    TIERED: ("in a hand-over, between append and drop", ACTS[1], EXPORTS[2]),
    PURGATORY: ("between two Delta commits", EXPORTS[2]),
}
"""The points of the one chain of each mode that CI runs: in a batch, in an act, in a move."""

_KILLS_OF_A_CHAIN: Final = 7


@dataclass(frozen=True)
class Kill:
    """One start that is killed: at which point, and at the how many-th time that it gets there."""

    point: str
    times: int


@dataclass(frozen=True)
class Chain:
    """One job: its mode, the seed of its input, its kills in order."""

    mode: str
    seed: int
    kills: tuple[Kill, ...]

    def __str__(self) -> str:
        return f"{self.mode}-{self.seed}"


@dataclass(frozen=True)
class Order:
    """What a process has to do.

    Attributes:
        folder: Of the chain.
        mode: Of the job.
        files: How many files of input there are in the end.
        kafka: Bootstrap servers, if one of the destinations is a topic.
        todo: ``run`` (to the end of the input), ``act N``, ``move``, ``finish`` (to the end of time).
    """

    folder: str
    mode: str
    files: int
    kafka: str | None = None
    todo: list[str] = field(default_factory=list)


def chains(share: float) -> list[Chain]:
    """All chains; of a share below 1 those of seed 0, which have each point once, in one of its modes."""
    tenth = [
        _chain(mode, part, points) for mode in MODES for part, points in enumerate(_halves(_share_of(mode)))
    ]
    if share < 1:
        return tenth
    return tenth + [
        _chain(mode, 100 * seed + part, points)
        for seed in range(1, SEEDS)
        for mode in MODES
        for part, points in enumerate(_parts(mode, seed))
    ]


def sentinel(mode: str) -> Chain:
    """The chain of a mode that CI runs."""
    return Chain(mode, 0, tuple(Kill(point, 1) for point in _SENTINELS[mode]))


def points_of(mode: str) -> list[str]:
    """All points of a mode."""
    return [
        *(point for point, modes in BATCH.items() if mode in modes),
        *(ACTS if mode in _ACTED else ()),
        *EXPORTS,
    ]


def _share_of(mode: str) -> list[str]:
    """Each point in one mode: those that several modes have in turn."""
    places = [*BATCH.items(), *((point, _ACTED) for point in ACTS), *((point, ALL) for point in EXPORTS)]
    common = [point for point, modes in places if modes == ALL]
    return [
        point
        for point, modes in places
        if (MODES[common.index(point) % 3] == mode if modes == ALL else mode in modes)
    ]


def _halves(points: list[str]) -> list[list[str]]:
    """In two chains, so that two processes share them; the moves at the end of the second."""
    count = len(points) // 2
    return [points[:count], points[count:]] if len(points) > _KILLS_OF_A_CHAIN else [points]


def _parts(mode: str, seed: int) -> list[list[str]]:
    """The points of a mode in an order of this seed, in parts of about the same size; each part moves the job at its
    end.
    """
    rng = random.Random(f"{mode} {seed}")
    running = [point for point in points_of(mode) if point not in EXPORTS]
    moving = list(EXPORTS)
    rng.shuffle(running)
    count = -(-(len(running) + len(moving)) // _KILLS_OF_A_CHAIN)
    return [running[part::count] + moving[part::count] for part in range(count)]


def _chain(mode: str, seed: int, points: list[str]) -> Chain:
    rng = random.Random(f"{mode} {seed} times")
    return Chain(mode, seed, tuple(Kill(point, _times(rng, point)) for point in points))


def _times(rng: random.Random, point: str) -> int:
    once = point in (*ACTS, *EXPORTS) or "retirement" in point or "clean-up" in point
    return 1 if once else rng.choice((1, 1, 2))
