"""Keeps the code that Spark generates small enough for Java's just-in-time compiler.

Spark compiles a projection to one method, and the just-in-time compiler leaves a method of more than 8,000
bytes uncompiled: measured, every row then took five times as long. Two remedies, both by a lambda, which Spark
interprets::

    interpreted(column, needed)    a long expression that few rows need: error messages, records of rejects
    uncompiled(column)             splits the projection of a wide frame into several methods
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, functions as F


def through(column: Column, use: Callable[[Column], Column]) -> Column:
    """An expression of a column that is computed once, however often the expression names it; Spark interprets it."""
    return F.get(F.transform(F.array(column), use), F.lit(0))


def interpreted(column: Column, needed: Column) -> Column:
    """A long expression that few rows need, in a form that Spark interprets; null where it is not needed."""
    return F.when(needed, through(F.lit(0), lambda _: column))


def uncompiled(column: Column) -> Column:
    """The same column, in a form that makes Spark compile its projection in pieces: slower, never too big."""
    return F.coalesce(column, through(column, lambda same: same))
