"""The clock source: a Spark data source that brings time to the operator as data.

Spark runs a batch only when a source has something new, and a group sees time only in a batch that contains a
row for it. So time is a source beside the commands: each of its offsets yields one row per shard. Spark
journals the time of a batch (offset, watermark, batch timestamp) before the batch runs. A replay therefore
sees the same time, and a test need not wait. The kinds of clock are in
:mod:`wheel_udf.clock.clocks`.

No empty ticks
    The source offers a new offset only when the earliest pending entry is due or a heartbeat has passed since
    the last offset.
    This is the streaming form of the delay queue of buckets in Kafka's timer, where a thread sleeps until the
    earliest non-empty bucket expires. The next due time comes from the *hint*: the last answer of every
    shard, posted to a :class:`~wheel_udf.clock.due_board.HintBoard` under the query's id. A missing answer,
    or one of another query, counts as "due now". So a lost hint costs a tick and never delays a firing.

A step back
    A shard writes its clock only when it has got something, so after a step back of the wall clock (or after
    ``until``) one shard would stand at the latest instant and another before it, and what is due would depend on
    the number of shards. So the source then offers one tick with the latest instant that any shard has reached,
    and each shard stands there until time has passed it again. After a restart the source knows this from the
    answers to its first tick.

Bounded input (``availableNow``)
    A union hands out the clock's next offset together with the first file of the other sources, so the end
    instant must not travel in it. While the last batch contained input, the clock offers one plain tick per
    batch. After the first batch without input it offers ``until``, then further ticks while a backlog over
    the limit is left; then it ends.

Acts
    Cancels, moves and reroutes of what waits in the state (:mod:`wheel_udf.pending.acts`) travel with the clock. The
    offset has their number; the rows of those between two offsets are in the ticks of the shards they concern. So
    Spark journals which batch takes them, and a replay sees the same. New acts are a reason for a tick, which then
    moves a simulated clock no further.

Sender
    Where entries are handed to a sender ahead of their due time (:mod:`wheel_udf.wheel.in_flight`), its news travel with the clock, too: they
    are in the offset, and in each tick. There are three more reasons for a tick: an entry comes within reach of the sender, the sender has
    confirmed all that a batch has handed over, and the sender has failed, which the batch then raises.

Planning process
    Spark starts one Python process beside the driver per running clock source, and most of its start is
    imports. Planning must therefore not import numpy, pandas or pyarrow; only :meth:`ClockReader.read`, which
    runs in tasks, does. A unit test checks it.

Caveats: only this module reads a wall clock. The hint board is a folder on the driver's machine. Where
executors run on other machines, only a query started by :func:`wheel_udf.delivery.query.deliver` has its
answers posted there; any other query ticks on every trigger and cannot run on to ``until``.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

# Spark 4.2 does not export this protocol class from pyspark.sql.datasource.
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from wheel_udf.clock.answers import earliest_due_ms, is_due, is_waiting, sender_calls, watermark_ms
from wheel_udf.clock.clocks import Clock, EventClock, SimulatedClock, StoreClock, clock_from_json
from wheel_udf.clock.due_board import Answer, HintBoard, Sending
from wheel_udf.clock.shares import shares_of

if TYPE_CHECKING:
    import pyarrow as pa

CLOCK_FORMAT = "wheel-clock"
CLOCK_SCHEMA = "shard int, instant_ms long, run string, acts string"
SENDER_COLUMN = "sender"
"""The column that a query with a sender has besides, a string: the news of the sender."""
SHARE_COLUMN = "share"
"""The column that a query with a limit has besides, a long: the shard's part of it (:mod:`wheel_udf.clock.shares`), or null."""
_MARK = "wheel_clock"
_INSTANT_COMES_MS = 2_000
"""Much longer than the keeper of a store takes to publish the instant of a commit."""
INSTANT_BEFORE_ALL_MS = -(2**62)
"""The clock of a store before its keeper has published an instant."""


def is_clock_offset(text: str) -> bool:
    """Whether a line of Spark's offset log is an offset of this source."""
    return f'"{_MARK}"' in text


