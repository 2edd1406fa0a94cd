"""A JDBC connection of the driver's JVM: statements with texts as parameters, results as texts.

Spark's own JDBC writer can only append. A statement that it does not write goes through a connection of the driver
itself. It is opened by the driver class, and not by ``java.sql.DriverManager``, which does not see the jars of
``spark.jars.packages``. Only public API of Java is used, through ``SparkSession._jvm``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from py4j.protocol import Py4JJavaError

from wheel_udf.common.errors import UnsupportedVersionError
from wheel_udf.common.secrets import hide
from wheel_udf.spark.jvm import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SqlFault(Exception):  # noqa: N818  # as in failures: the text is the database's
    """An error of a database.

    Attributes:
        state: The SQLSTATE; empty without one.
        text: The message, without secrets.
    """

    def __init__(self, state: str, text: str) -> None:
        self.state, self.text = state, text
        super().__init__(text)


class Database:
    """A connection, closed at the end of a ``with`` block. Each statement is a transaction of its own.

    Args:
        spark: The session.
        driver: The driver's class.
        url: The JDBC URL.
        properties: Properties of the connection, such as ``user`` and ``password``.

    Raises:
        SqlFault: There is no such driver class, or the database does not let us in.
    """

    def __init__(self, spark: SparkSession, driver: str, url: str, properties: Mapping[str, str]) -> None:
        self._spark = spark
        given = java_class(spark, "java.util.Properties")()
        for name, value in properties.items():
            given.setProperty(name, value)
        try:
            self._connection = java_class(spark, driver)().connect(url, given)
        except UnsupportedVersionError:
            raise SqlFault("", f"the class {driver} is not on Spark's class path") from None
        except Py4JJavaError as fault:
            raise _fault_of(self._spark, fault) from None
        if self._connection is None:  # JDBC's answer for a URL of another driver
            raise SqlFault("", f"the driver {driver} does not know this URL")

    def execute(self, sql: str, *texts: str) -> int:
        """Executes a statement; returns the number of changed rows.

        Raises:
            SqlFault: The database refuses it.
        """
        return int(self._run(sql, texts, lambda statement: statement.executeUpdate()))

    def rows(self, sql: str, columns: int, *texts: str) -> list[tuple[str | None, ...]]:
        """Executes a query; returns its rows as texts.

        Raises:
            SqlFault: The database refuses it.
        """

        def read(statement: Any) -> list[tuple[str | None, ...]]:
            result, found = statement.executeQuery(), []
            while result.next():
                found.append(tuple(result.getString(number) for number in range(1, columns + 1)))
            return found

        found: list[tuple[str | None, ...]] = self._run(sql, texts, read)
        return found

    def _run(self, sql: str, texts: tuple[str, ...], use: Any) -> Any:
        try:
            statement = self._connection.prepareStatement(sql)
            try:
                for number, text in enumerate(texts, start=1):
                    statement.setString(number, text)
                return use(statement)
            finally:
                statement.close()
        except Py4JJavaError as fault:
            raise _fault_of(self._spark, fault) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Py4JJavaError):  # nothing is open: each statement was a transaction
            self._connection.close()


def _fault_of(spark: SparkSession, fault: Py4JJavaError) -> SqlFault:
    """The fault with the SQLSTATE, of the exception itself or of one of its causes."""
    kind = java_class(spark, "java.lang.Class").forName("java.sql.SQLException")
    errors = java_class(spark, "org.apache.commons.lang3.exception.ExceptionUtils")
    found = errors.throwableOfType(fault.java_exception, kind)
    text = fault.java_exception.toString() if found is None else found.getMessage() or "no message"
    return SqlFault((found and found.getSQLState()) or "", hide(" ".join(text.split()))[:300])
