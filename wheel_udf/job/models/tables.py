"""The rules of sections that name a table, or give its path."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic_core import InitErrorDetails

from wheel_udf.common.table_names import PLACEHOLDER, TableName, table_name
from wheel_udf.job.models.values import fault_at


def path_or_table(path: str | None, table: str | None) -> Iterator[InitErrorDetails]:
    """Exactly one of the two is given."""
    if path is None and table is None:
        yield fault_at(
            "path", what="a required setting is missing", rule="a folder; or table, a name in a catalog"
        )
    if path is not None and table is not None:
        rule = "only one of path and table"
        yield fault_at("table", what="two places for one table", value=table, rule=rule)


def is_one_table(table: str | None) -> Iterator[InitErrorDetails]:
    """The name is no template."""
    if table is not None and table_name(table).is_template:
        rule = "the name of one table"
        yield fault_at("table", what=f"{PLACEHOLDER} has no meaning here", value=table, rule=rule)


def table_of(section: object) -> TableName | None:
    """Returns the table of a section that names one."""
    found = getattr(section, "table", None)
    # A database has tables of its own, which no catalog of Spark knows.
    is_of_catalog = getattr(section, "sink", "delta") in ("delta", "iceberg")
    return table_name(found) if isinstance(found, str) and is_of_catalog else None
