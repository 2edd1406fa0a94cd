"""What the sender of a query reports to the shards: :class:`SenderNews`, which travels in the clock's offset.

::

    sender on the driver --SenderNews--> board --> offset of the clock (journaled) --> tick of each shard

    Confirmed(since=12, batch=40, until_ms=10:00:04.200)     Kafka has acknowledged all rows that batches 12 to 40
                                                             have handed over and that were due by 10:00:04.200
    10:00:04.200 = the earliest row that is not acknowledged, less 1 ms; the largest int64 if there is none

Each start of a query has a sender of its own, which gets what the batches from ``since`` on hand over. What an earlier
sender has noted about its own batches comes before it in :attr:`SenderNews.confirmed`.

Imports the standard library only: it is read in the planning process of the clock source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Confirmed:
    """What one sender has confirmed.

    Attributes:
        since: The first batch whose rows this sender gets.
        batch: The last batch whose rows it has got; less than `since` if there is none.
        until_ms: Of these rows, all that are due by this instant are acknowledged.
    """

    since: int
    batch: int
    until_ms: int

    def covers(self, batch: int) -> bool:
        """Whether the rows of a batch were given to this sender."""
        return self.since <= batch <= self.batch

    def before(self, batch: int) -> Confirmed:
        """The same for the batches before one: a later batch may have been removed by a repair and planned anew."""
        return Confirmed(self.since, min(self.batch, batch - 1), self.until_ms)


@dataclass(frozen=True, slots=True)
class SenderNews:
    """What the shards of a query are told.

    Attributes:
        ahead_ms: How long before its due time a row is handed over.
        free_rows: How many more rows the sender takes, from all shards together.
        free_bytes: Their size.
        confirmed: What is confirmed, by earlier senders and, last, by the present one.
    """

    ahead_ms: int
    free_rows: int
    free_bytes: int
    confirmed: tuple[Confirmed, ...]

    @property
    def present(self) -> Confirmed:
        """Of the present sender."""
        return self.confirmed[-1]

    def to_json(self) -> dict[str, Any]:
        """The news as values of JSON."""
        return asdict(self) | {"confirmed": confirmed_to_json(self.confirmed)}

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> SenderNews:
        """The inverse of :meth:`to_json`; raises ValueError for something else."""
        try:
            numbers = {name: int(found[name]) for name in ("ahead_ms", "free_rows", "free_bytes")}
            return SenderNews(**numbers, confirmed=confirmed_from_json(found["confirmed"]))
        except (KeyError, TypeError) as fault:
            raise ValueError(found) from fault


def confirmed_to_json(confirmed: Iterable[Confirmed]) -> list[list[int]]:
    """What senders have confirmed, as values of JSON: ``[since, batch, until_ms]`` of each."""
    return [list(astuple(each)) for each in confirmed]


def confirmed_from_json(found: Any) -> tuple[Confirmed, ...]:
    """The inverse of :func:`confirmed_to_json`, for at least one sender; raises ValueError for something else."""
    try:
        read = tuple(Confirmed(*map(int, each)) for each in found)
    except TypeError as fault:
        raise ValueError(found) from fault
    if not read:
        raise ValueError(found)
    return read
