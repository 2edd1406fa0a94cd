"""Contributors: add data to the ticks of the shards. Each adds a member to the offset of the clock, which Spark
journals, and a field to the ticks made of it; so a replay sees the same.

::

    Acts      cancels, moves, reroutes of pending entries: their number in the offset, the rows of new ones in the ticks
    Sender    the news of the query's sender, and whether it is a reason for a batch
    Shares    the shards' parts of the most rows of a batch
    Returns   entries that could not be delivered: their number in the offset, the rows in the ticks; and the
              destinations that rest

Imports the standard library only: it runs in the planning process of the clock source.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wheel_udf.control.board import ACTS, BREAKERS, RETURNED, SENDERS, Sending, ShardBoard
from wheel_udf.control.pace import Offset, Reports
from wheel_udf.control.reports import query_of, sender_calls
from wheel_udf.control.shares import shares_of
from wheel_udf.policies.sender_news import SenderNews

Fields = Mapping[str, Any]


class Contributor(ABC):
    """Adds something to the offsets of the clock, and to the ticks."""

    def calls(self, reports: Reports, now_ms: int) -> bool:  # noqa: ARG002  # of the protocol
        """Whether this contributor needs a batch, even if the time need not advance."""
        return False

    @abstractmethod
    def added(self, start: Offset, offer: Offset, reports: Reports) -> Offset:
        """The offer with its member; `start` made later if that alone is a reason for a batch."""

    @abstractmethod
    def fields(self, start: Offset, end: Offset, shards: int) -> Sequence[Fields]:
        """Its fields of the ticks between two offsets, by shard."""


@dataclass
class Acts(Contributor):
    """The acts on the entries of the query. One moves a simulated clock no further, so it is added to the same time.

    Attributes:
        board: Where the courier posts them.
        run: The run of the clock source.
        frame: The operator's frame.
    """

    board: ShardBoard
    run: str
    frame: str

    def added(self, start: Offset, offer: Offset, reports: Reports) -> Offset:  # noqa: ARG002  # of the protocol
        """As :meth:`Contributor.added`: the number of posted acts, and the query."""
        query = start.get("query") or query_of(self.board, self.run, self.frame)
        posted = start.get("acts", 0)
        while query is not None and self.board.has(ACTS, f"{query}/{posted}"):
            posted += 1
        return {**offer, "query": query, "acts": posted} if posted else offer

    def fields(self, start: Offset, end: Offset, shards: int) -> Sequence[Fields]:
        """As :meth:`Contributor.fields`.

        Raises:
            FileNotFoundError: An act is not on the board.
        """
        found: list[list[str]] = [[] for _ in range(shards)]
        for number in range(start.get("acts", 0), end.get("acts", 0)):
            act = self.board.get(ACTS, f"{end['query']}/{number}")
            if act is None:
                raise FileNotFoundError(f"act {number} of query {end['query']} is not on the board")
            for shard, rows in act.by_shard.items():
                found[int(shard)].append(rows)
        return [{"acts": tuple(rows)} for rows in found]


@dataclass
class Sender(Contributor):
    """The news of the query's sender. Reasons for a batch: an entry comes within the sender's horizon, the sender has
    confirmed all rows of a batch, or it has failed (the batch then raises the error).

    Attributes:
        board: Where the sender posts.
        frame: The operator's frame.
    """

    board: ShardBoard
    frame: str
    _sending: Sending | None = field(default=None, init=False)

    def calls(self, reports: Reports, now_ms: int) -> bool:
        """As :meth:`Contributor.calls`."""
        self._sending = self.board.get(SENDERS, self.frame)
        return self._sending is not None and sender_calls(self._sending, reports, now_ms)

    def added(self, start: Offset, offer: Offset, reports: Reports) -> Offset:  # noqa: ARG002  # of the protocol
        """As :meth:`Contributor.added`."""
        return offer if offer == start or self._sending is None else {**offer, "sender": self._sending.news}

    def fields(self, start: Offset, end: Offset, shards: int) -> Sequence[Fields]:  # noqa: ARG002  # of the protocol
        """As :meth:`Contributor.fields`."""
        news = end.get("sender")
        return [{"sender": SenderNews.from_json(news) if news else None}] * shards


@dataclass
class Returns(Contributor):
    """The entries that come back because they could not be delivered, and the destinations that rest. An entry that
    comes back is a reason for a batch; it moves a simulated clock no further.

    Attributes:
        board: Where the delivery posts them.
        run: The run of the clock source.
        frame: The operator's frame.
    """

    board: ShardBoard
    run: str
    frame: str

    def added(self, start: Offset, offer: Offset, reports: Reports) -> Offset:  # noqa: ARG002  # of the protocol
        """As :meth:`Contributor.added`: the number of posted files, the query, and what rests."""
        query = start.get("query") or query_of(self.board, self.run, self.frame)
        if query is None:
            return offer
        posted = start.get("returned", 0)
        while self.board.has(RETURNED, f"{query}/{posted}"):
            posted += 1
        if posted:
            offer = {**offer, "query": query, "returned": posted}
        if offer == start:
            return offer
        resting = self.board.get(BREAKERS, query)
        others = {name: value for name, value in offer.items() if name != "closed"}
        return {**others, "closed": resting.until_ms} if resting and resting.until_ms else others

    def fields(self, start: Offset, end: Offset, shards: int) -> Sequence[Fields]:
        """As :meth:`Contributor.fields`.

        Raises:
            FileNotFoundError: What comes back is not on the board.
        """
        found: list[list[str]] = [[] for _ in range(shards)]
        for number in range(start.get("returned", 0), end.get("returned", 0)):
            rows = self.board.get(RETURNED, f"{end['query']}/{number}")
            if rows is None:
                raise FileNotFoundError(
                    f"what comes back ({number} of query {end['query']}) is not on the board"
                )
            for shard, text in rows.by_shard.items():
                found[int(shard)].append(text)
        closed = tuple(end.get("closed", {}).items())
        return [{"returned": tuple(rows), "closed": closed} for rows in found]


@dataclass
class Shares(Contributor):
    """The division of a limit (:mod:`wheel_udf.control.shares`).

    Attributes:
        limit: Most rows of a batch.
        shards: Number of shards.
    """

    limit: int
    shards: int

    def added(self, start: Offset, offer: Offset, reports: Reports) -> Offset:
        """As :meth:`Contributor.added`: in place of the shares of the offset before; none if they are even."""
        if offer == start:
            return offer
        shares = shares_of(self.limit, reports, self.shards)
        others = {name: value for name, value in offer.items() if name != "shares"}
        return others if shares is None else {**others, "shares": shares}

    def fields(self, start: Offset, end: Offset, shards: int) -> Sequence[Fields]:  # noqa: ARG002  # of the protocol
        """As :meth:`Contributor.fields`."""
        return [{"share": share} for share in end.get("shares", [None] * shards)]
