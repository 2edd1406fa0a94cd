"""A driver of a tiered run that kills itself, hard, at a crash point: ``python -m tests.faults.tiered_victim FOLDER POINT``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults.victim import SETTINGS, die
from tests.faults.world import start_tiered_run
from wheel_udf.platform.session import build_session
from wheel_udf.store.slot_store import SlotStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from wheel_udf.store.head import Appended

POINTS = (
    "after the commit of the intake",
    "before the drop of what was handed over",
)
"""Before a commit nothing has happened yet: what is cut off there is tests/delta/test_store_keeper.py's. Tables are written as in the direct mode,
whose victim dies between them."""


def arm(point: str) -> None:
    """From now on one act of a store is the last."""
    kept_append, kept_drop = SlotStore.append, SlotStore.drop

    def append(store: SlotStore, frame: DataFrame | None, **named: Any) -> Appended:
        done = kept_append(store, frame, **named)
        if point == POINTS[0] and named["app_id"].endswith("-intake") and done.written:
            die()
        return done

    def drop(store: SlotStore, *given: Any, **named: Any) -> None:
        if point == POINTS[1]:
            die()
        kept_drop(store, *given, **named)

    SlotStore.append, SlotStore.drop = append, drop  # type: ignore[method-assign]


def main(folder: str, point: str) -> None:
    """Runs until the crash point."""
    arm(point)
    spark = build_session("victim", master="local[2]", conf=SETTINGS, checkpoint=folder)
    start_tiered_run(spark, Path(folder)).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
