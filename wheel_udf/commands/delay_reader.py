"""Gives a delay to commands that name no due time: that of their topic, or a default one.

::

    kafka.topic   deliver_at  delay  repeat       delay        levels {"in-1m": 60_000}, default_ms 5_000
    orders        -           -      -       -->  5000 ms
    orders        -           -      @daily  -->  -
    in-1m         -           -      -       -->  60000 ms
    in-1m         -           2 s    -       -->  2 s
    in-1m         -           -      @daily  -->  60000 ms, unless it has starts_at
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.commands import readers as read
from wheel_udf.commands.inputs import Given
from wheel_udf.commands.records import KAFKA

_TIMED: Final = ("deliver_at", "delay", "repeat", "attempt")
"""A command with one of these needs no default: a series has due times of its own, a RETRY that of its attempt."""


@dataclass(frozen=True)
class DelayReader:
    """Reads commands again: all columns as they are, and ``delay``, which is the last one if there was none.

    Args:
        names: Of the columns.
        default_ms: The delay of commands without a due time; None: none.
        levels: Topics with a delay (ms) of their own, which has a command without ``deliver_at``, ``delay`` and
            ``starts_at``.
    """

    names: tuple[str, ...]
    default_ms: int | None
    levels: Mapping[str, int]

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Reads a batch."""
        columns = dict(zip(self.names, batch.columns, strict=False))
        commands = Given(columns, batch.num_rows)
        own = commands.read("delay", read.octets, pa.binary())
        is_of_level, by_topic = self._by_topic(columns)
        has_other = pc.or_(is_of_level, commands.is_there("deliver_at"))
        for name in _TIMED[1:]:
            has_other = pc.or_(has_other, commands.is_there(name))
        default = None if self.default_ms is None else _span(self.default_ms)
        given = pc.if_else(has_other, None, pa.scalar(default, pa.binary()))
        for name in ("deliver_at", "starts_at"):
            by_topic = pc.if_else(commands.is_there(name), None, by_topic)
        delay = pc.coalesce(own, by_topic, given).view(pa.string())  # it may be no UTF-8
        return pa.RecordBatch.from_pydict(columns | {"delay": delay})

    def _by_topic(self, columns: Mapping[str, pa.Array]) -> tuple[pa.BooleanArray, pa.BinaryArray]:
        """Which commands are of the topic of a level, and its delay."""
        rows = len(columns[self.names[0]])
        if not self.levels:
            return pa.repeat(pa.scalar(value=False), rows), pa.nulls(rows, pa.binary())
        place = pc.index_in(
            pc.struct_field(columns[KAFKA], 0), value_set=pa.array(list(self.levels), pa.string())
        )
        return pc.is_valid(place), pa.array(map(_span, self.levels.values()), pa.binary()).take(place)


def _span(delay_ms: int) -> bytes:
    return f"{delay_ms} ms".encode()
