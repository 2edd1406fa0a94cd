"""The text that holds all chunks of a shard.

::

    text of a shard    <directory> <chunk 1><chunk 2><chunk 3>...      the directory has one row for each chunk:

        level  group  rows   low_ms        high_ms      length   number  head    keys    gone
          1      3    120    earliest due  latest due    12,000     17       0       0     0   entries of level 1
          2      0   7,998   ...           ...        1,200,000      9  40,000  50,000    12   of level 2, two removed
          0      0    500    first end     last end      20,000     16       0       0     0   memory (MEMORY_LEVEL)
       -101      0   8,500                               70,000     18     900       0     0   index of ids

``length``, ``head``, ``keys`` and ``gone`` are numbers of characters. The directory alone lists the content of a shard.
Chunks that are neighbours in the text that they came in are copied together into the next one.

With texts outside the row (:mod:`wheel_udf.shard.chunk_store`) the directory has one column more, ``file``: the name of
what is there, empty for a chunk in the row. Of such a chunk, the text has only the removed rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.shard.arrow_text import table_from_text, table_to_text
from wheel_udf.shard.chunk_store import ChunkStore, Span
from wheel_udf.shard.chunks import IN_FLIGHT_LEVEL, MEMORY_LEVEL, Chunk
from wheel_udf.shard.rows import ENTRY_SCHEMA, MEMORY_SCHEMA, outer_id

_ID = "schedule_id"

_NUMBERS = ("group", "rows", "low_ms", "high_ms", "length", "number", "head", "keys", "gone")
_DIRECTORY_SCHEMA = pa.schema(
    {"level": pa.int32(), **dict.fromkeys(_NUMBERS, pa.int64()), "file": pa.string()}
)

_IN_FLIGHT = pa.field("in_flight", pa.bool_())
_SOONEST_FIRST = [("deliver_at_ms", "ascending"), ("schedule_id", "ascending")]
MARKED_ENTRY_SCHEMA = ENTRY_SCHEMA.append(_IN_FLIGHT)
"""An entry, and whether a sender has got it."""


def chunks_to_text(chunks: Sequence[Chunk], texts: ChunkStore | None = None) -> str:
    """Joins the text of the directory, a blank, and the texts of the chunks.

    Args:
        chunks: The chunks of a shard.
        texts: Keeps the long ones; None: all are in the result.
    """
    least = None if texts is None else texts.least
    if texts is not None and least is not None:
        chunks = [_apart(chunk, texts, least) for chunk in chunks]
    computed = {
        "length": [chunk.size for chunk in chunks],
        "gone": [len(chunk.gone) for chunk in chunks],
        "file": [chunk.file if least is not None else "" for chunk in chunks],
    }
    plain = (name for name in _DIRECTORY_SCHEMA.names if name not in computed)
    columns = computed | {name: [getattr(chunk, name) for chunk in chunks] for name in plain}
    directory = pa.table([columns[name] for name in _DIRECTORY_SCHEMA.names], schema=_DIRECTORY_SCHEMA)
    return "".join([table_to_text(directory), " ", *_texts(chunks, are_apart=least is not None)])


def _apart(chunk: Chunk, texts: ChunkStore, least: int) -> Chunk:
    """The chunk with its text outside the row, if that is long."""
    if chunk.file or chunk.span.end - chunk.span.start < least:
        return chunk
    return replace(chunk, file=texts.keep(str(chunk.span)))


def _texts(chunks: Sequence[Chunk], *, are_apart: bool) -> list[str]:
    """The texts of the chunks; those that are neighbours in the text that they came in are copied together."""
    spans: list[Span] = []
    for chunk in chunks:
        span, last = chunk.span, spans[-1] if spans else None
        if not (chunk.file and are_apart):
            if last is not None and span.whole is last.whole and span.start == last.end:
                spans[-1] = Span(span.whole, last.start, span.end)
            else:
                spans.append(span)
        if chunk.gone:
            spans.append(Span.of(chunk.gone))
    return [str(span) for span in spans]


def chunks_from_text(text: str, texts: ChunkStore | None = None) -> tuple[Chunk, ...]:
    """The inverse of :func:`chunks_to_text`; what is outside the row is read when a chunk is opened."""
    if not text:
        return ()
    columns = directory_of(text).to_pydict()
    lengths, gones, files = (columns.pop(name) for name in ("length", "gone", "file"))
    *scalars, numbers, heads, keys = columns.values()
    here = [gone if file else length for length, gone, file in zip(lengths, gones, files, strict=True)]
    ends = np.cumsum([text.index(" ") + 1, *here], dtype=np.int64).tolist()
    assert texts is not None or not any(files), "a state with files needs a store of chunks"
    spans = [
        Span(texts.open(file), 0, length - gone) if file and texts else Span(text, a, b - gone)
        for (a, b), length, gone, file in zip(pairwise(ends), lengths, gones, files, strict=True)
    ]
    removed = [text[b - gone : b] if gone else "" for b, gone in zip(ends[1:], gones, strict=True)]
    return tuple(
        Chunk(*values) for values in zip(*scalars, spans, numbers, heads, keys, removed, files, strict=True)
    )


def directory_of(text: str) -> pa.Table:
    """The directory of a shard's text (not empty): a row for each chunk, without opening any."""
    return table_from_text(text[: text.index(" ")])


