"""The keys of a chunk: id, version and partition of each row, in records that are read one by one.

A command on a pending entry needs these of one row. The index (:mod:`wheel_udf.wheel.id_index`) says which row, and
its record is read from the text, whatever the number of rows::

    "0012-0000000345"     place     0   1   2   3   4   5  ..  9  10 .. 14
    "0096-0000000777"     symbols   0   0  0-9 0-9  -   0  ..  0  0-9
                          bits      0   0   4   4   0   0  ..  0   4         2 + 5 places of 4 bits: 4 bytes

    record                seq less the lowest | amend less the lowest | partition | 8-bit places | 4-bit places

* A place of the id at which all ids of the chunk have one symbol takes no bits; with up to 16 symbols it takes 4,
  otherwise 8. The end of an id is a symbol, too (a zero byte). A number takes as many bytes as the range of the chunk
  needs, often none. A UUID takes 16 bytes; zstd needs 21.
* A partition is ``topic/partition/`` of the row's ``source`` (:func:`~wheel_udf.wheel.version_order.without_offset`),
  as a place in a list.
* The header, one line of JSON, has the symbols and the lowest numbers.

Caveat: not every chunk has keys (:func:`packed`). Ids of very different forms would take more characters than zstd
needs for them: then the ids are a column of the head like any other, and a command decodes that. The same holds of ids
with a zero byte, of ids longer than :data:`LONGEST`, and of rows from more than 256 partitions.

Costs, measured (CPU): 30 us for a few rows of a chunk, 0.5 ms for all ids of 8,192 rows, both ways.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.arrays import Bools
from wheel_udf.wheel.fixed_records import Octets, single, to_text, windows
from wheel_udf.wheel.rows import Int64s
from wheel_udf.wheel.texts import Text
from wheel_udf.wheel.version_order import partition_texts

KEY_COLUMNS: Final = ("schedule_id", "seq", "amend")
"""The columns of a chunk that are in its keys alone."""

LONGEST: Final = 128
"""Bytes of the longest id of which a record is made."""

_FEW_SYMBOLS = 16
_SMALL_BYTES, _MORE_BYTES = 8, 4
_SAMPLE_ROWS = 512
_MOST_PARTITIONS = 256

_Numbers = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class IdBytes:
    """Ids as bytes.

    Attributes:
        octets: uint8[n, width], filled up with zeros.
        lengths: Number of bytes of each id; of an id that no record can have, more than any.
    """

    octets: Octets
    lengths: Int64s

    @staticmethod
    def of(ids: pa.Array) -> IdBytes:
        """The bytes of ids."""
        offsets = np.frombuffer(ids.buffers()[1], np.int32)[ids.offset : ids.offset + len(ids) + 1]
        data = np.frombuffer(ids.buffers()[2] or b"", np.uint8)
        lengths = np.diff(offsets).astype(np.int64)
        width = int(min(lengths.max(initial=0), LONGEST))
        if (lengths == width).all():
            octets = data[offsets[0] : offsets[-1]].reshape(len(ids), width)
            return IdBytes(octets, _none_of_zeros(octets, lengths))
        octets = np.zeros((len(ids), width), np.uint8)
        data = data[offsets[0] : offsets[-1]]
        if lengths.max() > width:
            place = np.arange(len(data)) - np.repeat(offsets[:-1] - offsets[0], lengths)
            data = data[place < width]
        octets[np.arange(width) < lengths[:, None]] = data
        return IdBytes(octets, _none_of_zeros(octets, np.where(lengths > LONGEST, 2 * LONGEST, lengths)))

    @property
    def are_usable(self) -> bool:
        """Whether a record can have each of the ids."""
        return bool((self.lengths <= LONGEST).all())

    def equal(self, codes: Int64s, octets: Octets) -> Bools:
        """Row by row, whether the id of a code has these bytes."""
        mine, wide = self.octets[codes], octets.shape[1]
        both = min(wide, mine.shape[1])
        same = (mine[:, :both] == octets[:, :both]).all(axis=1)
        same &= self.lengths[codes] <= wide
        if wide > both:
            same &= ~octets[:, both:].any(axis=1)
        return np.asarray(same, dtype=np.bool_)


def _none_of_zeros(octets: Octets, lengths: Int64s) -> Int64s:
    """The lengths; of an id with a zero byte, more than any."""
    return np.where((octets != 0).sum(axis=1) < np.minimum(lengths, LONGEST), 2 * LONGEST, lengths)


# ---- writing -------------------------------------------------------------------------------------


def packed(rows: pa.Table) -> str:
    """The keys of entries as text: the header, an end of line, the records. Empty if records would not be small.

    Args:
        rows: At least one, of ``ENTRY_SCHEMA``.
    """
    if any(rows[name].null_count for name in KEY_COLUMNS):
        return ""
    ids, partitions = rows["schedule_id"].combine_chunks(), _partitions_of(rows["source"])
    if len(partitions.dictionary) > _MOST_PARTITIONS:
        return ""
    if pc.max(pc.binary_length(ids)).as_py() > LONGEST:
        return ""
    octets = IdBytes.of(ids)
    if not octets.are_usable:
        return ""
    symbols, id_records = _packed_ids(octets.octets)
    width = id_records.shape[1]
    if not width or (width > _SMALL_BYTES and width > _compressed_bytes(ids) + _MORE_BYTES):
        return ""
    seq, seqs = _packed_numbers(rows["seq"].to_numpy())
    amend, amends = _packed_numbers(rows["amend"].to_numpy().astype(np.int64))
    source, sources = _packed_numbers(_or_none(partitions.indices))
    header = {
        "seq": [seq, seqs.shape[1]],
        "amend": [amend, amends.shape[1]],
        "source": [source, sources.shape[1]],
        "sources": partitions.dictionary.to_pylist(),
        **symbols,
    }
    return f"{json.dumps(header)}\n{to_text(np.hstack([seqs, amends, sources, id_records]))}"


def _partitions_of(sources: pa.ChunkedArray) -> pa.DictionaryArray:
    if sources.null_count == len(sources):
        return pa.DictionaryArray.from_arrays(pa.nulls(len(sources), pa.int32()), pa.array([], pa.string()))
    return partition_texts(sources.combine_chunks()).dictionary_encode()


def _or_none(indices: pa.Array) -> Int64s:
    """The places in a list; -1 of null."""
    if indices.null_count == len(indices):
        return np.full(len(indices), -1)
    return indices.fill_null(-1).to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def _packed_numbers(values: Int64s) -> tuple[int, Octets]:
    """The lowest number, and what each is above it, in as few bytes as the highest needs."""
    lowest = values.min()
    above: _Numbers = values.view(np.uint64) - np.uint64(int(lowest) % 2**64)
    width = (int(above.max()).bit_length() + 7) // 8
    return int(lowest), above.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width]


def _packed_ids(octets: Octets) -> tuple[dict[str, Any], Octets]:
    """The symbols at each place, and the records."""
    varies = np.flatnonzero((octets != octets[0]).any(axis=0)).tolist()
    wide, narrow = list[int](), list[int]()
    # Of the places of 4 bits, the codes and what they stand for. An odd number of places is followed by an empty one.
    codes = np.zeros((rounded_to_two(len(varies)), len(octets)), np.uint8)
    symbols = np.zeros((len(varies), _FEW_SYMBOLS), np.uint8)
    # A loop over the places of an id, at most 128: 15 us each.
    for place, column in zip(varies, np.ascontiguousarray(octets.T[varies]), strict=True):
        occurs = np.bincount(column).nonzero()[0]
        if len(occurs) > _FEW_SYMBOLS:
            wide.append(place)
            continue
        code_of = np.zeros(256, np.uint8)
        code_of[occurs] = np.arange(len(occurs))
        symbols[len(narrow), : len(occurs)] = occurs
        codes[len(narrow)] = np.frombuffer(column.tobytes().translate(code_of.tobytes()), np.uint8)
        narrow.append(place)
    codes = codes[: rounded_to_two(len(narrow))]
    described = {
        "id": octets[0].tobytes().decode("latin-1"),
        "wide": wide,
        "narrow": narrow,
        "symbols": symbols[: len(narrow)].tobytes().decode("latin-1"),
    }
    return described, np.hstack([octets[:, wide], (codes[0::2] << 4 | codes[1::2]).T])


def rounded_to_two(size: int) -> int:
    """The next even number."""
    return size + size % 2


def _compressed_bytes(ids: pa.Array) -> float:
    """About how many bytes zstd needs for an id."""
    some = ids.slice(0, _SAMPLE_ROWS)
    joined = "".join(some.to_pylist()).encode()
    return pa.Codec("zstd").compress(joined).size / len(some)  # type: ignore[no-any-return]


# ---- reading -------------------------------------------------------------------------------------


class RowKeys:
    """The keys of a chunk, of which parts are decoded."""

    def __init__(self, text: Text, start: int) -> None:
        line = text.index("\n", start)
        self._header = json.loads(text[start:line])
        self._text, self._at = text, line + 1
        self._wide, self._narrow = self._header["wide"], self._header["narrow"]
        self._numbers = [self._header[name] for name in ("seq", "amend", "source")]
        self._ids_from = sum(width for _, width in self._numbers)
        self._width = self._ids_from + len(self._wide) + rounded_to_two(len(self._narrow)) // 2

    def at(self, rows: Int64s) -> Octets:
        """The records of some rows."""
        return single(self._text, self._at, self._width, rows)

    def all(self, size: int) -> Octets:
        """The records of all rows."""
        ends = np.full(1, size)
        return windows(self._text, self._at, self._width, size, np.zeros(1, np.int64), ends)

    def seq(self, records: Octets) -> Int64s:
        """``seq`` of records."""
        return self._unpacked(records, 0)

    def amend(self, records: Octets) -> npt.NDArray[np.int32]:
        """``amend`` of records."""
        return self._unpacked(records, 1).astype(np.int32)

    def partition(self, records: Octets) -> npt.NDArray[np.object_]:
        """``topic/partition/`` of records; None where there is none."""
        names = np.array([*self._header["sources"], None], object)
        return names[self._unpacked(records, 2)]

    def id_octets(self, records: Octets) -> Octets:
        """The bytes of the ids of records, filled up with zeros."""
        middle = self._ids_from + len(self._wide)
        template, symbols, steps = self._decoding
        octets = np.empty((len(records), len(template)), np.uint8)
        octets[:] = template
        octets[:, self._wide] = records[:, self._ids_from : middle]
        pairs = records[:, middle:]
        nibbles = np.empty((len(records), 2 * pairs.shape[1]), np.intp)
        nibbles[:, 0::2], nibbles[:, 1::2] = pairs >> 4, pairs & 15
        octets[:, self._narrow] = symbols.take(nibbles[:, : len(steps)] + steps)
        return octets

    def table(self, size: int, *columns: str) -> pa.Table:
        """Those columns of :data:`KEY_COLUMNS`, of all rows."""
        records = self.all(size)
        arrays = {
            "schedule_id": lambda: _texts(self.id_octets(records)),
            "seq": lambda: pa.array(self.seq(records)),
            "amend": lambda: pa.array(self.amend(records)),
        }
        return pa.table({name: arrays[name]() for name in columns})

    @cached_property
    def _decoding(self) -> tuple[Octets, Octets, Int64s]:
        template, symbols = (
            np.frombuffer(self._header[name].encode("latin-1"), np.uint8) for name in ("id", "symbols")
        )
        return template, symbols, _FEW_SYMBOLS * np.arange(len(self._narrow))

    def _unpacked(self, records: Octets, which: int) -> Int64s:
        lowest, width = self._numbers[which]
        if not width:
            return np.full(len(records), lowest)
        first = sum(width for _, width in self._numbers[:which])
        octets = np.zeros((len(records), 8), np.uint8)
        octets[:, :width] = records[:, first : first + width]
        above = octets.view("<u8").ravel().astype(np.uint64)
        return (above + np.uint64(lowest % 2**64)).view(np.int64)


def _texts(octets: Octets) -> pa.Array:
    """Ids from bytes that are filled up with zeros."""
    size, width = octets.shape
    inside = octets != 0
    if inside.all():
        offsets, data = np.arange(0, size * width + 1, width, dtype=np.int32), octets
    else:
        offsets = np.r_[0, np.cumsum(inside.sum(axis=1))].astype(np.int32)
        data = octets[inside]
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data.tobytes())]
    return pa.Array.from_buffers(pa.string(), size, buffers)