class ClockSource(DataSource):
    """The streaming source of clock rows (:data:`CLOCK_SCHEMA`): one row per shard for each offset."""

    @classmethod
    def name(cls) -> str:
        """The name under which Spark finds the source."""
        return CLOCK_FORMAT

    def schema(self) -> str:
        """See :data:`CLOCK_SCHEMA`, :data:`SENDER_COLUMN` and :data:`SHARE_COLUMN`."""
        sender = [f"{SENDER_COLUMN} string"] if "sender" in self.options else []
        share = [f"{SHARE_COLUMN} long"] if "limit" in self.options else []
        return ", ".join([CLOCK_SCHEMA, *sender, *share])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002  # Spark's signature
        """The reader. Spark keeps one per query, in a Python process beside the driver."""
        return ClockReader(
            clock_from_json(self.options["clock"]),
            int(self.options["shards"]),
            HintBoard(self.options["folder"]),
            self.options.get("frame", ""),
            has_sender="sender" in self.options,
            limit=int(self.options["limit"]) if "limit" in self.options else None,
        )


@dataclass
class TickPartition(InputPartition):
    """The rows of one offset, one per shard; sent to the task that makes them.

    Attributes:
        shards: Number of shards.
        instant_ms: The instant that the offset carries.
        run: Run of the clock source.
        acts: Rows of acts, as text by shard.
        news: The news of the sender; empty if the offset has none, None in a query without a sender.
        shares: The parts of a limit by shard, None for even ones; empty in a query without a limit.
    """

    shards: int
    instant_ms: int | None
    run: str
    acts: dict[int, str]
    news: str | None
    shares: list[int | None]

    def __init__(
        self,
        shards: int,
        instant_ms: int | None,
        run: str,
        acts: dict[int, str],
        news: str | None = None,
        shares: Sequence[int | None] = (),
    ) -> None:
        self.shards, self.instant_ms, self.run, self.acts, self.news = shards, instant_ms, run, acts, news
        self.shares = list(shares)


Offset = dict[str, Any]


class ClockReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Decides, each time Spark plans a batch, whether time moves on.

    An offset is ``{wheel_clock: counter}``, plus ``instant_ms`` where the offset itself carries the time (a
    simulated instant, a published one, or ``until``), plus ``acts``, the number of acts that were taken,
    and ``query``, the id of the query they are on, from the first act on. In a query with a sender, ``sender`` is its news; in one with a limit,
    ``shares`` are the parts of the shards, unless they are even.
    """

    def __init__(
        self,
        clock: Clock | StoreClock,
        shards: int,
        board: HintBoard,
        frame: str = "",
        *,
        has_sender: bool = False,
        limit: int | None = None,
    ) -> None:
        self.clock, self.shards, self.board, self.frame = clock, shards, board, frame
        self.has_sender, self.limit = has_sender, limit
        self.run = uuid.uuid4().hex
        self.bounded = False
        self.ticked = False
        self.ended_input = False
        self.offered_at_ms = elapsed_ms()
        self.covered = -1
        self.waits_since_ms: int | None = None

    def initialOffset(self) -> Offset:
        """The offset before the first tick."""
        return {_MARK: 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """Called by Spark when the trigger is ``availableNow``: the input is bounded."""
        self.bounded = True

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: ARG002  # Spark's signature
        """A later offset if time must move on, else `start` itself."""
        answers = self.board.answers(self.run) if self.ticked else {}
        sending = self.board.sending(self.frame) if self.has_sender else None
        if isinstance(self.clock, StoreClock):
            offer = self._published(start, self.clock, answers, sending)
        else:
            offer = self._held(start, answers)
            if offer == start:
                offer = self._bounded(start, answers) if self.bounded else self._unbounded(start, answers)
            # Bounded input ends without waiting for what is due later.
            calls = sending if not self.bounded else None
            if offer == start and calls is not None and sender_calls(calls, answers, wall_clock_ms()):
                offer = self._tick(start)
            offer = self._with_acts(start, offer)
        if sending is not None and offer != start:
            offer = {**offer, "sender": sending.news}
        if offer != start:
            offer = self._with_shares(offer, answers)
            self.ticked = True
            self.offered_at_ms = elapsed_ms()
        return offer

    def _with_shares(self, offer: Offset, answers: Mapping[int, Answer]) -> Offset:
        """The offset with the shares of its batch, in place of those of the offset before."""
        shares = None if self.limit is None else shares_of(self.limit, answers, self.shards)
        others = {name: value for name, value in offer.items() if name != "shares"}
        return others if shares is None else {**others, "shares": shares}

    def _with_acts(self, start: Offset, offer: Offset) -> Offset:
        """The offer plus the acts that no offset has; a new one if there are any."""
        query = start.get("query") or self.board.query_of(self.run, self.frame)
        if query is None:
            return offer
        posted = self.board.acts(query, start.get("acts", 0))
        return {**offer, "query": query, "acts": posted} if posted else offer

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The rows between two offsets: those of the later one."""
        if start == end:
            return []
        acts, news = self._acts_between(start, end), end.get("sender", "") if self.has_sender else None
        shares = [] if self.limit is None else end.get("shares", [None] * self.shards)
        return [TickPartition(self.shards, end.get("instant_ms"), self.run, acts, news, shares)]

    def _acts_between(self, start: Offset, end: Offset) -> dict[int, str]:
        """The rows of the acts between two offsets, by shard; those of several acts in one text, with a comma between two."""
        found: dict[int, list[str]] = {}
        for number in range(start.get("acts", 0), end.get("acts", 0)):
            for shard, rows in self.board.act(end["query"], number).items():
                found.setdefault(int(shard), []).append(rows)
        return {shard: ",".join(rows) for shard, rows in found.items()}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One row for each shard."""
        # Imported here: the planning process (see the module's docstring) never reads.
        import pyarrow as pa

        assert isinstance(partition, TickPartition)
        count = partition.shards
        arrays = [
            pa.array(range(count), pa.int32()),
            pa.array([partition.instant_ms] * count, pa.int64()),
            pa.array([partition.run] * count, pa.string()),
            pa.array([partition.acts.get(shard) for shard in range(count)], pa.string()),
        ]
        names = ["shard", "instant_ms", "run", "acts"]
        if partition.news is not None:
            arrays.append(pa.array([partition.news] * count, pa.string()))
            names.append(SENDER_COLUMN)
        if partition.shares:
            arrays.append(pa.array(partition.shares, pa.int64()))
            names.append(SHARE_COLUMN)
        yield pa.RecordBatch.from_arrays(arrays, names=names)

    def stop(self) -> None:
        """Removes this run's files from the board."""
        self.board.forget(self.run)

    def _unbounded(self, start: Offset, answers: Mapping[int, Answer]) -> Offset:
        if len(answers) < self.shards:
            return self._tick(start)
        next_due_ms = earliest_due_ms(answers)
        if isinstance(self.clock, SimulatedClock):
            return self._simulated(start, next_due_ms)
        if elapsed_ms() - self.offered_at_ms >= self.clock.heartbeat_ms:
            return self._tick(start)
        return self._tick(start) if is_due(answers, self._now_ms(answers)) else start

    def _simulated(self, start: Offset, next_due_ms: int | None) -> Offset:
        """The next instant of a list, or the first step at which something is due; then ``until``."""
        clock = self.clock
        assert isinstance(clock, SimulatedClock)
        now_ms, until_ms = start.get("instant_ms", clock.first_ms), clock.until_ms
        if start[_MARK] < len(clock.instants_ms):
            return self._tick(start)
        if next_due_ms is not None and next_due_ms <= now_ms:
            return {**start, _MARK: start[_MARK] + 1} if clock.instants_ms else self._tick(start)
        if (
            not clock.instants_ms
            and next_due_ms is not None
            and (until_ms is None or next_due_ms <= until_ms)
        ):
            return self._tick(start, counter=max(start[_MARK] + 1, clock.tick_at(next_due_ms)))
        if until_ms is not None and now_ms < until_ms:
            return {_MARK: start[_MARK] + 1, "instant_ms": until_ms}
        return start

    def _published(
        self, start: Offset, clock: StoreClock, answers: Mapping[int, Answer], sending: Sending | None = None
    ) -> Offset:
        """The instant that the keeper of a store has published, if time must move on."""
        published = self.board.published(clock.token)
        if published is None:
            return start
        stated_ms = wall_clock_ms() if published.clock_ms is None else published.clock_ms
        standing_ms = start.get("instant_ms", INSTANT_BEFORE_ALL_MS)
        now_ms = max(standing_ms, min(stated_ms, published.cursor_ms - 1))
        next_due_ms = earliest_due_ms(answers)
        due = next_due_ms is not None and next_due_ms <= now_ms
        if due and clock.leads and now_ms == standing_ms and is_waiting(answers):
            due = self._has_waited()
        else:
            self.waits_since_ms = None
        until_ms = published.until_ms
        moves = (
            len(answers) < self.shards
            or published.version > self.covered
            or due
            or elapsed_ms() - self.offered_at_ms >= clock.heartbeat_ms
            or (until_ms is not None and standing_ms < min(until_ms, now_ms))
            or (sending is not None and sender_calls(sending, answers, now_ms))
        )
        if not moves:
            return start
        self.covered, self.waits_since_ms = published.version, None
        # A batch with this offset, or a later one, has read the store up to this version.
        return {_MARK: start[_MARK] + 1, "instant_ms": now_ms, "version": published.version}

    def _has_waited(self) -> bool:
        """Whether what is due has waited long enough for the instant that it belongs to: that of a commit is published a moment after it, an act has none."""
        if self.waits_since_ms is None:
            self.waits_since_ms = elapsed_ms()
        return elapsed_ms() - self.waits_since_ms >= _INSTANT_COMES_MS

    def _bounded(self, start: Offset, answers: Mapping[int, Answer]) -> Offset:
        if not self.ticked:
            return self._tick(start)
        played_out = not isinstance(self.clock, SimulatedClock) or start[_MARK] >= len(self.clock.instants_ms)
        if len(answers) < self.shards:
            return start if played_out else self._tick(start)
        last = max(a.batch_id for a in answers.values())
        if not self.ended_input and any(a.held_input for a in answers.values() if a.batch_id == last):
            return self._tick(start)
        if not played_out:
            return self._tick(start)
        until_ms = self.clock.until_ms
        if until_ms is not None and not self.ended_input:
            self.ended_input = True
            return {_MARK: start[_MARK] + 1, "instant_ms": until_ms}
        self.ended_input = True
        left = is_due(answers, watermark_ms(answers))
        return {**start, _MARK: start[_MARK] + 1} if left else start

    def _now_ms(self, answers: Mapping[int, Answer]) -> int | None:
        """The time of a batch that is planned now; None if the watermark is not known."""
        return watermark_ms(answers) if isinstance(self.clock, EventClock) else wall_clock_ms()

    def _held(self, start: Offset, answers: Mapping[int, Answer]) -> Offset:
        """The latest instant that a shard has reached, if time is before it and another shard stands before it, too.

        Simulated instants need no such offset: they travel in every offset, and never go back.
        """
        if len(answers) < self.shards or isinstance(self.clock, SimulatedClock):
            return start
        instants, now_ms = {answer.clock_ms for answer in answers.values()}, self._now_ms(answers)
        latest_ms = max(instants)
        if len(instants) == 1 or (now_ms is not None and now_ms >= latest_ms):
            return start
        return {_MARK: start[_MARK] + 1, "instant_ms": latest_ms}

    def _tick(self, start: Offset, counter: int | None = None) -> Offset:
        """The next offset; with a simulated clock it carries an instant."""
        counter = start[_MARK] + 1 if counter is None else counter
        if not isinstance(self.clock, SimulatedClock):
            return {_MARK: counter}
        return {_MARK: counter, "instant_ms": self.clock.instant_of(counter)}


def wall_clock_ms() -> int:
    """The wall clock, UTC epoch ms. No other module of the package reads it."""
    return time.time_ns() // 1_000_000


def wall_clock_ahead_ms() -> int:
    """How far the wall clock is ahead of the monotonic clock. Less than before means that it was set back."""
    return wall_clock_ms() - elapsed_ms()


def elapsed_ms() -> int:
    """A clock that never goes back, in ms, for intervals."""
    return time.monotonic_ns() // 1_000_000
