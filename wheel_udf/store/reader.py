"""Reads the rows of the slot store as frames, and the stream of near rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession, functions as F

from wheel_udf.spark.connect_session import require_jvm
from wheel_udf.store.layout import NEAR, StoreLayout
from wheel_udf.store.log import StoreLog
from wheel_udf.store.table import STORE_SCHEMA
from wheel_udf.tables.delta_files import File, rows_of_files

_ALL_FILES: Final = "1000000000"  # Delta's default of 1,000 files a batch would split a large hand-over


class StoreReader(StoreLog):
    """Reads the table of a layout.

    Args:
        spark: The session.
        path: Place of the table, a path or any URI that Spark knows.
        layout: Layout of the table.
    """

    def __init__(self, spark: SparkSession, path: str, layout: StoreLayout) -> None:
        require_jvm(spark, "the slot store")
        super().__init__(path, layout)
        self.spark = spark

    def rows(self, *, version: int | None = None) -> DataFrame:
        """Returns the rows of a version; filters on ``level`` and ``slot`` read only their partitions."""
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self.path)

    def added_since(self, version: int) -> DataFrame:
        """Returns the rows of files that were added with new data after a version.

        Cost: reads only those files; O(actions of the commits since).
        """
        return self.rows_of_files(self.files_since(version))

    def near_stream(self) -> DataFrame:
        """Returns the near rows as a stream, the rows of each append once; drops and compactions do not affect it.

        A commit that both adds and removes files would be skipped whole; therefore a hand-over is two commits.

        A store that never had rows is read by its log from the beginning. Otherwise Delta would compute the table's
        state for the first batches, a tenth of the CPU time of a start. If a later start, without this option, repeats
        the first batch, Delta reads the state of the version before the batch's end: the same rows, since near rows
        are dropped only after a batch of the wheel.
        """
        reader = self.spark.readStream.format("delta")
        options = {"skipChangeCommits": "true", "maxFilesPerTrigger": _ALL_FILES}
        if self.never_had_rows():
            options["startingVersion"] = "0"
        return reader.options(**options).load(self.path).where(F.col("level") == NEAR)

    def rows_of_files(self, files: Mapping[str, File], *, named: str | None = None) -> DataFrame:
        """Returns the rows of data files (:class:`Contents`); planned without a Spark job, unlike :meth:`rows`.

        Args:
            files: The files.
            named: A further column, for the name of a row's file.
        """
        return rows_of_files(self.spark, self.path, STORE_SCHEMA, files, named=named)
