"""Places of the slot store by its rule, one due time at a time; the product has them for arrays and Spark columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wheel_udf.store.layout import NEAR

if TYPE_CHECKING:
    from wheel_udf.store.layout import StoreLayout


def placed(layout: StoreLayout, due_ms: int, cursor_ms: int) -> tuple[int, int]:
    """(level, slot) of a due time at a cursor, a multiple of the window."""
    window_ms, top = layout.window_ms, layout.far_levels[-1]
    if due_ms < cursor_ms:
        return NEAR, max(due_ms // window_ms, layout.first_near_slot(cursor_ms))
    widths = {level: layout.width_ms(level) for level in layout.far_levels}
    fits = (
        level
        for level, width_ms in widths.items()
        if level == top or due_ms < (cursor_ms // width_ms + layout.wheel.size) * width_ms
    )
    level = next(fits)
    return level, due_ms // widths[level]
