"""Timed records: the rows that a batch hands over, as arguments of a Kafka client, in order of their due times.

::

    Arrow table of a batch --of--> due_ms [int64], a list for each argument of produce() and for each of our headers
                                                                 |
                                 when they are due: records(start, stop, fired_at) --> topic, key, value, headers

The pairs of name and value that a client takes as headers are made when a record is sent: built early, they would
take most of the memory, and the time of the garbage collector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.arrays import Int64s
from wheel_udf.common.command_facts import OUR_PREFIX
from wheel_udf.common.instants import instant_text_ms

FIRED_AT: Final = "wheel-fired-at"
"""The header with the instant of the sending, ISO 8601."""

Header = tuple[str, bytes | None]
Record = tuple[str, bytes | None, bytes | None, list[Header]]
"""Topic, key, value and headers."""

_ROW_BYTES: Final = 300
_HEADER_BYTES: Final = 100
"""The memory of a row and of each of its headers besides the payload."""


@dataclass(frozen=True, eq=False)
class TimedRecords:
    """Records for one producer, as lists of one length.

    Attributes:
        due_ms: When each is due (UTC epoch ms), rising.
        topics: Their topics.
        keys: Their keys.
        values: Their values.
        own_names: The names of the entries' own headers, of all records one after another.
        own_values: Their values.
        own_from: Where the own headers of each record begin; one more at the end.
        ours: Our headers in their order: name, and the value for each record; a record without that header has None.
            :data:`FIRED_AT` has no list: its value is the instant of the sending.
        gaps: Whether a record lacks one of our headers.
        sizes: About how many bytes each takes in memory.
    """

    due_ms: Int64s
    topics: list[str]
    keys: list[bytes | None]
    values: list[bytes | None]
    own_names: list[str]
    own_values: list[bytes | None]
    own_from: list[int]
    ours: dict[str, list[bytes | None] | None]
    gaps: bool
    sizes: Int64s

    @classmethod
    def of(cls, rows: pa.Table) -> TimedRecords:
        """Makes the records of a table: ``topic`` string, ``key`` and ``value`` binary, ``headers`` list of (key
        string, value binary) or null, ``due_ms`` int64; and in their order our headers, each a column with the header's
        name: string, or int64 for an instant (UTC epoch ms, not null). :data:`FIRED_AT` is one of them, with any
        values.
        """
        due_ms = rows["due_ms"].to_numpy()
        order = np.argsort(due_ms, kind="stable")
        rows = rows.take(pa.array(order)).combine_chunks()
        # A source without coordinates has none in any row.
        names = [
            name
            for name in rows.column_names
            if name.startswith(OUR_PREFIX) and (name == FIRED_AT or rows[name].null_count < len(rows))
        ]
        lists = _one(rows["headers"])
        counts = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
        own, own_from = lists.flatten(), np.r_[0, np.cumsum(counts)].astype(np.int64)
        return cls(
            due_ms=due_ms[order],
            topics=rows["topic"].to_pylist(),
            keys=_octets(_one(rows["key"])),
            values=_octets(_one(rows["value"])),
            own_names=_names(own.field(0)),
            own_values=_octets(own.field(1)),
            own_from=own_from.tolist(),
            ours={name: None if name == FIRED_AT else _written(_one(rows[name])) for name in names},
            gaps=any(rows[name].null_count for name in names if name != FIRED_AT),
            sizes=_sizes(rows, own.field(1), own_from, len(names)),
        )

    def rest(self, start: int) -> TimedRecords:
        """The records from row `start` on, without references to earlier ones."""
        own = self.own_from[start]
        return TimedRecords(
            due_ms=self.due_ms[start:].copy(),
            topics=self.topics[start:],
            keys=self.keys[start:],
            values=self.values[start:],
            own_names=self.own_names[own:],
            own_values=self.own_values[own:],
            own_from=[each - own for each in self.own_from[start:]],
            ours={name: None if column is None else column[start:] for name, column in self.ours.items()},
            gaps=self.gaps,
            sizes=self.sizes[start:].copy(),
        )

    def records(self, start: int, stop: int, fired_at: bytes) -> Iterator[Record]:
        """The records of rows `start` to `stop`, as they are sent at an instant."""
        rows, names = slice(start, stop), tuple(self.ours)
        columns = [
            repeat(fired_at, stop - start) if column is None else column[rows]
            for column in self.ours.values()
        ]
        payload = zip(self.topics[rows], self.keys[rows], self.values[rows], zip(*columns), strict=True)  # noqa: B905
        # A hundred thousand records that are due together wait for each other here.
        if not (self.own_names or self.gaps):
            for topic, key, value, ours in payload:
                yield topic, key, value, list(zip(names, ours))  # noqa: B905
            return
        for row, (topic, key, value, ours) in enumerate(payload, start):
            part = slice(self.own_from[row], self.own_from[row + 1])
            headers = list(zip(self.own_names[part], self.own_values[part], strict=True))
            headers += [each for each in zip(names, ours, strict=True) if each[1] is not None]
            yield topic, key, value, headers


def _one(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    return joined if isinstance(joined, pa.Array) else pa.concat_arrays(joined.chunks)


def _names(names: pa.Array) -> list[str]:
    # What is not UTF-8 becomes U+FFFD, as in Kafka's own client.
    return _each(names.cast(pa.binary()), lambda name: name.decode(errors="replace"))


def _written(column: pa.Array) -> list[bytes | None]:
    if not pa.types.is_integer(column.type):
        return _octets(column.cast(pa.binary()))
    return _each(column, lambda instant_ms: instant_text_ms(instant_ms).encode())


def _each(column: pa.Array, write: Callable[[Any], Any]) -> list[Any]:
    """The results of a function for each value; it is called once for each distinct value."""
    encoded = column.dictionary_encode()
    words = [write(value) for value in encoded.dictionary.to_pylist()]
    return [words[code] for code in encoded.indices.to_numpy().tolist()]


def _octets(column: pa.Array) -> list[bytes | None]:
    return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]


def _sizes(rows: pa.Table, own_values: pa.Array, own_from: Int64s, ours: int) -> Int64s:
    payload = (_lengths(_one(rows[name])) for name in ("key", "value"))
    up_to = np.r_[0, np.cumsum(_lengths(own_values))]
    own = np.diff(up_to[own_from])
    headers = np.diff(own_from) + ours
    return np.asarray(sum(payload) + own + _ROW_BYTES + _HEADER_BYTES * headers, dtype=np.int64)


def _lengths(column: pa.Array) -> Int64s:
    return pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
