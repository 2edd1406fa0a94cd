"""Parcels: rows that a batch hands over, as arguments of a Kafka client, in order of their due times.

::

    Arrow table of a batch (topic, key, value, headers, due_ms) --Parcel.of--> due_ms [int64], and a list for each argument of produce()

The header ``wheel-fired-at`` keeps its place among the others; its value is set when the record is sent.

Cost: about 6 us a row, most of it for the header pairs; Python loops over rows only here and where they are sent, on the driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

FIRED_AT: Final = "wheel-fired-at"
"""The header with the instant of the sending, ISO 8601."""

Int64s = npt.NDArray[np.int64]
Header = tuple[str, bytes | None]

_HEADER_BYTES: Final = 300
"""What a record costs in memory besides its payload."""


@dataclass(frozen=True, eq=False)
class Parcel:
    """Records for one producer; lists of one length.

    Attributes:
        due_ms: When each is due (UTC epoch ms), rising.
        topics: Their topics.
        keys: Their keys.
        values: Their values.
        headers: Their headers.
        fired_at: Where among its headers each has :data:`FIRED_AT`.
        sizes: About how many bytes each takes in memory.
    """

    due_ms: Int64s
    topics: list[str]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[list[Header]]
    fired_at: list[int]
    sizes: Int64s

    @classmethod
    def of(cls, rows: pa.Table) -> Parcel:
        """Makes a parcel.

        Args:
            rows: ``topic`` string, ``key`` and ``value`` binary, ``headers`` list of (key string, value binary) with one header
                :data:`FIRED_AT` in each, ``due_ms`` int64.
        """
        due_ms = rows["due_ms"].to_numpy()
        order = np.argsort(due_ms, kind="stable")
        rows = rows.take(pa.array(order)).combine_chunks()
        pairs, starts = _headers(rows["headers"])
        names = np.array([name for name, _ in pairs], dtype=object)
        return cls(
            due_ms=due_ms[order],
            topics=rows["topic"].to_pylist(),
            keys=_octets(rows["key"]),
            values=_octets(rows["value"]),
            headers=[pairs[a:b] for a, b in pairwise(starts.tolist())],
            fired_at=(np.flatnonzero(names == FIRED_AT) - starts[:-1]).tolist(),
            sizes=_sizes(rows, starts),
        )


def _headers(column: pa.ChunkedArray) -> tuple[list[Header], Int64s]:
    """The headers of all rows one after another, and where those of each row begin; one more at the end."""
    lists = _one(column)
    flat = lists.flatten()
    starts = np.r_[0, np.cumsum(pc.list_value_length(lists).to_numpy(zero_copy_only=False))].astype(np.int64)
    names, values = flat.field(0), flat.field(1)
    return list(zip(_texts(names), values.to_numpy(zero_copy_only=False).tolist(), strict=True)), starts


def _one(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    return joined if isinstance(joined, pa.Array) else pa.concat_arrays(joined.chunks)


def _texts(names: pa.Array) -> list[str]:
    # Each name occurs in all rows: so few are decoded. What is not UTF-8 becomes U+FFFD, as in Kafka's own client.
    encoded = names.cast(pa.binary()).dictionary_encode()
    words = [name.decode(errors="replace") for name in encoded.dictionary.to_pylist()]
    return [words[code] for code in encoded.indices.to_numpy().tolist()]


def _octets(column: pa.ChunkedArray) -> list[bytes | None]:
    return _one(column).to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]


def _sizes(rows: pa.Table, starts: Int64s) -> Int64s:
    payload = (pc.binary_length(rows[name]).fill_null(0).to_numpy() for name in ("key", "value"))
    return np.asarray(sum(payload) + _HEADER_BYTES + 100 * np.diff(starts), dtype=np.int64)
