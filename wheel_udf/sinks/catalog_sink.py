"""Catalog sink: deliveries in Delta tables that a catalog knows by name, exactly once.

As :mod:`wheel_udf.sinks.delta_sink`, with two differences. Rows go to a table by its name and are committed by Delta's
own writer, because catalogs refuse writers that know a path. And a name may lead to another table tomorrow: it is
looked up again whenever the log at the table's location is not that of the table that was checked.

Several destinations may have one table (``table: main.reminders.due``; in catalogs without case also ``Orders`` and
``orders``). Therefore each destination has its own series of transactions: ``<app_id>/<destination>``.

::

    batch 7, late    known, its log as it was checked        no look-up, an append by name
                     its log has another table, or none      look-up: columns, view, missing (create: CREATE TABLE)
                     the append finds no table               once more: look-up, create, append

Caveat: of a table whose log cannot be read from here (:mod:`wheel_udf.tables.named_tables`) the transactions are not
known. ``holds`` returns False, and Delta itself skips what the table has.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from wheel_udf.common.errors import SinkError
from wheel_udf.common.names import NAME_RULE, AllowList, is_destination_name
from wheel_udf.common.table_names import TableName
from wheel_udf.sinks.delta_sink import columns_of_rows, new_table_properties
from wheel_udf.sinks.destinations import FIRED, Shape, TablesByName, series_of
from wheel_udf.tables import named_tables
from wheel_udf.tables.delta_log import snapshot
from wheel_udf.tables.named_tables import NamedTable, NotATableError
from wheel_udf.tables.table_state import TableState, has_batch

_creating: Final = threading.Lock()
"""Destinations of a batch that have one table create it once."""


@dataclass(frozen=True)
class _Checked:
    """A table that fits rows of a shape.

    Attributes:
        table: What its name leads to.
        shape: The shape.
        lacking: The columns of the shape that the table does without.
    """

    table: NamedTable
    shape: Shape
    lacking: frozenset[str]

    def still_stands(self) -> bool:
        """Whether the log at the location is still that of the table, with the same columns and properties."""
        if not self.table.has_log:
            return False
        now = snapshot(self.table.location)
        return _rules_of(now) == _rules_of(self.table.state)


def _rules_of(state: TableState) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    return state.metadata, state.protocol


@dataclass(frozen=True)
class CatalogTableSink(TablesByName):
    """A Delta table for each destination, by its name in a catalog. Exactly once; the catalog places new tables."""

    _checked: dict[TableName, _Checked] = field(default_factory=dict, init=False, repr=False, compare=False)
    _refused: dict[TableName, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Names that the catalog has refused to create, until that is asked for."""
    _unheld: set[TableName] = field(default_factory=set, init=False, repr=False, compare=False)
    """Tables that were missing when they were first asked for batches: what they hold since, this sink has written."""

    def missing_reason(
        self, spark: SparkSession, destination: str | None, shape: Shape = FIRED
    ) -> str | None:
        """See :meth:`~wheel_udf.sinks.destinations.Sink.missing_reason`: schema, table, format or columns.

        Raises:
            SinkError: The catalog does not answer.
        """
        if destination is not None and not is_destination_name(destination):
            return f"not a destination name: {destination!r}; rule: {NAME_RULE}"
        name = self.name.of(destination)
        if (refused := self._refused.pop(name, None)) is not None:
            return refused
        known = self._checked.get(name)
        if known is not None and known.shape == shape and known.still_stands():
            return None
        self._checked.pop(name, None)
        table = named_tables.look_up(spark, name)
        if table is None:
            if (fault := named_tables.schema_fault(spark, name)) is not None:
                return f"there is no table {name}: {fault}"
            return None if self.create or destination is None else f"the table {name} is missing"
        return self._check(name, table, destination, shape)

    def _check(self, name: TableName, table: NamedTable, destination: str | None, shape: Shape) -> str | None:
        there = {} if table.fault is not None else {each["name"].lower() for each in table.state.columns()}
        lacking = frozenset() if destination is None else shape.optional.difference(there)
        misfit = named_tables.misfit(table, *columns_of_rows(destination, shape, lacking))
        if misfit is None:
            self._checked[name] = _Checked(table, shape, lacking)
        return f"the table {name} does not fit: {misfit}" if misfit else None

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
        name, spark = self.name.of(destination), frame.sparkSession
        self._unheld.discard(name)
        for last in (False, True):
            rows = frame.drop(*self._made(spark, destination, shape).lacking)
            try:
                named_tables.append(rows, name, app_id=series_of(app_id, destination), batch_id=batch_id)
            except Exception as fault:
                self._checked.pop(name, None)
                if last or not named_tables.is_missing(fault):
                    raise
            else:
                return

    def _made(self, spark: SparkSession, destination: str | None, shape: Shape) -> _Checked:
        """The table, checked; created if it is missing and may be created.

        Raises:
            SinkError: It cannot be written.
        """
        name = self.name.of(destination)
        if (known := self._checked.get(name)) is not None:
            return known
        with _creating:
            reason = self.missing_reason(spark, destination, shape)
            if reason is None and name not in self._checked:
                refused = self._create(spark, destination, shape)
                reason = self.missing_reason(spark, destination, shape)
                if refused is not None and name not in self._checked:
                    self._refused[name] = reason = refused
        known = self._checked.get(name)
        if reason is None and known is not None:
            return known
        raise SinkError(reason or "the table was dropped meanwhile", field=str(name))

    def _create(self, spark: SparkSession, destination: str | None, shape: Shape) -> str | None:
        """Creates a table; returns why the catalog refuses it, which may be that another job creates it just now."""
        columns, _, _ = columns_of_rows(destination, shape, frozenset())
        try:
            named_tables.create(
                spark, self.name.of(destination), columns, new_table_properties(destination, shape)
            )
        except NotATableError as fault:
            return str(fault)
        return None

    def holds(
        self,
        spark: SparkSession,
        destination: str | None,
        *,
        app_id: str,
        batch_id: int,
    ) -> bool:
        """See :meth:`~wheel_udf.sinks.destinations.Sink.holds`; from the table's log, if that can be read."""
        if destination is not None and not is_destination_name(destination):
            return False
        name = self.name.of(destination)
        if name in self._checked:
            table: NamedTable | None = self._checked[name].table
        elif name in self._unheld:
            return False
        else:
            table = named_tables.look_up(spark, name)
            if table is None:
                self._unheld.add(name)
        if table is None or not table.has_log:
            return False
        marks = snapshot(table.location).transactions()
        return has_batch(marks, series_of(app_id, destination), batch_id)

    def table_of(self, destination: str | None) -> str:
        """The name of a destination's table, for Spark."""
        return self.name.of(destination).sql

    def tables(self, spark: SparkSession, pattern: str | None) -> Iterator[str]:
        """Yields the names, for Spark, of the tables that :meth:`found` finds."""
        yield from (name.sql for name, _ in self.found(spark, pattern))

    def found(self, spark: SparkSession, pattern: str | None) -> Iterator[tuple[TableName, NamedTable]]:
        """Yields the tables that exist for a name or pattern of the allow-list; None: that of the rejects."""
        name = self.name
        if not name.is_template:
            found = [name]
        elif pattern is None or is_destination_name(pattern):
            found = [name.of(pattern)]
        else:
            # Catalogs write names in small letters, and a pattern may have capitals.
            allowed, there = AllowList([pattern.lower()]), named_tables.tables_in(spark, name)
            of_names = [
                destination for table in there if (destination := name.destination_of(table)) is not None
            ]
            found = [name.of(each) for each in of_names if allowed.first(each.lower()) is not None]
        for each in found:
            table = named_tables.look_up(spark, each)
            if table is not None and table.fault is None:
                yield each, table

    def rows(self, spark: SparkSession, table: str) -> DataFrame:
        """The rows of a table, by its name."""
        return spark.table(table)


def last_batch(marks: Mapping[str, int], app_id: str) -> int | None:
    """The newest batch of a query in a table, for whichever destination; None if it has none.

    Args:
        marks: The version of the last transaction of each app id.
        app_id: Id of the query, or of its rejects.
    """
    own = (version for name, version in marks.items() if name == app_id or name.startswith(f"{app_id}/"))
    return max(own, default=None)
