"""File sink: deliveries in files (Parquet, JSON, CSV), for trying things out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, functions as F, types as T

from wheel_udf.common.errors import ConfigError, SinkError
from wheel_udf.sinks.destinations import FIRED, Shape
from wheel_udf.spark.places import place_of
from wheel_udf.tables import delta_log as tables

_FORMATS: Final = ("parquet", "json", "csv")


@dataclass(frozen=True)
class FileSink:
    """Files for trying things out: the rows of a batch in the folder
    ``<path>/<destination>/run=<app_id>/batch=<batch_id>``.

    Guarantee: once a batch is committed, its folder holds exactly its rows, because a repetition of the batch
    overwrites the folder. This is weaker than Delta: a reader may see part of a batch that is being written, or
    nothing of a batch that is being repeated, and a batch that failed for good leaves the files that it has written.

    Parquet keeps the types. JSON has binary as base64 and instants as ISO 8601 text. CSV is text with a header line:
    key and value are base64, headers a JSON array with base64 values; null and the empty string look the same.

    Attributes:
        path: The parent folder of all destinations. (For rejects: their own folder.)
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
        """See :meth:`~wheel_udf.sinks.destinations.Sink.missing_reason`: a bad name, or a Delta table is there."""
        try:
            place = place_of(self.path, destination)
        except SinkError as fault:
            return str(fault)
        return f"{place} is a Delta table" if tables.has_log(spark, place) else None

    def write(
        self,
        frame: DataFrame,
        destination: str | None,
        *,
        app_id: str,
        batch_id: int,
        shape: Shape = FIRED,  # noqa: ARG002  # files have any columns
    ) -> None:
        """See :meth:`~wheel_udf.sinks.destinations.Sink.write`."""
        rows = _as_text(frame) if self.format == "csv" else frame
        writer = rows.write.format(self.format).mode("overwrite")
        if self.format == "csv":
            writer = writer.option("header", "true")
        writer.save(self._folder(destination, app_id, batch_id))

    def holds(self, spark: SparkSession, destination: str | None, *, app_id: str, batch_id: int) -> bool:
        """See :meth:`~wheel_udf.sinks.destinations.Sink.holds`; Spark marks a complete folder."""
        if self.missing_reason(spark, destination) is not None:
            return False
        return tables.exists(spark, f"{self._folder(destination, app_id, batch_id)}/_SUCCESS")

    def _folder(self, destination: str | None, app_id: str, batch_id: int) -> str:
        return f"{place_of(self.path, destination)}/run={app_id}/batch={batch_id}"


def _as_text(frame: DataFrame) -> DataFrame:
    """Converts rows to what CSV can hold: bytes as base64, arrays as JSON (with bytes as base64)."""

    def text(column: T.StructField) -> Column:
        if isinstance(column.dataType, T.BinaryType):
            return F.base64(column.name).alias(column.name)
        if isinstance(column.dataType, T.ArrayType):
            return F.to_json(column.name).alias(column.name)
        return F.col(column.name)

    return frame.select(*(text(column) for column in frame.schema))
