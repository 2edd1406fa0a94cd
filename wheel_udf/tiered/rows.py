"""Expressions over rows of the slot store that hand-over and retirement share."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, functions as F

from wheel_udf.store.table import STORE_SCHEMA


def version_rows(versions: DataFrame, *, level: int, slot: int, act: Column) -> DataFrame:
    """Returns rows of the store that hold an id and a version and no payload.

    Args:
        versions: One row for each result: ``schedule_id``, ``id_hash``, ``seq``, ``amend``, ``op``.
        level: Level of the new rows.
        slot: Slot of the new rows.
        act: The act of the new rows for the wheel.
    """
    own = ("schedule_id", "id_hash", "seq", "amend", "op")
    columns = {
        "level": F.lit(level),
        "slot": F.lit(slot),
        "act": act,
        "seq_given": F.lit(True),
        "arrived": F.lit(0),
        **{name: F.col(name) for name in own},
    }
    return versions.select(
        *(
            columns.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name)
            for field in STORE_SCHEMA
        )
    )
