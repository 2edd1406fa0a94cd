"""The clock source: a Spark data source that brings time to the operator as data.

Spark runs a batch only when a source has something new, and a group sees time only in a batch that contains a row for
it. So time is a source beside the commands: each of its offsets yields one row per shard. Spark journals the time of a
batch (offset, watermark, batch timestamp) before the batch runs. A replay therefore sees the same time, and a test
need not wait.

::

    reports on the board --> pace: advance? --> contributors: acts, sender, shares --> offset --> a Tick for each shard

Spark starts one Python process beside the driver per running clock source, and most of its start is imports. Planning
must therefore not import numpy, pandas or pyarrow; only :meth:`ClockReader.read`, which runs in tasks, does.

Caveat: the board is a folder on the driver's machine. Where executors run on other machines, only a query started by
:func:`wheel_udf.delivery.query.deliver` has its reports posted there; any other query ticks on every trigger and
cannot run on to ``until``.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from wheel_udf.control import wall
from wheel_udf.control.board import BOUNDED, ShardBoard
from wheel_udf.control.clocks import Clock, StoreClock, clock_of
from wheel_udf.control.contributors import Acts, Contributor, Returns, Sender, Shares
from wheel_udf.control.pace import COUNTER, ClockPace, Offset, StorePace
from wheel_udf.control.reports import forget_run, reports_of
from wheel_udf.control.tick import Tick
from wheel_udf.spark.stream_reader import BOUNDS_SOURCES, StreamReader

if TYPE_CHECKING:
    import pyarrow as pa

CLOCK_FORMAT = "wheel-clock"
CLOCK_SCHEMA = "shard int, tick string"


def is_clock_offset(offset: object) -> bool:
    """Whether an offset in a checkpoint, a JSON value, is one of this source."""
    return isinstance(offset, dict) and COUNTER in offset


class ClockSource(DataSource):
    """The streaming source of clock rows (:data:`CLOCK_SCHEMA`): one row per shard for each offset."""

    @classmethod
    def name(cls) -> str:
        """The name under which Spark finds the source."""
        return CLOCK_FORMAT

    def schema(self) -> str:
        """See :data:`CLOCK_SCHEMA`."""
        return CLOCK_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002  # Spark's signature
        """The reader. Spark keeps one per query, in a Python process beside the driver."""
        settings = json.loads(self.options["settings"])
        clock, board = clock_of(settings.pop("clock")), ShardBoard(settings.pop("folder"))
        return ClockReader(clock, board=board, **settings)


@dataclass
class TickPartition(InputPartition):
    """The ticks of one offset as text, by shard; sent to the task that makes rows of them."""

    ticks: list[str]


class ClockReader(StreamReader):
    """Offers an offset each time Spark plans a batch for which there is a reason.

    An offset is ``{wheel_clock: counter}``, plus ``instant_ms`` where the offset itself carries the time (a simulated
    instant, a published one, or ``until``), plus the members of the contributors.

    Args:
        clock: The clock.
        shards: Number of shards.
        board: Where the shards report.
        frame: Name of the operator's frame on the board.
        has_sender: Whether the query has a sender.
        limit: Most rows of a batch; None for no limit.
        returns: Whether entries that cannot be delivered come back.
    """

    def __init__(
        self,
        clock: Clock | StoreClock,
        shards: int,
        board: ShardBoard,
        frame: str = "",
        *,
        has_sender: bool = False,
        limit: int | None = None,
        returns: bool = False,
    ) -> None:
        self.shards, self.board, self.frame = shards, board, frame
        self.run = uuid.uuid4().hex
        self.ticked = False
        self.pace: ClockPace | StorePace
        self.contributors: list[Contributor] = []
        if isinstance(clock, StoreClock):
            self.pace = StorePace(clock, shards, board)
        else:
            self.pace = ClockPace(clock, shards)
            self.contributors.append(Acts(board, self.run, frame))
        if has_sender:
            self.contributors.append(Sender(board, frame))
        if returns:
            self.contributors.append(Returns(board, self.run, frame))
        if limit is not None:
            self.contributors.append(Shares(limit, shards))

    def first_offset(self) -> Offset:
        """The offset before the first tick."""
        return {COUNTER: 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """The input is bounded."""
        self.pace.bounded = not isinstance(self.pace, StorePace)

    def next_offset(self, start: Offset) -> Offset:
        """A later offset if there is a reason for a batch, else `start` itself."""
        if not BOUNDS_SOURCES and self.board.has(BOUNDED, self.frame):
            self.prepareForTriggerAvailableNow()
        reports = reports_of(self.board, self.run) if self.ticked else {}
        offer = self.pace.offer(start, reports)
        now_ms = self.pace.now_ms(start)
        called = [each.calls(reports, now_ms) for each in self.contributors]
        # Bounded input ends without waiting for what is due later.
        if offer == start and any(called) and not self.pace.bounded:
            offer = self.pace.tick(start)
        for each in self.contributors:
            offer = each.added(start, offer, reports)
        if offer != start:
            self.ticked = True
            self.pace.offered_at_ms = wall.elapsed_ms()
        return offer

    def parts(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The ticks between two offsets: those of the later one."""
        parts = [each.fields(start, end, self.shards) for each in self.contributors]
        fields: list[dict[str, Any]] = [{} for _ in range(self.shards)]
        for part in parts:
            for shard, more in enumerate(part):
                fields[shard] |= more
        ticks = [Tick(self.run, end.get("instant_ms"), **more) for more in fields]
        return [TickPartition([tick.to_text() for tick in ticks])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One row for each shard."""
        # Imported here: the planning process (see the module's docstring) never reads.
        import pyarrow as pa

        assert isinstance(partition, TickPartition)
        shards = pa.array(range(len(partition.ticks)), pa.int32())
        yield pa.RecordBatch.from_arrays([shards, pa.array(partition.ticks)], names=["shard", "tick"])

    def stop(self) -> None:
        """Removes this run's values from the board."""
        forget_run(self.board, self.run)
