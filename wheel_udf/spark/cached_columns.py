"""Columns that are the same in every batch, built once: :class:`Prepared`.

Each call on a pyspark column is a round trip to the JVM, and each batch builds the same columns. So the JVM's columns
are kept and passed to each batch's frame. Where pyspark's private attributes for this are missing, the columns are
built in each batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import Column, DataFrame

from wheel_udf.common.errors import UnsupportedVersionError
from wheel_udf.spark.jvm import java_gateway, scala_seq
from wheel_udf.spark.private_api import COLUMN_PLANS, required


class Prepared:
    """A projection or an order for frames that have its columns.

    Args:
        make: Builds the columns; called once for each JVM.
    """

    def __init__(self, make: Callable[[], Sequence[Column]]) -> None:
        self._make = make
        self._made: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def select(self, frame: DataFrame) -> DataFrame:
        """``frame.select(...)``."""
        with suppress(UnsupportedVersionError):
            return self._apply(frame, "select")
        return frame.select(*self._make())

    def sort_within_partitions(self, frame: DataFrame) -> DataFrame:
        """``frame.sortWithinPartitions(...)``."""
        with suppress(UnsupportedVersionError):
            return self._apply(frame, "sortWithinPartitions")
        return frame.sortWithinPartitions(*self._make())

    def _apply(self, frame: DataFrame, method: str) -> DataFrame:
        spark = frame.sparkSession
        machine = java_gateway(spark)
        if machine not in self._made:
            columns = self._make()
            with required(COLUMN_PLANS):
                self._made[machine] = scala_seq(spark, [column._jc for column in columns])  # noqa: SLF001
        with required(COLUMN_PLANS):
            from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

            return ClassicDataFrame(getattr(frame._jdf, method)(self._made[machine]), spark)  # noqa: SLF001
