"""Columns that are the same in every batch, made once: :class:`Prepared`.

Each call on a pyspark column is a round trip to the JVM. Measured in a query from Kafka to Kafka: what one batch did with its frame was 700 of them,
a tenth of a second, for the very same columns as in the batch before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import Column, DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from wheel_udf.java import scala_seq


class Prepared:
    """A projection or an order, for frames that have its columns.

    Args:
        make: Makes the columns; called once for each JVM.
    """

    def __init__(self, make: Callable[[], Sequence[Column]]) -> None:
        self._make = make
        self._made: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def select(self, frame: DataFrame) -> DataFrame:
        """``frame.select(...)``."""
        return self._with(frame, "select")

    def sort_within_partitions(self, frame: DataFrame) -> DataFrame:
        """``frame.sortWithinPartitions(...)``."""
        return self._with(frame, "sortWithinPartitions")

    def _with(self, frame: DataFrame, method: str) -> DataFrame:
        spark = frame.sparkSession
        machine = spark._jvm  # noqa: SLF001  # one for each JVM
        if machine not in self._made:
            self._made[machine] = scala_seq(spark, [column._jc for column in self._make()])  # noqa: SLF001  # as pyspark does
        plan = getattr(frame._jdf, method)(self._made[machine])  # noqa: SLF001  # the same
        return ClassicDataFrame(plan, spark)
