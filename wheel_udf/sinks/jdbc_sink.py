"""Database sink: a table of PostgreSQL for each destination. Each delivery is there once, by a unique ``fire_id``.

::

    batch --Spark's JDBC writer, on executors--> staging table --INSERT ... ON CONFLICT (fire_id) DO NOTHING--> tables
                                                 wheel_staging_<random>, dropped at the end

A batch that is repeated inserts only missing rows (also one that was deleted from its table meanwhile).

All rows of a table that is missing, has no unique index on ``fire_id`` or may not be written become rejects,
``undeliverable``; of other tables, rows with a value that does not fit its column or breaks a constraint (SQLSTATE
class 22 or 23).

If the database is unreachable, the batch fails, after the other destinations are written, and the next start repeats
it. With ``when_down="undeliverable"`` the rows become rejects at once.

Caveats: the user of the connection creates tables in the schema (``GRANT CREATE ON SCHEMA``). A driver process that is
killed leaves its staging table.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, functions as F, types as T

from wheel_udf.common.errors import ConfigError, ConfigErrors, SinkError
from wheel_udf.common.instants import LONGEST_WAIT_MS
from wheel_udf.common.secrets import hide, remember_options
from wheel_udf.sinks.destinations import FIRED, LeftOut, Refusal, Shape, WithoutRecord, fields
from wheel_udf.sinks.jdbc_tables import Move, Table, create_staging, is_of_table, quoted, table_of
from wheel_udf.spark.jdbc import Database, SqlFault

_DRIVER: Final = "org.postgresql.Driver"
_URL: Final = "jdbc:postgresql:"
_NAME: Final = "{destination}"


@dataclass(frozen=True)
class JdbcSink(WithoutRecord):
    """A table of PostgreSQL for each destination, with a unique ``fire_id``. Each delivery is there once.

    Attributes:
        url: The JDBC URL, ``jdbc:postgresql://host/database``, without a password.
        options: Properties of the connection: ``user``, ``password``, ``sslmode`` and others of the driver. Never
            shown, because they may hold secrets.
        schema: The schema of the tables.
        table: The table's name; ``{destination}`` stands for the destination's name.
        timeout_ms: The longest time of a statement, and of an answer.
        when_down: What happens to a batch if the database is unreachable: ``fail``, or its rows ``undeliverable``.

    Raises:
        ConfigErrors: The URL or another setting cannot be used.
    """

    url: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    schema: str = "public"
    table: str = _NAME
    timeout_ms: int = 60_000
    when_down: str = "fail"

    def __post_init__(self) -> None:
        remember_options(self.options)
        faults = []
        if not self.url.startswith(_URL) or "password" in self.url.lower() or "@" in self.url:
            hint = "user and password belong into options; for another database write a sink of your own"
            rule = f"{_URL}//host/database, without a password"
            faults.append(ConfigError("not a URL for rows", field="url", rule=rule, hint=hint))
        if not 1 <= self.timeout_ms <= LONGEST_WAIT_MS:
            rule = f"1 to {LONGEST_WAIT_MS}"
            faults.append(ConfigError("out of range", field="timeout_ms", value=self.timeout_ms, rule=rule))
        if self.when_down not in ("fail", "undeliverable"):
            rule = "fail or undeliverable"
            faults.append(
                ConfigError("an unknown choice", field="when_down", value=self.when_down, rule=rule)
            )
        if faults:
            raise ConfigErrors(faults)

    def missing_reason(
        self, spark: SparkSession, destination: str | None, shape: Shape = FIRED
    ) -> str | None:
        """See :meth:`~wheel_udf.sinks.destinations.Sink.missing_reason`; looks at the table and changes nothing.

        Raises:
            SinkError: The database does not answer.
        """
        if destination is None:
            return "a database takes no rejects"
        try:
            with self._connected(spark) as database:
                found = table_of(database, self._table(destination), shape)
        except SqlFault as fault:
            raise self._away(fault) from None
        return found if isinstance(found, str) else None

    def write_all(
        self,
        frame: DataFrame,
        rows_to: Mapping[str, int],
        *,
        largest_to: Mapping[str, int] | None = None,  # noqa: ARG002  # the table decides
        shape: Shape = FIRED,
    ) -> LeftOut:
        """See :meth:`~wheel_udf.sinks.destinations.JointSink.write_all`. Cost: a Spark job, a statement a table."""
        spark = frame.sparkSession
        try:
            with self._connected(spark) as database:
                found = {name: table_of(database, self._table(name), shape) for name in rows_to}
                reasons: dict[str, str | Refusal] = {
                    name: each for name, each in found.items() if isinstance(each, str)
                }
                tables = {name: each for name, each in found.items() if isinstance(each, Table)}
                refused = self._moved(database, frame, tables, reasons, shape) if tables else {}
        except SqlFault as fault:
            if self.when_down == "fail":
                raise self._away(fault) from None
            return LeftOut(dict.fromkeys(rows_to, _is_away(fault)))
        usable = frame.where(F.col("destination").isin([name for name in tables if name not in reasons]))
        return LeftOut.of(reasons, usable, refused)

    def _moved(
        self,
        database: Database,
        frame: DataFrame,
        tables: Mapping[str, Table],
        reasons: dict[str, str | Refusal],
        shape: Shape,
    ) -> dict[str, str]:
        """Writes the rows; adds tables that may not be written to `reasons`, and returns the refused rows."""
        staging = quoted(self.schema, f"wheel_staging_{uuid.uuid4().hex}")
        refused: dict[str, str] = {}
        create_staging(database, staging, shape)
        try:
            self._stage(frame.where(F.col("destination").isin(list(tables))), staging, shape)
            left = list(tables)
            while left:
                try:
                    refused |= Move(database, staging, tables[left[0]], left[0]).run()
                except SqlFault as fault:
                    if is_of_table(fault):
                        reasons[left[0]] = fault.text
                    elif self.when_down == "fail":
                        raise
                    else:  # what was inserted is no reject
                        reasons |= dict.fromkeys(left, _is_away(fault))
                        break
                left = left[1:]
        finally:
            self._drop(database, staging)
        return refused

    def _drop(self, database: Database, staging: str) -> None:
        try:
            database.execute(f"DROP TABLE IF EXISTS {staging}")
        except SqlFault:
            if self.when_down == "fail":
                raise

    def _stage(self, rows: DataFrame, staging: str, shape: Shape) -> None:
        writer = rows.select(*_columns(shape)).write.format("jdbc").mode("append")
        given = {"url": self.url, "dbtable": staging, "driver": _DRIVER, **self._properties()}
        try:
            writer.options(**given).save()
        except Exception as fault:  # of Spark's job, of any class
            lines = [
                line for line in str(fault).splitlines() if "PSQLException" in line or "SQLException" in line
            ]
            raise SqlFault("", hide((lines or [type(fault).__name__])[0])[:300]) from fault

    def _connected(self, spark: SparkSession) -> Database:
        database = Database(spark, _DRIVER, self.url, self._properties())
        try:
            database.execute("SET TIME ZONE 'UTC'")
            database.execute(f"SET statement_timeout = {self.timeout_ms}")
        except SqlFault:
            with database:
                raise
        return database

    def _properties(self) -> dict[str, str]:
        # The server's own bound comes first, with a better message.
        longest_s = str(-(-self.timeout_ms // 1000) + 5)
        usual = {"connectTimeout": "10", "loginTimeout": "10", "socketTimeout": longest_s}
        return usual | {"stringtype": "unspecified", "ApplicationName": "wheel_udf"} | dict(self.options)

    def _table(self, destination: str) -> str:
        return quoted(self.schema, self.table.replace(_NAME, destination))

    def _away(self, fault: SqlFault) -> SinkError:
        return SinkError(
            f"the database cannot be written ({fault.text})",
            field="url",
            value=hide(self.url),
            hint="check that it is up, and that spark.jars.packages has org.postgresql:postgresql",
        )


def _is_away(fault: SqlFault) -> Refusal:
    return Refusal(f"the database is away: {fault.text}", is_final=False)


def _columns(shape: Shape) -> list[Column]:
    """The columns of a delivery as the staging table has them; values without a type of PostgreSQL are JSON."""
    return [
        F.to_json(each.name).alias(each.name) if isinstance(each.dataType, T.ArrayType) else F.col(each.name)
        for each in fields(shape.columns)
    ]
