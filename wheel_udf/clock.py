"""Clocks, and the source that brings time to the operator as data.

Spark runs a batch only when a source has something new, and a group sees time only in a batch that gives it a row. So time is a source
beside the commands: each of its offsets is one row for every shard. Everything a batch sees of time is journaled by Spark before the batch
runs (offset, watermark, batch timestamp); a replay sees the same time, and a test needs no waiting.

=============  ======================================================  =================================
clock          the wheel's ``now`` in a batch                          moves when
=============  ======================================================  =================================
`processing`   the batch's own timestamp                               the wall clock moves
`event`        the watermark (largest event time seen, less a delay)   commands with later times come
`simulated`    the instant in the clock's offset                       an offset is taken: start + n steps
=============  ======================================================  =================================

No empty ticks
    The source offers a new offset only when the earliest pending entry is due, or the heartbeat has passed: the streaming form of the delay
    queue of buckets in Kafka's timer, where a thread sleeps until the earliest non-empty bucket expires. It learns the next due time from
    a *hint*: the last answer of every shard, posted to a :class:`~wheel_udf.hints.HintBoard` under the query's id. An answer that is absent, or a foreign
    query's, counts as "due now", so a lost hint costs a tick and never a firing.

Bounded input (``availableNow``)
    A union hands out the clock's next offset together with the first file of the others, so the end instant must not ride on it. While the
    last batch held input the clock offers one plain tick a batch; after the first batch without, it offers ``until``; then it offers again
    while due entries are left over a limit; then it ends.

Caveats: this module alone reads a wall clock. The board is a folder on the driver's machine; where executors run elsewhere, only a query
started by :func:`wheel_udf.delivery.deliver` has its answers posted there, any other ticks on every trigger and cannot run on to ``until``.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

# Spark 4.2 does not export this protocol class from pyspark.sql.datasource.
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from wheel_udf.errors import ConfigError
from wheel_udf.hints import Answer, HintBoard

if TYPE_CHECKING:
    import pyarrow as pa

CLOCK_FORMAT = "wheel-clock"
CLOCK_SCHEMA = "shard int, instant_ms long, run string"
_MARK = "wheel_clock"
INSTANT_BEFORE_ALL_MS = -(2**62)
"""Where the clock of a store stands before the first instant was published."""


@dataclass(frozen=True, kw_only=True)
class EventClock:
    """The watermark as the clock.

    Attributes:
        delay_ms: How far the clock stays behind the largest event time.
        max_ahead_ms: A command whose event time is further ahead of the wall clock than this is rejected and does not move the clock;
            ``None`` accepts data of the future.
        heartbeat_ms: Longest time without a batch.
        until_ms: Where the clock is run on to at the end of bounded input; ``None`` leaves it at the watermark.
    """

    delay_ms: int = 0
    max_ahead_ms: int | None = 60_000
    heartbeat_ms: int = 60_000
    until_ms: int | None = None
    kind = "event"

    def __post_init__(self) -> None:
        _at_least("delay_ms", self.delay_ms, 0)
        _at_least("heartbeat_ms", self.heartbeat_ms, 1)
        _at_least("max_ahead_ms", self.max_ahead_ms, 0)


@dataclass(frozen=True, kw_only=True)
class ProcessingClock:
    """The wall clock, as each batch journals it.

    Attributes:
        heartbeat_ms: Longest time without a batch.
        until_ms: Where the clock is run on to at the end of bounded input (it is not waited for).
    """

    heartbeat_ms: int = 60_000
    until_ms: int | None = None
    kind = "processing"

    def __post_init__(self) -> None:
        _at_least("heartbeat_ms", self.heartbeat_ms, 1)


@dataclass(frozen=True, kw_only=True)
class SimulatedClock:
    """A clock moved by the batches themselves: ``start_ms + n * step_ms``, or a list of instants, one a batch.

    With a list, steps back and jumps can be tried (the wheel holds on a step back). With a step, an unbounded query skips the steps at
    which nothing is due.

    Attributes:
        start_ms: First instant.
        step_ms: Distance of the instants, at least 1.
        instants_ms: The instants themselves, instead of start and step.
        until_ms: Last instant; at the end of bounded input the clock is run on to it.
        heartbeat_ms: Unused; simulated time stands while nothing happens.
    """

    start_ms: int | None = None
    step_ms: int | None = None
    instants_ms: tuple[int, ...] = ()
    until_ms: int | None = None
    heartbeat_ms: int = 60_000
    kind = "simulated"

    def __post_init__(self) -> None:
        object.__setattr__(self, "instants_ms", tuple(self.instants_ms))
        stepped = self.start_ms is not None and self.step_ms is not None
        if stepped == bool(self.instants_ms) or (
            not stepped and (self.start_ms, self.step_ms) != (None, None)
        ):
            raise ConfigError(
                "a simulated clock takes a start and a step, or a list of instants",
                field="clock",
                value={"start_ms": self.start_ms, "step_ms": self.step_ms, "instants_ms": self.instants_ms},
            )
        _at_least("step_ms", self.step_ms, 1)

    @property
    def first_ms(self) -> int:
        """Where this clock stands before its first tick."""
        return self.instant_of(1)

    def instant_of(self, counter: int) -> int:
        """The instant of a tick, counted from 1; the last one of a list is kept."""
        if self.instants_ms:
            return self.instants_ms[min(counter, len(self.instants_ms)) - 1]
        start_ms, step_ms = self._grid
        instant_ms = start_ms + (counter - 1) * step_ms
        return instant_ms if self.until_ms is None else min(instant_ms, self.until_ms)

    def tick_at(self, due_ms: int) -> int:
        """The first tick, counted from 1, at which an entry due then is due; of a clock with a step."""
        start_ms, step_ms = self._grid
        return max(1, 1 - (start_ms - due_ms) // step_ms)

    @property
    def _grid(self) -> tuple[int, int]:
        assert self.start_ms is not None, "a clock without a list has a start and a step"
        assert self.step_ms is not None, "a clock without a list has a start and a step"
        return self.start_ms, self.step_ms


@dataclass(frozen=True, kw_only=True)
class StoreClock:
    """The clock of the near side of a slot store: what the keeper of the store publishes, and never past its cursor.

    Each instant travels in the clock's offset, so a replay sees the same. In every batch that brings commits of the store the clock moves too.

    Attributes:
        token: Where the keeper publishes (:meth:`wheel_udf.hints.HintBoard.publish`).
        heartbeat_ms: Longest time without a batch.
    """

    token: str
    heartbeat_ms: int = 60_000
    until_ms: int | None = None
    kind = "store"


Clock = EventClock | ProcessingClock | SimulatedClock


def _at_least(field: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise ConfigError(
            "a clock setting is too small", field=f"clock.{field}", value=value, rule=f"at least {least}"
        )


def clock_options(clock: Clock | StoreClock, shards: int, folder: Path) -> dict[str, str]:
    """The options of the clock source for this clock."""
    return {
        "clock": json.dumps(asdict(clock) | {"kind": clock.kind}),
        "shards": str(shards),
        "folder": str(folder),
    }


def clock_from_json(text: str) -> Clock | StoreClock:
    """The inverse of what :func:`clock_options` writes."""
    fields = json.loads(text)
    kinds: dict[str, type[Clock | StoreClock]] = {
        "event": EventClock,
        "processing": ProcessingClock,
        "simulated": SimulatedClock,
        "store": StoreClock,
    }
    return kinds[fields.pop("kind")](**fields)


def is_clock_offset(text: str) -> bool:
    """Whether a line of Spark's offset log is an offset of this source."""
    return f'"{_MARK}"' in text


