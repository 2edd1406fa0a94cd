"""What the slot store holds, and what has left it: figures for reports, from the metadata of its files, without reading
data.

::

    partition (level 4, slot 12), 900 rows  -->  by_level 4: 900
                                                 due_within 1h: the part of the 900 before it, if they are spread evenly
    hand-over of that partition             -->  handed_over 4: 900

Cost: one pass over the list of files. The supervisor does it every ten seconds, so figures can be that old.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from wheel_udf.delivery.report import Stored
from wheel_udf.shard.holdings import due_within
from wheel_udf.store.head import Partition
from wheel_udf.store.layout import INBOX, StoreLayout, is_far


class StoreFigures:
    """The latest figures of one store.

    Attributes:
        stored: The figures.
    """

    def __init__(self, layout: StoreLayout) -> None:
        self._layout, self._left = layout, Counter[str]()
        self.stored = Stored()

    def hand_over(self, rows: Mapping[int, int]) -> None:
        """Counts the rows that have left each level."""
        self._left.update({str(level): count for level, count in rows.items()})
        self.stored = replace(self.stored, handed_over=dict(sorted(self._left.items())))

    def look(self, partitions: Sequence[Partition], clock_ms: int) -> None:
        """Makes the figures anew, from all partitions of the store."""
        by_level: Counter[str] = Counter()
        for each in partitions:
            if is_far(each.level):
                by_level["inbox" if each.level == INBOX else str(each.level)] += each.rows
        slots = [each for each in partitions if is_far(each.level) and each.level != INBOX]
        widths = [self._layout.width_ms(each.level) for each in slots]
        low = [each.slot * width for each, width in zip(slots, widths, strict=True)]
        high = [begin_ms + width - 1 for begin_ms, width in zip(low, widths, strict=True)]
        # As floats: the last partition of a wheel may end beyond 64 bits.
        low_ms, high_ms, rows = (
            np.array(values, np.float64) for values in (low, high, [each.rows for each in slots])
        )
        self.stored = Stored(
            files=sum(each.files for each in partitions),
            bytes=sum(each.bytes for each in partitions),
            by_level=dict(sorted(by_level.items())),
            due_within=due_within(low_ms, high_ms, rows, clock_ms),
            handed_over=dict(sorted(self._left.items())),
        )
