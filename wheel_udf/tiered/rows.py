"""Expressions over rows of the slot store that hand-over and retirement share."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, functions as F

from wheel_udf.store.table import STORE_SCHEMA


def version_rows(
    rows: DataFrame, *, level: int, slot: int, act: Column, version: tuple[str, str, str | None]
) -> DataFrame:
    """Returns rows of the store that hold an id and a version and no payload.

    Args:
        rows: One row for each result, with ``schedule_id``, ``id_hash`` and the columns of `version`.
        level: Level of the new rows.
        slot: Slot of the new rows.
        act: The act of the new rows for the wheel.
        version: Names of the columns with ``seq``, ``amend`` and ``op``; None for the op of a SCHEDULE.
    """
    seq, amend, op = version
    columns = {
        "level": F.lit(level),
        "slot": F.lit(slot),
        "act": act,
        "schedule_id": F.col("schedule_id"),
        "id_hash": F.col("id_hash"),
        "seq": F.col(seq),
        "amend": F.col(amend),
        "op": F.lit(0) if op is None else F.col(op),
        "seq_given": F.lit(True),
        "arrived": F.lit(0),
    }
    return rows.select(
        *(
            columns.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name)
            for field in STORE_SCHEMA
        )
    )
