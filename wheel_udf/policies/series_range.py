"""The occurrences of series in a range of time, for acts that deliver them again."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.arrays import Int64s
from wheel_udf.policies.series import rule_of

_NONE: Final = np.zeros(0, np.int64)


def occurrences_in(
    texts: pa.ChunkedArray, anchor_ms: Int64s, from_ms: int, to_ms: int, most: int
) -> tuple[Int64s, Int64s]:
    """Lists the occurrences of series in ``[from, to)``, none after their ``until``. Their ``count`` does not matter.

    A cron rule has them also before the series began; all other rules begin at the anchor.

    Args:
        texts: The column ``repeat`` of their entries, without nulls.
        anchor_ms: Their anchors.
        from_ms: From here.
        to_ms: To here, exclusive.
        most: Once more than this many are found, the search ends.

    Returns:
        The series of each, as a position, and its nominal time.
    """
    encoded = pc.dictionary_encode(texts).combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0)
    codes = encoded.indices.to_numpy()
    rows, instants, found = [_NONE], [_NONE], 0
    for code, text in enumerate(encoded.dictionary.to_pylist()):
        rule, of_text = rule_of(text), np.flatnonzero(codes == code)
        anchors = anchor_ms[of_text] * rule.occurrences.rule.is_anchored
        for anchor in np.unique(anchors).tolist():
            same = of_text[anchors == anchor]
            upto_ms = min(rule.until_ms, to_ms - 1)
            some = rule.occurrences.between(from_ms - 1, upto_ms, anchor, most + 1)
            rows.append(np.repeat(same, len(some)))
            instants.append(np.tile(some, len(same)))
            found += len(some) * len(same)
            if found > most:
                break
        if found > most:
            break
    return np.concatenate(rows), np.concatenate(instants)
