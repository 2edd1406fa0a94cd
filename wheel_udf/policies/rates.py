"""The policy ``Gate``: rates of destinations, and destinations that rest because they fail.

A *rate* is a token bucket for each destination, on the wheel's clock: ``rate`` tokens a second, at most ``burst`` of
them saved. A due entry takes a token with it, oldest first; what finds none is held back, and asks again when a token
should be there for it (GCRA, the generic cell rate algorithm of ITU-T I.371)::

    rate 10/s, burst 2       due at 0: a b c d e
    clock 0                  a b leave (the saved tokens)     c d e ask again at 100, 200, 300
    clock 150                c leaves                         d e wait on, each in its bucket of the wheel

So a backlog costs nothing until its turn comes, and a held entry is pending like any other: it can be cancelled,
replaced, moved. Each shard has an equal part of a rate. In any span of time no more leaves than rate times span plus
burst, also across a restart: the tokens are in the state of the shard.

A *breaker* that is open (:mod:`wheel_udf.sinks.breaker`) is a rate of nothing until an instant; from then on one entry
of a shard may leave with a batch, to try, until the breaker is closed.

Caveat: entries that were held back are released a little before others that are due, in the order of their due times;
an entry that comes while a token is free takes it, even if others are about to ask again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.arrays import Bools, Int64s
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.rates import MOST_PER_S
from wheel_udf.policies.by_destination import ByDestination, of_each
from wheel_udf.policies.limits import share_of
from wheel_udf.wheel.policies import Passed

PROBE_AGAIN_MS: Final = 1_000
"""When the entries behind one that tries a destination ask again."""


@dataclass(frozen=True)
class Rate:
    """How much a destination gets.

    Attributes:
        per_s: Entries a second, above 0.
        burst: The most tokens that are saved, at least one for each shard.
    """

    per_s: float
    burst: int

    def __post_init__(self) -> None:
        if not 0 < self.per_s <= MOST_PER_S:
            raise ConfigError(
                "out of range", field="rate", value=self.per_s, rule=f"above 0/s to {MOST_PER_S}/s"
            )

    def share(self, shard: int, shards: int) -> tuple[int, int]:
        """The part of a shard: microseconds for a token, tokens that are saved."""
        return -int(-1_000_000 * shards // self.per_s), max(1, share_of(self.burst, shard, shards))


class Rates(ByDestination[Rate]):
    """The rates of a job."""

    def mask(self, names: pa.ChunkedArray) -> Bools:
        """Which of many destinations, few of them distinct, have a rate."""
        return np.asarray(of_each(names, lambda name: self.of(name) is not None, pa.bool_()), dtype=bool)


NO_RATES: Final = Rates()


@dataclass(frozen=True)
class Turnstile:
    """The policy ``Gate`` of one shard.

    Attributes:
        rates: The rates of the job.
        shard: Number of the shard.
        shards: Number of shards.
        closed: Destinations that rest, each with the instant from which on it may be tried.
    """

    rates: Rates
    shard: int
    shards: int
    closed: Mapping[str, int] = field(default_factory=dict)

    def pass_through(
        self,
        tokens: str,
        destinations: pa.ChunkedArray,
        has_waited: Bools,
        clock_ms: int,
        *,
        limit: int | None,
        pending: int,
    ) -> Passed:
        """As :meth:`wheel_udf.wheel.policies.Gate.pass_through`. Cost: a look at each distinct destination."""
        size = len(destinations)
        leaves, wake_ms = np.ones(size, bool), np.zeros(size, np.int64)
        buckets = {} if not tokens else {name: _Bucket(*each) for name, each in json.loads(tokens).items()}
        asking: list[tuple[str, Int64s, int]] = []
        for name in pc.unique(destinations).to_pylist():
            if (bucket := self._bucket(name, buckets, clock_ms)) is None:
                continue
            rows = np.flatnonzero(pc.equal(destinations, name).to_numpy())
            free = min(len(rows), bucket.free(clock_ms))
            if name in self.closed:
                free = min(free, int(clock_ms >= self.closed[name]))
            leaves[rows[free:]] = False
            asking.append((name, rows, free))
        if limit is not None:
            leaves &= np.cumsum(leaves) <= limit
        for name, rows, free in asking:
            bucket = buckets[name]
            bucket.take(int(leaves[rows[:free]].sum()), clock_ms)
            held = rows[free:]
            if name in self.closed:
                wake_ms[held] = self._after_rest(self.closed[name], len(held), clock_ms)
            else:
                wake_ms[held] = bucket.turns(has_waited[held], clock_ms, pending)
        left = {name: each.to_json() for name, each in buckets.items() if not each.is_full(clock_ms)}
        return Passed(leaves, wake_ms, json.dumps(left) if left else "")

    def _bucket(self, name: str, buckets: dict[str, _Bucket], clock_ms: int) -> _Bucket | None:
        """The bucket of a destination, made if it has a rate or rests; None if all may leave."""
        rate = self.rates.of(name)
        if rate is None and name not in self.closed:
            buckets.pop(name, None)
            return None
        bucket = buckets.setdefault(name, _Bucket(1000 * clock_ms, clock_ms))
        bucket.token_us, bucket.burst = (
            (1, MOST_PER_S) if rate is None else rate.share(self.shard, self.shards)
        )
        return bucket

    @staticmethod
    def _after_rest(until_ms: int, size: int, clock_ms: int) -> Int64s:
        """When the rows ask again that a resting destination does not get: the first tries it."""
        if clock_ms >= until_ms:
            return np.full(size, clock_ms + PROBE_AGAIN_MS, np.int64)
        wake_ms = np.full(size, until_ms + PROBE_AGAIN_MS, np.int64)
        wake_ms[:1] = until_ms
        return wake_ms


@dataclass
class _Bucket:
    """The tokens of one destination in one shard.

    Attributes:
        empty_us: When the bucket is full again (the theoretical arrival time of GCRA), in us.
        tail_ms: When the last of those that wait asks again.
        token_us: Time for one token.
        burst: The most tokens.
    """

    empty_us: int
    tail_ms: int
    token_us: int = 1
    burst: int = 1

    def to_json(self) -> list[int]:
        return [self.empty_us, self.tail_ms]

    def is_full(self, clock_ms: int) -> bool:
        return self.empty_us <= 1000 * clock_ms and self.tail_ms <= clock_ms

    def free(self, clock_ms: int) -> int:
        """How many tokens there are."""
        missing_us = max(0, self.empty_us - 1000 * clock_ms)
        return max(0, (self.burst * self.token_us - missing_us) // self.token_us)

    def take(self, number: int, clock_ms: int) -> None:
        if number:
            self.empty_us = max(self.empty_us, 1000 * clock_ms) + number * self.token_us

    def turns(self, has_waited: Bools, clock_ms: int, pending: int) -> Int64s:
        """When rows without a token ask again: those that have waited next, the others behind all that wait."""
        first_us = max(self.empty_us, 1000 * clock_ms) - (self.burst - 1) * self.token_us
        wake_ms = np.zeros(len(has_waited), np.int64)
        again = int(has_waited.sum())
        wake_ms[has_waited] = _ms(first_us + self.token_us * np.arange(again))
        first_us += again * self.token_us
        # What was cancelled meanwhile has left a gap before the tail; at most so many can wait.
        tail_ms = min(self.tail_ms, clock_ms + (pending * self.token_us) // 1000)
        begin_us = max(first_us, 1000 * tail_ms + self.token_us)
        wake_ms[~has_waited] = _ms(begin_us + self.token_us * np.arange(len(has_waited) - again))
        wake_ms = np.maximum(wake_ms, clock_ms + 1)
        if len(wake_ms):
            self.tail_ms = max(tail_ms, int(wake_ms.max()))
        return wake_ms


def _ms(instants_us: Int64s) -> Int64s:
    """Microseconds as milliseconds, rounded up."""
    return np.asarray(-(-instants_us // 1000), np.int64)
