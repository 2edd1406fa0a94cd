"""Frames: columns that are there, and nulls for those that are not."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, functions as F, types as T


def filled(rows: DataFrame, schema: T.StructType, given: Mapping[str, Column] | None = None) -> DataFrame:
    """The columns of a schema, each cast to its type.

    Args:
        rows: The rows.
        schema: The columns.
        given: Those that are computed; of the others, one that the rows lack is null.
    """
    here = {name: F.col(name) for name in rows.columns} | dict(given or {})
    nothing = F.lit(None)
    return rows.select(
        *(here.get(each.name, nothing).cast(each.dataType).alias(each.name) for each in schema.fields)
    )
