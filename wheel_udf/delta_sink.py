"""Deliveries in Delta tables, exactly once.

Each commit carries (``app_id``, ``batch_id``) as its transaction, in the same atomic commit as the data and, where the table is new, as
its creation; a transaction that a table already holds is skipped. Tables are idempotent one by one, not atomic together.

What depends on the data of a row and not on the table (a CHECK constraint, a NOT NULL column that we may leave null) would fail the same
batch again and again: such tables are refused as a whole.

Cost: a commit is mostly the driver's and Delta's own bookkeeping (0.2 to 0.3 s warm on 2 busy cores for 1,000 rows, see
:mod:`wheel_udf.tables`). A table that was found sound is not looked at again, but for its existence.

Caveats: a batch makes one file in each table it writes (more above half a million rows), so a table written every second
wants an OPTIMIZE now and then; that, VACUUM and other writers' appends are no conflict for appends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from wheel_udf import tables
from wheel_udf.destinations import FIRED, REJECT_SCHEMA, Shape, fields, shape_of
from wheel_udf.errors import SinkError
from wheel_udf.tables import place_of

TABLE_PROPERTIES: Final[Mapping[str, str]] = {
    # Each checkpoint of the log is a latency spike; at the default of 10 every tenth batch has one. A new reader
    # replays up to this many small commits instead.
    "delta.checkpointInterval": "100",
    # A commit a second is 86,400 log files a day. A consumer may be away for a week, and files of tables stay readable.
    "delta.logRetentionDuration": "interval 7 days",
}
"""Properties of the tables that are made here; those of existing tables are left alone."""

# What is looked up by. Statistics on payloads help nobody and cost in every commit.
_STATISTICS: Final = "delta.dataSkippingStatsColumns"
_REJECT_STATISTICS: Final = "error_code,schedule_id,destination,rejected_at"


def _columns(destination: str | None, shape: Shape) -> tuple[T.StructType, frozenset[str]]:
    """The columns of a destination's rows (of the rejects' for None), and which of them always have a value."""
    if destination is None:
        return fields(REJECT_SCHEMA), frozenset()
    columns = fields(shape.columns)
    return columns, frozenset(columns.fieldNames()) - shape.may_be_null


@dataclass(frozen=True)
class DeltaSink:
    """A Delta table for each destination, at ``<path>/<destination>``. Exactly once.

    Attributes:
        path: The folder of the tables: a local path or any URI that Spark knows. (For rejects: the table itself.)
        create: Make tables that are missing, with :data:`TABLE_PROPERTIES`; else their rows are undeliverable. The table
            of the rejects is always made.
    """

    path: str
    create: bool = False
    _sound: set[tuple[str, Shape]] = field(default_factory=set, init=False, repr=False, compare=False)

    def missing_reason(
        self, spark: SparkSession, destination: str | None, shape: Shape = FIRED
    ) -> str | None:
        """See :meth:`~wheel_udf.destinations.Sink.missing_reason`: a bad name, no table, not a Delta table, other columns."""
        try:
            place = place_of(self.path, destination)
        except SinkError as fault:
            return str(fault)
        if destination is not None and tables.has_log(spark, self.path):
            return f"the folder of the tables, {self.path}, is a table itself"
        if not self._stands(spark, place):
            return self._absence(spark, destination, place)
        if (place, shape) in self._sound:
            return None
        misfit = tables.contradiction(tables.snapshot(spark, place), *_columns(destination, shape))
        if misfit is None:
            self._sound.add((place, shape))
        return f"the table {place} does not fit: {misfit}" if misfit else None

    def write(self, frame: DataFrame, destination: str | None, *, app_id: str, batch_id: int) -> None:
        """See :meth:`~wheel_udf.destinations.Sink.write`."""
        place, shape = place_of(self.path, destination), shape_of(frame)
        stands = self._stands(frame.sparkSession, place)
        if not stands and not self._creates(destination):
            raise SinkError("the table is missing", field=place, hint="make it, or say create: true")
        try:
            if stands:
                tables.append(frame, place, *_columns(destination, shape), app_id=app_id, batch_id=batch_id)
            else:
                transaction = {"txnAppId": app_id, "txnVersion": str(batch_id), "mergeSchema": "false"}
                statistics = _REJECT_STATISTICS if destination is None else shape.looked_up_by
                options = {**transaction, **TABLE_PROPERTIES, _STATISTICS: statistics}
                frame.write.format("delta").mode("append").options(**options).save(place)
        except Exception:
            self._forget(place)
            raise

    def holds(self, spark: SparkSession, destination: str | None, *, app_id: str, batch_id: int) -> bool:
        """See :meth:`~wheel_udf.destinations.Sink.holds`; the table's log knows."""
        try:
            place = place_of(self.path, destination)
        except SinkError:
            return False
        if not tables.has_log(spark, place):
            return False
        last = tables.last_transaction(tables.snapshot(spark, place), app_id)
        return last is not None and last >= batch_id

    def _stands(self, spark: SparkSession, place: str) -> bool:
        """Whether a table is there; a log without a commit is none (a first write that was killed leaves one)."""
        if not tables.has_log(spark, place):
            self._forget(place)
            return False
        known = any(sound == place for sound, _ in self._sound)
        return known or tables.snapshot(spark, place).version() >= 0

    def _forget(self, place: str) -> None:
        self._sound.difference_update([sound for sound in self._sound if sound[0] == place])

    def _creates(self, destination: str | None) -> bool:
        return self.create or destination is None

    def _absence(self, spark: SparkSession, destination: str | None, place: str) -> str | None:
        """Why it is a fault that no table is there; None if one will be made."""
        creates = self._creates(destination)
        if tables.is_foreign(spark, place, or_leftovers=not creates):
            return f"{place} is not a Delta table"
        return None if creates else f"the table {place} is missing"
