"""Punctual delivery, as a setting of ``schedule``: :class:`Punctual`.

::

    schedule(..., punctual=Punctual(ahead_ms=4_000))
        batch at 10:00:00     an entry due by 10:00:04 leaves as a row of kind `ahead`; deliver() gives it to the sender
        10:00:04.000          the sender of the query gives it to Kafka

Imports the standard library and the pure rooms only: it runs on executors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from wheel_udf.common.arrays import Bools
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.names import AllowList
from wheel_udf.policies.by_destination import of_each
from wheel_udf.policies.in_flight import HandOver
from wheel_udf.policies.limits import share_of
from wheel_udf.policies.sender_news import SenderNews

NOTED_PROPERTY: Final = "wheel_udf.noted"
"""Local property of the tasks of a query without a sender: the news (:class:`~wheel_udf.wheel.SenderNews`) of earlier
senders from the checkpoint's note, which does not change while no sender runs, so a repeated batch gets the same."""

DEFAULT_AHEAD_MS: Final = 4_000
"""How long before its due time an entry is handed over, until the times of the batches are known."""

LEAST_AHEAD_MS: Final = 100
MOST_AHEAD_MS: Final = 600_000


@dataclass(frozen=True, kw_only=True)
class Punctual:
    """Hands entries to a sender before they are due; the sender gives each to Kafka at its due time.

    Attributes:
        ahead_ms: How long before; None: about twice the time of a batch, measured while the query runs.
        destinations: Names and patterns of the destinations that are served so; None: all. Their sinks are Kafka's.
        among: All names and patterns of the allow-list, in their order; None: they are those of `destinations`.
        rows: The most rows that wait at the sender; 0: nothing is handed over. Entries over this capacity are released
            by a batch when they are due.
        bytes: The most bytes that wait there.

    Raises:
        ConfigError: A setting is out of range.
    """

    ahead_ms: int | None = None
    destinations: tuple[str, ...] | None = None
    among: tuple[str, ...] | None = None
    rows: int = 200_000
    bytes: int = 268_435_456

    def __post_init__(self) -> None:
        for name in ("destinations", "among"):
            given = getattr(self, name)
            object.__setattr__(self, name, None if given is None else tuple(given))
        bounds = (
            ("ahead_ms", self.ahead_ms, LEAST_AHEAD_MS, MOST_AHEAD_MS),
            ("rows", self.rows, 0, 10_000_000),
        )
        for name, value, least, most in (*bounds, ("bytes", self.bytes, 1_048_576, 8_589_934_592)):
            if value is not None and not least <= value <= most:
                what = "a setting of punctual delivery is out of range"
                raise ConfigError(what, field=f"punctual.{name}", value=value, rule=f"{least} to {most}")

    @cached_property
    def _allowed(self) -> AllowList:
        return AllowList(self.among or self.destinations or ("*",))

    def serves(self, name: str | None) -> bool:
        """Whether a destination is served by the sender."""
        if name is None or self.destinations is None:
            return name is not None
        return self._allowed.first(name) in self.destinations

    def mask(self, names: pa.ChunkedArray) -> Bools:
        """:meth:`serves` of many destinations, few of them distinct."""
        return np.asarray(of_each(names, self.serves, pa.bool_()), dtype=bool)

    def hand_over(
        self,
        batch_id: int,
        shard: int,
        shards: int,
        news: SenderNews | None,
        held: Callable[[], tuple[int, int]],
    ) -> HandOver:
        """How a shard hands entries over in a batch.

        Args:
            batch_id: The batch.
            shard: Number of the shard.
            shards: Number of shards.
            news: The news of the sender; None in a batch without. The shard then computes the free capacity itself.
            held: Counts the shard's entries that the sender has, and their bytes.
        """
        if news is None:
            rows, octets = held()
            rows = max(0, share_of(self.rows, shard, shards) - rows)
            octets = max(0, self.bytes // shards - octets)
            ahead_ms = DEFAULT_AHEAD_MS if self.ahead_ms is None else self.ahead_ms
            return HandOver(batch_id, ahead_ms, self.mask, rows, octets)
        rows = share_of(news.free_rows, shard, shards)
        return HandOver(batch_id, news.ahead_ms, self.mask, rows, news.free_bytes // shards, news.confirmed)
