"""The SQL of the database sink, for PostgreSQL: checks a table, and moves rows from the staging table into it.

::

    staging (fire_id text, key bytea, ...) --INSERT ... SELECT CAST(...) ... ON CONFLICT (fire_id) DO NOTHING--> table

A column of the table gets the column of the delivery with its name, cast to its type; columns of deliveries that the
table does not have are left out, and columns that deliveries do not have get their default.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from wheel_udf.sinks.destinations import Shape, fields
from wheel_udf.spark.jdbc import SqlFault

if TYPE_CHECKING:
    from wheel_udf.spark.jdbc import Database

MOST_SINGLE_ROWS: Final = 10_000
"""Most refused rows of a table found one by one in a batch. Beyond that, up to :data:`MOST_NEIGHBOURS` rows around each
are refused with it."""
MOST_NEIGHBOURS: Final = 64

_TYPES: Final = {"bigint": "bigint", "int": "integer", "timestamp": "timestamptz", "binary": "bytea"}
_COLUMNS: Final = """
SELECT a.attname, format_type(a.atttypid, NULL),
       CASE WHEN a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' THEN 'required' END
FROM pg_attribute a
WHERE a.attrelid = to_regclass(?) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
"""
_UNIQUE: Final = """
SELECT 1
FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
WHERE i.indrelid = to_regclass(?) AND i.indisunique AND i.indisvalid AND i.indnkeyatts = 1 AND i.indpred IS NULL
  AND a.attname = 'fire_id'
"""
_OF_A_ROW: Final = ("22", "23", "P0")
"""Classes of SQLSTATE: a value that does not fit, a constraint that it breaks, an error that a trigger raises."""
_OF_THE_DATABASE: Final = ("08", "25", "40", "53", "57", "58", "XX")
"""Classes: no connection, a broken transaction, a conflict, no resources, an operator's or a timeout's end, faults of
the system. A fault of another class is one of the table."""


def is_of_table(fault: SqlFault) -> bool:
    """Whether a fault is one of a table, and not of the database as a whole."""
    return bool(fault.state) and not fault.state.startswith(_OF_THE_DATABASE)


@dataclass(frozen=True)
class Table:
    """A table that takes deliveries.

    Attributes:
        name: Its quoted name, with the schema.
        columns: The columns that deliveries have too, with their types.
    """

    name: str
    columns: tuple[tuple[str, str], ...]


def quoted(*names: str) -> str:
    """A name of SQL."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def table_of(database: Database, name: str, shape: Shape) -> Table | str:
    """Checks a table; returns it, or why it takes no delivery.

    Raises:
        SqlFault: The database does not answer.
    """
    found = database.rows(_COLUMNS, 3, name)
    if not found:
        return f"the table {name} is missing"
    own = shape.names
    columns = tuple((str(column), str(kind)) for column, kind, _ in found if column in own)
    if "fire_id" not in dict(columns) or not database.rows(_UNIQUE, 1, name):
        return f"the table {name} has no primary key or unique index on fire_id alone"
    unknown = [str(column) for column, _, required in found if required and column not in own]
    if unknown:
        return f"the table {name} requires columns that deliveries do not have: {', '.join(unknown)}"
    return Table(name, columns)


def create_staging(database: Database, name: str, shape: Shape) -> None:
    """Creates the staging table: unlogged, since a batch that is lost with it is repeated."""
    columns = [
        f"{quoted(field.name)} {_TYPES.get(field.dataType.simpleString(), 'text')}"
        for field in fields(shape.columns)
    ]
    database.execute(f"CREATE UNLOGGED TABLE {name} ({', '.join(columns)})")


@dataclass(frozen=True)
class Move:
    """The move of a destination's rows from the staging table into its table, except fire ids that are there.

    ``refused`` gets the fire ids of the rows that the table refuses, each with the reason.
    """

    database: Database
    staging: str
    table: Table
    destination: str
    refused: dict[str, str] = field(default_factory=dict)

    def run(self) -> dict[str, str]:
        """Moves the rows; returns those that the table refuses.

        Raises:
            SqlFault: The table cannot be written.
        """
        if (fault := self._insert()) is not None:
            # Names are quoted by quoted(), values are parameters.
            sql = f"SELECT fire_id FROM {self.staging} WHERE destination = ? ORDER BY fire_id"  # noqa: S608
            self._halve([str(fire_id) for (fire_id,) in self.database.rows(sql, 1, self.destination)], fault)
        return self.refused

    def _halve(self, ids: list[str], fault: SqlFault) -> None:
        """Inserts the rows of a range that failed as a whole, half by half, down to those that the table refuses."""
        few = MOST_NEIGHBOURS if len(self.refused) >= MOST_SINGLE_ROWS else 1
        if len(ids) <= few:
            self.refused.update(dict.fromkeys(ids, fault.text))
            return
        middle = len(ids) // 2
        for half in (ids[:middle], ids[middle:]):
            if (again := self._insert(half[0], half[-1])) is not None:
                self._halve(half, again)

    def _insert(self, *between: str) -> SqlFault | None:
        """Inserts the rows, or a range of them; returns what is wrong if that is the fault of one of them."""
        names = ", ".join(quoted(name) for name, _ in self.table.columns)
        values = ", ".join(_cast(name, kind) for name, kind in self.table.columns)
        within = " AND fire_id BETWEEN ? AND ?" if between else ""
        sql = (
            f"INSERT INTO {self.table.name} ({names}) SELECT {values} FROM {self.staging} "  # noqa: S608  # as above
            f"WHERE destination = ?{within} ON CONFLICT (fire_id) DO NOTHING"
        )
        try:
            self.database.execute(sql, self.destination, *between)
        except SqlFault as fault:
            if not fault.state.startswith(_OF_A_ROW):
                raise
            return fault
        return None


def _cast(name: str, kind: str) -> str:
    if name in ("key", "value") and kind != "bytea":
        return f"CAST(convert_from({quoted(name)}, 'UTF8') AS {kind})"
    return f"CAST({quoted(name)} AS {kind})"
