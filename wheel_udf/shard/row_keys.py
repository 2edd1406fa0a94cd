r"""The keys of a chunk: id, version and partition of each row, in blocks, of which a command on an entry reads one.

::

    keys     [312, 634, 951]\n<block 0><block 1><block 2>     where each block ends, and the blocks
    block    [["a", "b", ...], [1, 7, ...], 0, "topic/0/"]    id, seq, amend, partition of 64 rows; of equal ones, one

The index (:mod:`wheel_udf.shard.id_index`) has the row. A partition is ``topic/partition/`` of the row's ``source``
(:func:`~wheel_udf.shard.rows.partition_texts`).

Blocks are JSON, not compressed: deflating them costs each batch that writes entries more than it saves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import accumulate, chain
from typing import Any, Final

import pyarrow as pa

from wheel_udf.shard import chunk_sizes
from wheel_udf.shard.chunk_store import ChunkBytes
from wheel_udf.shard.rows import ENTRY_SCHEMA, Int64s, partition_texts

KEY_COLUMNS: Final = ("schedule_id", "seq", "amend")
"""The columns of entries that are in the keys of a chunk alone."""


def keys_of(rows: pa.Table) -> list[list[Any]]:
    """The ids, the seqs, the amends and the partitions of rows (None where there is none)."""
    return [*(rows[name].to_pylist() for name in KEY_COLUMNS), partition_texts(rows["source"]).to_pylist()]


def packed(rows: pa.Table) -> str:
    """The keys of entries (at least one) as text."""
    columns, size = keys_of(rows), chunk_sizes.SIZES.keys_block
    parts = ([column[at : at + size] for column in columns] for at in range(0, rows.num_rows, size))
    blocks = [json.dumps([ids, *map(_once, others)], separators=(",", ":")) for ids, *others in parts]
    return f"{json.dumps([*accumulate(map(len, blocks))])}\n{''.join(blocks)}"


def _once(values: list[Any]) -> Any:
    return values[0] if values.count(values[0]) == len(values) else values


class RowKeys:
    """The keys of a chunk, of which blocks are read."""

    def __init__(self, text: ChunkBytes, start: int) -> None:
        line = text.index("\n", start)
        self._text, self._at = text, line + 1
        self._bounds = [0, *json.loads(text[start:line])]

    def at(self, rows: Int64s) -> list[list[Any]]:
        """As :func:`keys_of`, of some rows, given by their positions."""
        places = [divmod(row, chunk_sizes.SIZES.keys_block) for row in rows.tolist()]
        numbers = {number for number, _ in places}
        blocks = dict(zip(numbers, self._blocks(numbers), strict=True))
        return [[blocks[number][column][at] for number, at in places] for column in range(4)]

    def table(self, *columns: str) -> pa.Table:
        """:data:`KEY_COLUMNS`, or some of them, of all rows."""
        blocks = self._blocks(range(len(self._bounds) - 1))
        chosen = [(KEY_COLUMNS.index(name), ENTRY_SCHEMA.field(name)) for name in columns or KEY_COLUMNS]
        values = (chain.from_iterable(block[at] for block in blocks) for at, _ in chosen)
        arrays = [pa.array([*value], field.type) for value, (_, field) in zip(values, chosen, strict=True)]
        return pa.table(arrays, schema=pa.schema([field for _, field in chosen]))

    def _blocks(self, numbers: Iterable[int]) -> list[list[list[Any]]]:
        bounds = (
            (self._at + self._bounds[number], self._at + self._bounds[number + 1]) for number in numbers
        )
        blocks = json.loads(f"[{','.join([self._text[start:end] for start, end in bounds])}]")
        return [
            [ids, *(each if isinstance(each, list) else [each] * len(ids) for each in others)]
            for ids, *others in blocks
        ]
