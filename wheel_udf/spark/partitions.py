"""Partitions whose rows are chosen by a number."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def by_number(frame: DataFrame, count: int, column: str) -> DataFrame:
    """Sends the rows with one number to one partition.

    Spark 4.0 has no partitions by number: there some get the rows of several numbers, and others none.

    Args:
        frame: The rows.
        count: Number of partitions.
        column: Column with the number, int, from 0 to less than `count`.
    """
    if hasattr(type(frame), "repartitionById"):
        return frame.repartitionById(count, column)
    return frame.repartition(count, column)
