"""Columns that are the same in every batch, built once: :class:`Prepared`.

Each call on a pyspark column is a round trip to the JVM, and each batch builds the same columns; those of a Kafka
record take a tenth of a small batch. So they are kept for as long as their Spark context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame


class Prepared:
    """A projection or an order for frames that have its columns.

    Args:
        make: Builds the columns; called once for each Spark context.
    """

    def __init__(self, make: Callable[[], Sequence[Column]]) -> None:
        self._make = make
        self._made: WeakKeyDictionary[SparkContext, Sequence[Column]] = WeakKeyDictionary()

    def columns(self, frame: DataFrame) -> Sequence[Column]:
        """The columns, for ``select`` or an order of a frame."""
        context = frame.sparkSession.sparkContext
        if context not in self._made:
            self._made[context] = self._make()
        return self._made[context]
