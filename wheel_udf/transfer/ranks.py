"""The rank of a memory record in Spark: ``2 * amend + op`` (:mod:`wheel_udf.wheel.version_order`)."""

from __future__ import annotations

from pyspark.sql import Column, functions as F


def rank_of(amend: Column, op: Column | int) -> Column:
    """The rank (int) of a version."""
    return (2 * amend + op).cast("int")


def amend_of(rank: Column) -> Column:
    """The ``amend`` (int) of a rank."""
    return F.shiftright(rank, 1)


def op_of(rank: Column) -> Column:
    """The ``op`` (int) of a rank."""
    return rank % 2
