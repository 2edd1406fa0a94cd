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
from typing import Any, ClassVar

from wheel_udf.control.board import ACTS, BREAKERS, RETURNED, SENDERS, ActRows, Sending, ShardBoard, Topic
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
class _Posted(Contributor):
    """Adds what somebody posts for the query, numbered: to the offset how many, to the ticks the texts of their shards.
    What is posted moves a simulated clock no further, so it is added to the same time.

    Attributes:
        board: Where it is posted.
        run: The run of the clock source.
        frame: The operator's frame.
    """

    board: ShardBoard
    run: str
    frame: str

    TOPIC: ClassVar[Topic[ActRows]]
    """The topic; its name is that of the member of the offset, too."""

    WHICH: ClassVar[str]
    """What a post is called in an error, with its ``number`` and ``query``."""

    def _query(self, start: Offset) -> str | None:
        found: str | None = start.get("query") or query_of(self.board, self.run, self.frame)
        return found

    def _with_posted(self, start: Offset, offer: Offset) -> Offset:
        """The offer with the number posted, and the query."""
        query, name = self._query(start), self.TOPIC.name
        posted = start.get(name, 0)
        while query is not None and self.board.has(self.TOPIC, f"{query}/{posted}"):
            posted += 1
        return {**offer, "query": query, name: posted} if posted else offer

    def _texts(self, start: Offset, end: Offset, shards: int) -> list[tuple[str, ...]]:
        """What was posted between two offsets, by shard.

        Raises:
            FileNotFoundError: Some of it is not on the board.
        """
        name = self.TOPIC.name
        found: list[list[str]] = [[] for _ in range(shards)]
        for number in range(start.get(name, 0), end.get(name, 0)):
            posted = self.board.get(self.TOPIC, f"{end['query']}/{number}")
            if posted is None:
                which = self.WHICH.format(number=number, query=end["query"])
                raise FileNotFoundError(f"{which} is not on the board")
            for shard, text in posted.by_shard.items():
                found[int(shard)].append(text)
        return [tuple(texts) for texts in found]


@dataclass
class Acts(_Posted):
    """The acts on the entries of the query, which the courier posts."""

    TOPIC: ClassVar[Topic[ActRows]] = ACTS
    WHICH: ClassVar[str] = "act {number} of query {query}"

    def added(self, start: Offset, offer: Offset, reports: Reports) -> Offset:  # noqa: ARG002  # of the protocol
        """As :meth:`Contributor.added`: the number of posted acts, and the query."""
        return self._with_posted(start, offer)

    def fields(self, start: Offset, end: Offset, shards: int) -> Sequence[Fields]:
        """As :meth:`Contributor.fields`.

        Raises:
            FileNotFoundError: An act is not on the board.
        """
        return [{"acts": texts} for texts in self._texts(start, end, shards)]


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
class Returns(_Posted):
    """The entries that come back because they could not be delivered, which the delivery posts, and the destinations
    that rest. An entry that comes back is a reason for a batch.
    """

    TOPIC: ClassVar[Topic[ActRows]] = RETURNED
    WHICH: ClassVar[str] = "what comes back ({number} of query {query})"

    def added(self, start: Offset, offer: Offset, reports: Reports) -> Offset:  # noqa: ARG002  # of the protocol
        """As :meth:`Contributor.added`: the number of posted files, the query, and what rests."""
        offer, query = self._with_posted(start, offer), self._query(start)
        if query is None or offer == start:
            return offer
        resting = self.board.get(BREAKERS, query)
        others = {name: value for name, value in offer.items() if name != "closed"}
        return {**others, "closed": resting.until_ms} if resting and resting.until_ms else others

    def fields(self, start: Offset, end: Offset, shards: int) -> Sequence[Fields]:
        """As :meth:`Contributor.fields`.

        Raises:
            FileNotFoundError: What comes back is not on the board.
        """
        closed = tuple(end.get("closed", {}).items())
        return [{"returned": texts, "closed": closed} for texts in self._texts(start, end, shards)]


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
