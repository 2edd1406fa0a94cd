"""A stand-in for a source in the first batch of a checkpoint: it has no rows (or one for each shard, so that each is
touched), and the offset at which the real source is to continue.

Spark's offset log keeps a text for each source of a query, by order, without the kind of source. So the first batch of
a new checkpoint, planned over these stand-ins, writes the position of an earlier checkpoint into the new log, in
Spark's own format; the next start has the real source in the same place, which reads its position there::

    import   batch 0   {"wheel_clock": 0}   {"orders": {"0": 4711}}     two stand-ins
    run      batch 1   the clock goes on    orders, partition 0, from offset 4711

Spark loads this module in a planning process beside the driver; it imports neither numpy nor pandas, and pyarrow only
where rows are made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from wheel_udf.spark.stream_reader import StreamReader

if TYPE_CHECKING:
    import pyarrow as pa

POSITION_FORMAT = "wheel-position"


class PositionSource(DataSource):
    """The source, with the options ``offset`` (JSON) and ``shards`` (number of rows)."""

    @classmethod
    def name(cls) -> str:
        """The name under which Spark finds the source."""
        return POSITION_FORMAT

    def schema(self) -> str:
        """The number of the shard."""
        return "number int"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002  # Spark's signature
        """The reader."""
        return PositionReader(json.loads(self.options["offset"]), int(self.options["shards"]))


@dataclass
class ShardNumbers(InputPartition):
    """The rows: the numbers of the shards; sent to the task that makes them."""

    shards: int


class PositionReader(StreamReader):
    """Offers one offset, which never changes."""

    def __init__(self, offset: dict[str, Any], shards: int) -> None:
        self.offset, self.shards = offset, shards

    def first_offset(self) -> dict[str, Any]:
        """An offset of no source."""
        return {"before": -1}

    def next_offset(self, start: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """The offset."""
        return self.offset

    def parts(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        """The rows, once."""
        return [ShardNumbers(self.shards)] if self.shards else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The number of each shard."""
        import pyarrow as pa

        assert isinstance(partition, ShardNumbers)
        numbers = pa.array(range(partition.shards), pa.int32())
        yield pa.RecordBatch.from_arrays([numbers], names=["number"])
