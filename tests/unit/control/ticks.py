"""The ticks of the clock source, read as a shard's worker reads them."""

from __future__ import annotations

from typing import Any

from wheel_udf.control.source import ClockReader
from wheel_udf.control.tick import Tick


def ticks_of(reader: ClockReader, start: dict[str, Any], end: dict[str, Any]) -> list[Tick]:
    """The tick of each shard between two offsets."""
    (partition,) = reader.partitions(start, end)
    (batch,) = reader.read(partition)
    assert batch["shard"].to_pylist() == list(range(reader.shards))
    return [Tick.from_text(text) for text in batch["tick"].to_pylist()]
