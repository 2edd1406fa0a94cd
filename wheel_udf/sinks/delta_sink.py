"""Delta sink: deliveries in Delta tables, exactly once.

Each commit carries (``app_id``, ``batch_id``) as its transaction, in the same atomic commit as the data and, if the
table is new, as its creation; a transaction that a table has already is skipped. Tables are idempotent one by one, not
atomic together.

A table whose rules depend on the data of a row (a CHECK constraint, a NOT NULL column that a delivery may leave null,
folders named by a text that may be too long) would fail the same batch again and again. Such a table is refused as a
whole: its rows are undeliverable. Generated columns are not examined, and must not raise on data.

Caveats: a batch writes one file into each of its tables (more above half a million rows), so a table that is written
every second needs an OPTIMIZE now and then. That, VACUUM and appends of other writers do not conflict with the sink's
appends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, SparkSession, types as T

from wheel_udf.common.errors import SinkError
from wheel_udf.common.names import AllowList
from wheel_udf.sinks.destinations import (
    FIRED,
    REJECT_SCHEMA,
    REJECT_STATISTICS,
    TABLE_PROPERTIES,
    Shape,
    fields,
)
from wheel_udf.spark.files import open_folder
from wheel_udf.spark.object_stores import is_in_object_store
from wheel_udf.spark.places import place_of
from wheel_udf.tables import delta_log as tables
from wheel_udf.tables.delta_transaction import append_once, create_once, creates_alone
from wheel_udf.tables.table_state import has_batch

# Only columns that are searched have statistics; those on payloads would cost time in every commit.
_STATISTICS: Final = "delta.dataSkippingStatsColumns"


def columns_of_rows(
    destination: str | None, shape: Shape, lacking: frozenset[str]
) -> tuple[T.StructType, frozenset[str], frozenset[str]]:
    """Returns the columns of a destination's rows (None: of the rejects), those never null, and those of short text.

    `lacking` are columns of the shape that the table does without.
    """
    if destination is None:
        return fields(REJECT_SCHEMA), frozenset(), frozenset({"error_code"})
    columns = T.StructType([each for each in fields(shape.columns) if each.name not in lacking])
    return columns, frozenset(columns.names) - shape.may_be_null, frozenset({"destination", "outcome"})


def new_table_properties(destination: str | None, shape: Shape) -> dict[str, str]:
    """The properties of a new table for a destination's rows (None: for the rejects)."""
    statistics = REJECT_STATISTICS if destination is None else shape.looked_up_by
    return {**TABLE_PROPERTIES, _STATISTICS: statistics}


def _lacking(place: str, shape: Shape) -> frozenset[str]:
    """The columns of a shape that a table may lack, and does."""
    if not shape.optional:
        return frozenset()
    return shape.optional.difference(column["name"].lower() for column in tables.snapshot(place).columns())


@dataclass(frozen=True)
class DeltaSink:
    """A Delta table for each destination, at ``<path>/<destination>``. Exactly once.

    Attributes:
        path: The folder of the tables: a local path or any URI that Spark knows. (For rejects: the table itself.)
        create: Create missing tables, with :data:`TABLE_PROPERTIES`; otherwise their rows are undeliverable. The table
            of the rejects is always created.
    """

    path: str
    create: bool = False
    _sound: dict[str, tuple[Shape, frozenset[str]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Tables that fit rows of a shape, and the columns of it that they lack."""

    def missing_reason(
        self, spark: SparkSession, destination: str | None, shape: Shape = FIRED
    ) -> str | None:
        """See :meth:`~wheel_udf.sinks.destinations.Sink.missing_reason`: wrong name, table, format or columns."""
        try:
            place = place_of(self.path, destination)
        except SinkError as fault:
            return str(fault)
        if destination is not None and place not in self._sound and tables.has_log(spark, self.path):
            return f"the folder of the tables, {self.path}, is a table itself"
        if not self._stands(spark, place):
            creates = self.create or destination is None
            if tables.is_foreign(spark, place, or_leftovers=not creates):
                return f"{place} is not a Delta table"
            return None if creates else f"the table {place} is missing"
        if place in self._sound and self._sound[place][0] == shape:
            return None
        lacking = _lacking(place, shape)
        misfit = tables.snapshot(place).contradiction(*columns_of_rows(destination, shape, lacking))
        if misfit is None:
            self._sound[place] = shape, lacking
        return f"the table {place} does not fit: {misfit}" if misfit else None

    def write(
        self,
        frame: DataFrame,
        destination: str | None,
        *,
        app_id: str,
        batch_id: int,
        shape: Shape = FIRED,
    ) -> None:
        """See :meth:`~wheel_udf.sinks.destinations.Sink.write`."""
        place, spark = place_of(self.path, destination), frame.sparkSession
        # In an object store each look is two requests: this batch has looked already, and the transaction looks again.
        looked = is_in_object_store(place) and place in self._sound
        stands = looked or self._stands(spark, place)
        if not stands and not self.create and destination is not None:
            raise SinkError("the table is missing", field=place, hint="create it, or set create: true")
        properties = new_table_properties(destination, shape)
        if not stands and creates_alone(spark, place):
            create_once(place, frame.schema, properties)
        elif not stands:
            transaction = {"txnAppId": app_id, "txnVersion": str(batch_id), "mergeSchema": "false"}
            options = {**transaction, **properties}
            try:
                frame.write.format("delta").mode("append").options(**options).save(place)
            except Exception:
                # Another query may have created the table meanwhile.
                if not self._stands(spark, place):
                    raise
            else:
                return
        lacking = self._sound[place][1] if place in self._sound else _lacking(place, shape)
        frame = frame.drop(*lacking) if lacking and destination is not None else frame
        try:
            append_once(
                frame, place, *columns_of_rows(destination, shape, lacking), app_id=app_id, batch_id=batch_id
            )
        except Exception:
            self._sound.pop(place, None)
            raise

    def holds(
        self,
        spark: SparkSession,  # noqa: ARG002  # other sinks need it
        destination: str | None,
        *,
        app_id: str,
        batch_id: int,
    ) -> bool:
        """See :meth:`~wheel_udf.sinks.destinations.Sink.holds`; from the table's log."""
        try:
            place = place_of(self.path, destination)
        except SinkError:
            return False
        return has_batch(tables.snapshot(place).transactions(), app_id, batch_id)

    def table_of(self, destination: str | None) -> str:
        """The place of a destination's table."""
        return place_of(self.path, destination)

    def tables(self, spark: SparkSession, pattern: str | None) -> Iterator[str]:
        """Yields the places of the tables that exist for a name or pattern of the allow-list; None: of the rejects."""
        if pattern is None:
            names: list[str | None] = [None]
        else:
            allowed = AllowList([pattern])
            names = [name for name in open_folder(self.path).names() if allowed.first(name) is not None]
        places = (f"{self.path}/{name}" if name is not None else self.path for name in names)
        yield from (place for place in places if tables.has_log(spark, place))

    def rows(self, spark: SparkSession, table: str) -> DataFrame:
        """The rows of a table, by its place."""
        return spark.read.format("delta").load(table)

    def _stands(self, spark: SparkSession, place: str) -> bool:
        """Whether a table exists; a log without a commit (left by a first write that was killed) is not a table."""
        if is_in_object_store(place):
            # The log is read with fewer requests than Hadoop needs to see that a folder exists.
            stands = tables.snapshot(place).version >= 0
        else:
            stands = tables.has_log(spark, place)
            stands = stands and (place in self._sound or tables.snapshot(place).version >= 0)
        if not stands:
            self._sound.pop(place, None)
        return stands