def external_names(text: str) -> list[str]:
    """The names of the texts outside the row to which a shard's text refers."""
    return [name for name in directory_of(text)["file"].to_pylist() if name] if text else []


def entries_of_text(
    text: str, ids: Collection[str] | None = None, texts: ChunkStore | None = None
) -> pa.Table:
    """All pending entries (``ENTRY_SCHEMA``) of a shard, or of some ids, from column ``chunks`` of its state row."""
    return marked_entries_of_text(text, ids, texts).drop_columns([_IN_FLIGHT.name])


def marked_entries_of_text(
    text: str, ids: Collection[str] | None = None, texts: ChunkStore | None = None
) -> pa.Table:
    """As :func:`entries_of_text`, with ``in_flight``: whether a sender has got the entry (``MARKED_ENTRY_SCHEMA``)."""
    chunks = chunks_from_text(text, texts)
    marked = [MARKED_ENTRY_SCHEMA.empty_table()]
    for chosen in (
        [c for c in chunks if c.level > MEMORY_LEVEL],
        [c for c in chunks if c.level == IN_FLIGHT_LEVEL],
    ):
        for rows in _tables(chosen, ids):
            in_flight = pa.scalar(chosen[0].level == IN_FLIGHT_LEVEL)
            marked.append(rows.append_column(_IN_FLIGHT, pa.repeat(in_flight, rows.num_rows)))
    return pa.concat_tables(marked)


def soonest_of_text(text: str, most: int, texts: ChunkStore | None = None) -> pa.Table:
    """As :func:`marked_entries_of_text`: the entries that are due first, in order of due time and id.

    Chunks are opened in order of their earliest due time, and only until those found are due before all others.

    Args:
        text: The text of a shard.
        most: How many; there may be fewer.
        texts: Has the chunks that are outside the text.
    """
    chunks = _with_entries(text, texts)
    found = MARKED_ENTRY_SCHEMA.empty_table()
    for chunk in sorted(chunks, key=lambda chunk: chunk.low_ms):
        if found.num_rows >= most and (most == 0 or found["deliver_at_ms"][-1].as_py() < chunk.low_ms):
            break
        in_flight = pa.repeat(pa.scalar(chunk.level == IN_FLIGHT_LEVEL), chunk.rows)
        rows = chunk.table().append_column(_IN_FLIGHT, in_flight)
        found = pa.concat_tables([found, rows]).sort_by(_SOONEST_FIRST).slice(0, most)
    return found


def _with_entries(text: str, texts: ChunkStore | None) -> list[Chunk]:
    """The chunks of a shard that hold entries, also those that a sender has got."""
    return [c for c in chunks_from_text(text, texts) if c.level > MEMORY_LEVEL or c.level == IN_FLIGHT_LEVEL]


def held_of_text(text: str, ids: Collection[str] | None = None, texts: ChunkStore | None = None) -> pa.Table:
    """As :func:`entries_of_text`; of chunks without series and failed attempts, only the ids and versions (the rest is
    null).
    """
    if ids is not None:
        return entries_of_text(text, ids, texts)
    chunks = _with_entries(text, texts)
    return pa.concat_tables([ENTRY_SCHEMA.empty_table(), *map(_whole_or_versions, chunks)])


def _whole_or_versions(chunk: Chunk) -> pa.Table:
    # With a column that each chunk has beside those that it may lack.
    some = chunk.table("schedule_id", "seq", "amend", "max_lateness_ms", "repeat", "attempt")
    if min(some["repeat"].null_count, some["attempt"].null_count) < chunk.rows:
        return chunk.table()
    columns = (
        some[each.name] if each.name in some.column_names else pa.nulls(chunk.rows, each.type)
        for each in ENTRY_SCHEMA
    )
    return pa.table(list(columns), schema=ENTRY_SCHEMA)


def memory_of_text(
    text: str, ids: Collection[str] | None = None, texts: ChunkStore | None = None
) -> pa.Table:
    """All memory records (``MEMORY_SCHEMA``) of a shard, or of some ids, from column ``chunks`` of its state row."""
    tables = _tables([chunk for chunk in chunks_from_text(text, texts) if chunk.level == MEMORY_LEVEL], ids)
    return pa.concat_tables(tables) if tables else MEMORY_SCHEMA.empty_table()


def _tables(chunks: Sequence[Chunk], ids: Collection[str] | None) -> list[pa.Table]:
    """The rows of chunks, or of some ids: of a chunk without any of them, only the ids are decompressed."""
    if ids is None:
        return [chunk.table() for chunk in chunks]
    wanted = pa.array(ids, pa.string())
    found = ((chunk, pc.is_in(outer_id(chunk.table(_ID)[_ID]), value_set=wanted)) for chunk in chunks)
    return [chunk.table().filter(is_wanted) for chunk, is_wanted in found if pc.any(is_wanted).as_py()]
