"""Batches of literal rows through the batch writer, as the query writes them."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from wheel_udf.common.errors import LeaseError
from wheel_udf.sinks.batch_writer import write_batch
from wheel_udf.sinks.destinations import FIRED_SCHEMA, OUTCOME, REJECT_SCHEMA
from wheel_udf.sinks.file_sink import FileSink

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from wheel_udf.sinks.destinations import Destinations, Shape


class Batches:
    """Writes batches to destinations; rejects go to the folder ``rejects``."""

    def __init__(self, spark: SparkSession, folder: Path, destinations: Destinations) -> None:
        self.spark, self.folder, self.destinations = spark, folder, destinations

    def write(self, batch_id: int, *rows: tuple[Any, ...], shape: Shape | None = None, **more: Any) -> int:
        ddl, name = (FIRED_SCHEMA, 3) if shape is None else (OUTCOME.columns, 9)
        rows_to: dict[str, int] = {}
        for row in rows:
            rows_to[row[name]] = rows_to.get(row[name], 0) + 1
        return write_batch(
            self.spark.createDataFrame(list(rows), f"{ddl}, source string"),
            lambda: self.spark.createDataFrame([], REJECT_SCHEMA),
            rows_to=rows_to,
            rejected=0,
            destinations=self.destinations,
            rejects=FileSink(str(self.folder / "rejects")),
            app_id="orders-1f",
            batch_id=batch_id,
            **({} if shape is None else {"shape": shape}),
            **more,
        )

    def write_without_a_lease(
        self, batch_id: int, *rows: tuple[Any, ...], after_checks: int = 0, **more: Any
    ) -> None:
        """As :meth:`write`, by a driver that finds after so many checks that its lease is lost."""
        checks = count(1)

        def require_lease() -> None:
            if next(checks) > after_checks:
                raise LeaseError("this process has lost the lease of the checkpoint")

        self.write(batch_id, *rows, require_lease=require_lease, **more)

    def table(self, place: str) -> list[Any]:
        return self.spark.read.parquet(str(self.folder / place)).orderBy("schedule_id").collect()
