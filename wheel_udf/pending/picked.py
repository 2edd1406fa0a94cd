"""The selection of an act: which pending entries, or operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, functions as F

from wheel_udf.common.errors import ActError
from wheel_udf.spark.failures import first_line


@dataclass(frozen=True)
class Picked:
    """Selects the pending entries of an act: by ids, by a predicate, or by both (entries that match both).

    Attributes:
        ids: Values of ``schedule_id``; None for any.
        where: SQL over :data:`~wheel_udf.pending.entries.PENDING_COLUMNS`; None for any.

    Raises:
        ActError: Neither is given, or one is not UTF-8. To select all entries, say ``where="true"``.
    """

    ids: Sequence[str] | None = None
    where: str | None = None

    def __post_init__(self) -> None:
        if self.ids is None and self.where is None:
            raise ActError(
                "an act without ids and without a predicate",
                field="where",
                rule="at least one of ids and where",
                hint="where: true selects all pending entries",
            )
        for each in self.ids or ():
            require_utf8("id", each)
        require_utf8("where", self.where)

    def of(self, rows: DataFrame, id_column: str = "schedule_id") -> DataFrame:
        """Returns the selected rows of a table whose ids are in `id_column`.

        Raises:
            ActError: Spark cannot parse the predicate, or it is not a boolean expression over one row.
        """
        if self.ids is not None:
            rows = rows.where(F.col(id_column).isin(list(self.ids)))
        if self.where is None:
            return rows
        try:
            return rows.where(F.expr(self.where))
        except PySparkException as fault:
            raise ActError(
                f"this predicate cannot be used ({first_line(str(fault))})",
                field="where",
                value=self.where,
                rule=f"SQL over {', '.join(rows.columns)}",
            ) from None

    def __str__(self) -> str:
        parts = [] if self.ids is None else [f"schedule_id in {list(self.ids)!r}"]
        return " and ".join([*parts, *([] if self.where is None else [f"({self.where})"])])


def require_utf8(field: str, text: str | None) -> None:
    """Refuses what a shell passes on for bytes that are not UTF-8: it cannot be sent to the JVM."""
    try:
        (text or "").encode()
    except UnicodeEncodeError:
        raise ActError("not a text", field=field, value=text, rule="UTF-8") from None
