"""What the slot store holds, from its partitions."""

from __future__ import annotations

from wheel_udf.common.geometry import Wheel
from wheel_udf.delivery.report import Stored
from wheel_udf.store.head import Partition
from wheel_udf.store.layout import INBOX, MARKS, NEAR, StoreLayout
from wheel_udf.tiered.figures import StoreFigures

# Level 3 has partitions of 400 s, level 4 of 8,000 s.
LAYOUT = StoreLayout(Wheel(tick_ms=1_000, size=20, levels=4), state_levels=2)
SECOND = 1_000


def test_far_rows_are_counted_by_level_and_by_how_soon_they_are_due() -> None:
    figures = StoreFigures(LAYOUT)
    figures.hand_over({3: 5})
    figures.hand_over({3: 2, 4: 9})
    width_ms = LAYOUT.width_ms(3)
    assert width_ms == 400 * SECOND
    figures.look(
        [
            Partition(INBOX, 0, 3, 7, 700),
            Partition(MARKS, 0, 1, 50, 10),
            Partition(NEAR, 4, 2, 60, 20),
            Partition(3, 0, 1, 100, 1_000),
            Partition(4, 1, 4, 1_000, 5_000),
        ],
        0,
    )

    assert figures.stored == Stored(
        files=11,
        bytes=6_730,
        by_level={"3": 100, "4": 1_000, "inbox": 7},
        # Of the 100 rows in [0, 400 s), 15 are taken to be due in a minute and 75 in five; all of them, and none in
        # [8,000 s, ...), in an hour.
        due_within={"1m": 15, "5m": 75, "1h": 100, "24h": 1_100},
        handed_over={"3": 7, "4": 9},
    )


def test_an_empty_store_holds_nothing() -> None:
    figures = StoreFigures(LAYOUT)
    figures.look([], 0)

    assert figures.stored == Stored(0, 0, {}, {"1m": 0, "5m": 0, "1h": 0, "24h": 0}, {})
