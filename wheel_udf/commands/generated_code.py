"""Keeps the code that Spark generates small enough for Java's just-in-time compiler, and the same from batch to batch.

Spark compiles a projection to one method, and the just-in-time compiler leaves a method of more than 8,000 bytes
uncompiled, so every row takes much longer. Code that differs from that of the batch before, if only by a number, is
compiled anew and runs cold. Remedies, all by a lambda, which Spark interprets::

    interpreted(column, needed)    a long expression that few rows need: error messages, records of rejects
    of_batch(column)               a value that is the same in all rows of a batch, and another one in the next batch
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, functions as F


def evaluate_once(column: Column, use: Callable[[Column], Column]) -> Column:
    """An expression of a column that is computed once, however often the expression names it; Spark interprets it."""
    return F.get(F.transform(F.array(column), use), F.lit(0))


def interpreted(column: Column, needed: Column) -> Column:
    """A long expression that few rows need, in a form that Spark interprets; null where it is not needed."""
    return F.when(needed, evaluate_once(F.lit(0), lambda _: column))


def of_batch(column: Column) -> Column:
    """A value that is the same in all rows of a batch, such as its number, kept out of the generated code.

    The number of the partition (shifted, it is 0) is not deterministic, so the optimizer makes no copies of the
    expression: it is evaluated once for each row.
    """
    return F.get(
        F.transform(F.array(F.lit(0)), lambda _: column), F.shiftrightunsigned(F.spark_partition_id(), 31)
    )
