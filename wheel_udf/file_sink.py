"""Deliveries in files (Parquet, JSON, CSV), for a first look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from wheel_udf import tables
from wheel_udf.destinations import FIRED, Shape
from wheel_udf.errors import ConfigError, SinkError
from wheel_udf.tables import place_of

_FORMATS: Final = ("parquet", "json", "csv")


@dataclass(frozen=True)
class FileSink:
    """Files, for a first look: the rows of a batch in the folder ``<path>/<destination>/run=<app_id>/batch=<batch_id>``.

    The guarantee: once a batch is committed its folder holds exactly its rows, since a repetition of the batch overwrites
    it. It is less than Delta's: who reads while a batch is being written may see part of it or, while one is repeated,
    nothing of it; and a batch that failed for good leaves what it had written.

    Parquet keeps the types. JSON has binary as base64 and instants as ISO 8601 text. CSV is text with a header line: key
    and value are base64, headers a JSON array with base64 values; null and an empty string look the same there.

    Attributes:
        path: The folder of the folders. (For rejects: their own folder.)
        format: parquet, json or csv.
    """

    path: str
    format: str = "parquet"

    def __post_init__(self) -> None:
        if self.format not in _FORMATS:
            raise ConfigError(
                "an unknown file format", field="format", value=self.format, rule="parquet, json or csv"
            )

    def missing_reason(
        self,
        spark: SparkSession,
        destination: str | None,
        shape: Shape = FIRED,  # noqa: ARG002  # files have any columns
    ) -> str | None:
        """See :meth:`~wheel_udf.destinations.Sink.missing_reason`: only a bad name; folders are made as they are needed."""
        try:
            place = place_of(self.path, destination)
        except SinkError as fault:
            return str(fault)
        return f"{place} is a Delta table" if tables.has_log(spark, place) else None

    def write(self, frame: DataFrame, destination: str | None, *, app_id: str, batch_id: int) -> None:
        """See :meth:`~wheel_udf.destinations.Sink.write`."""
        rows = _as_text(frame) if self.format == "csv" else frame
        writer = rows.write.format(self.format).mode("overwrite")
        if self.format == "csv":
            writer = writer.option("header", "true")
        writer.save(self._folder(destination, app_id, batch_id))

    def holds(self, spark: SparkSession, destination: str | None, *, app_id: str, batch_id: int) -> bool:
        """See :meth:`~wheel_udf.destinations.Sink.holds`; Spark marks a folder that is complete."""
        if self.missing_reason(spark, destination) is not None:
            return False
        return tables.exists(spark, f"{self._folder(destination, app_id, batch_id)}/_SUCCESS")

    def _folder(self, destination: str | None, app_id: str, batch_id: int) -> str:
        return f"{place_of(self.path, destination)}/run={app_id}/batch={batch_id}"


def _as_text(frame: DataFrame) -> DataFrame:
    """What CSV can hold: bytes as base64, arrays as JSON (in which Spark writes bytes as base64 too)."""

    def text(column: T.StructField) -> Column:
        if isinstance(column.dataType, T.BinaryType):
            return F.base64(column.name).alias(column.name)
        if isinstance(column.dataType, T.ArrayType):
            return F.to_json(column.name).alias(column.name)
        return F.col(column.name)

    return frame.select(*(text(column) for column in frame.schema))
