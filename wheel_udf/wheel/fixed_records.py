"""Records of a fixed width in base64, of which some are read without the others.

::

    width 5       records      0     1     2   |   3     4     5   |   6     7     (padding)
                  characters   0 ........ 20   |  20 ........ 40   |  40 ............... 60

Three records are a whole number of groups of base64, so records are cut from the text at multiples of three.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from wheel_udf.common.arrays import runs_of
from wheel_udf.wheel.arrow_text import octets_of, text_of
from wheel_udf.wheel.rows import Int64s
from wheel_udf.wheel.texts import Text

Octets = npt.NDArray[np.uint8]


def rounded(size: Any) -> Any:
    """The next multiple of three."""
    return -(-size // 3) * 3


def to_text(records: Octets) -> str:
    """Records, uint8[n, width], as text; zeros are added up to a multiple of three."""
    size, width = records.shape
    padded = np.zeros((rounded(size), width), np.uint8)
    padded[:size] = records
    return text_of(padded.tobytes())


def characters(size: int, width: int) -> int:
    """Length of the text of so many records."""
    return int(rounded(size)) // 3 * 4 * width


def windows(text: Text, at: int, width: int, size: int, starts: Int64s, ends: Int64s) -> Octets:
    """Reads runs of records, one after the other: uint8[n, width].

    Args:
        text: A text that holds the records.
        at: Where in the text they begin.
        width: Bytes of a record.
        size: Number of records.
        starts: The first record of each run.
        ends: The record after the last one of each run.
    """
    lengths = ends - starts
    firsts, lasts = starts // 3 * 3, rounded(ends)
    if len(starts) == 1 and lengths[0] == size:
        return _between(text, at, width, firsts, lasts)[:size]
    if 2 * lengths.sum() >= size:
        firsts, lasts = np.zeros(1, np.int64), np.full(1, rounded(size))
        begins = starts
    else:
        begins = np.cumsum(lasts - firsts) - lasts + starts
    records = _between(text, at, width, firsts, lasts)
    return np.asarray(records[runs_of(begins, lengths)], dtype=np.uint8)


def single(text: Text, at: int, width: int, places: Int64s) -> Octets:
    """Reads single records: uint8[n, width]."""
    firsts = places // 3 * 3
    records = _between(text, at, width, firsts, firsts + 3)
    return np.asarray(records[np.arange(0, 3 * len(places), 3) + (places - firsts)], dtype=np.uint8)


def _between(text: Text, at: int, width: int, firsts: Int64s, lasts: Int64s) -> Octets:
    """The records between bounds that are multiples of three."""
    cuts = [at + bounds // 3 * 4 * width for bounds in (firsts, lasts)]
    # A slice for each run, 0.2 us: numpy cannot read the characters of a text in place.
    parts = "".join([text[a:b] for a, b in zip(*(cut.tolist() for cut in cuts), strict=True)])
    return np.frombuffer(octets_of(parts), np.uint8).reshape(-1, width)