class ClockSource(DataSource):
    """The streaming source of clock rows (:data:`CLOCK_SCHEMA`), one a shard for each offset."""

    @classmethod
    def name(cls) -> str:
        """The name under which Spark finds the source."""
        return CLOCK_FORMAT

    def schema(self) -> str:
        """See :data:`CLOCK_SCHEMA`."""
        return CLOCK_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002  # Spark's signature
        """The reader; Spark keeps one, in a Python process beside the driver, for the life of a query."""
        return ClockReader(
            clock_from_json(self.options["clock"]),
            int(self.options["shards"]),
            HintBoard(self.options["folder"]),
        )


@dataclass
class TickPartition(InputPartition):
    """One row for each shard; travels to the task that makes them."""

    shards: int
    instant_ms: int | None
    run: str

    def __init__(self, shards: int, instant_ms: int | None, run: str) -> None:
        self.shards, self.instant_ms, self.run = shards, instant_ms, run


Offset = dict[str, Any]


class ClockReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Decides, each time Spark plans a batch, whether time moves on.

    An offset is ``{wheel_clock: counter}``, with ``instant_ms`` where the clock itself carries the time (a simulated instant, or until).
    """

    def __init__(self, clock: Clock | StoreClock, shards: int, board: HintBoard) -> None:
        self.clock, self.shards, self.board = clock, shards, board
        self.run = uuid.uuid4().hex
        self.bounded = False
        self.ticked = False
        self.ended_input = False
        self.offered_at_ms = _elapsed_ms()
        self.covered = -1

    def initialOffset(self) -> Offset:
        """The offset before the first tick."""
        return {_MARK: 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """Tells the reader that the input is bounded."""
        self.bounded = True

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: ARG002  # Spark's signature
        """A later offset when time must move on, else `start` itself."""
        answers = self.board.answers(self.run) if self.ticked else {}
        if isinstance(self.clock, StoreClock):
            offer = self._published(start, self.clock, answers)
        else:
            offer = self._bounded(start, answers) if self.bounded else self._unbounded(start, answers)
        if offer != start:
            self.ticked = True
            self.offered_at_ms = _elapsed_ms()
        return offer

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The rows between two offsets: those of the later one."""
        return [] if start == end else [TickPartition(self.shards, end.get("instant_ms"), self.run)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One row for each shard."""
        # Spark makes a process for each source of each query that is started, and most of its time is imports: those that only read need this.
        import pyarrow as pa

        assert isinstance(partition, TickPartition)
        count = partition.shards
        arrays = [
            pa.array(range(count), pa.int32()),
            pa.array([partition.instant_ms] * count, pa.int64()),
            pa.array([partition.run] * count, pa.string()),
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=["shard", "instant_ms", "run"])

    def stop(self) -> None:
        """Leaves nothing on the board."""
        self.board.forget(self.run)

    def _unbounded(self, start: Offset, answers: Mapping[int, Answer]) -> Offset:
        if len(answers) < self.shards:
            return self._tick(start)
        next_due_ms = _next_due_ms(answers)
        if isinstance(self.clock, SimulatedClock):
            return self._simulated(start, next_due_ms)
        if _elapsed_ms() - self.offered_at_ms >= self.clock.heartbeat_ms:
            return self._tick(start)
        now_ms = max(a.clock_ms for a in answers.values())
        if isinstance(self.clock, EventClock):
            now_ms = max([now_ms, *(a.watermark_ms for a in answers.values() if a.watermark_ms is not None)])
        else:
            now_ms = max(now_ms, wall_clock_ms())
        return self._tick(start) if next_due_ms is not None and next_due_ms <= now_ms else start

    def _simulated(self, start: Offset, next_due_ms: int | None) -> Offset:
        """The next instant of a list, or the first step at which something is due; then until."""
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

    def _published(self, start: Offset, clock: StoreClock, answers: Mapping[int, Answer]) -> Offset:
        """What the keeper of a store has published, if time must move on."""
        published = self.board.published(clock.token)
        if published is None:
            return start
        told_ms = wall_clock_ms() if published.clock_ms is None else published.clock_ms
        standing_ms = start.get("instant_ms", INSTANT_BEFORE_ALL_MS)
        now_ms = max(standing_ms, min(told_ms, published.cursor_ms - 1))
        next_due_ms = _next_due_ms(answers)
        until_ms = published.until_ms
        moves = (
            len(answers) < self.shards
            or published.version > self.covered
            or (next_due_ms is not None and next_due_ms <= now_ms)
            or _elapsed_ms() - self.offered_at_ms >= clock.heartbeat_ms
            or (until_ms is not None and standing_ms < min(until_ms, now_ms))
        )
        if not moves:
            return start
        self.covered = published.version
        # The version goes along: a batch with this offset, or a later one, has read the store up to there.
        return {_MARK: start[_MARK] + 1, "instant_ms": now_ms, "version": published.version}

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
        now_ms = max([max(a.clock_ms, a.watermark_ms or a.clock_ms) for a in answers.values()])
        left = any(a.next_due_ms is not None and a.next_due_ms <= now_ms for a in answers.values())
        return {**start, _MARK: start[_MARK] + 1} if left else start

    def _tick(self, start: Offset, counter: int | None = None) -> Offset:
        """The next offset; a simulated clock gives it an instant."""
        counter = start[_MARK] + 1 if counter is None else counter
        if not isinstance(self.clock, SimulatedClock):
            return {_MARK: counter}
        return {_MARK: counter, "instant_ms": self.clock.instant_of(counter)}


def _next_due_ms(answers: Mapping[int, Answer]) -> int | None:
    """Earliest entry pending in any shard; None when nothing is."""
    return min((a.next_due_ms for a in answers.values() if a.next_due_ms is not None), default=None)


def wall_clock_ms() -> int:
    """The wall clock, UTC epoch ms; the one place of the package that reads it."""
    return time.time_ns() // 1_000_000


def _elapsed_ms() -> int:
    """A clock for distances, which no one sets back."""
    return time.monotonic_ns() // 1_000_000
