"""The allow-list of an outbox as columns: to which table a fired row goes, or why to none.

::

    destinations = {"orders_*": "main.events.{destination}", "audit": "main.ops.audit"}

    destination    decision
    orders_eu      route main.events.orders_eu
    audit          route main.ops.audit
    other          no destination of the allow-list matches
    orders.eu      no table can be named orders.eu
    orders_us      the table main.events.orders_us is missing (without `create`)

The first pattern that matches decides. The decision is a pure expression over the destination, with what is known of
the catalog at the start of a run as constants.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, SparkSession, functions as F

from wheel_udf.common.errors import ConfigError, WheelError
from wheel_udf.common.names import PATTERN_RULE, AllowList, is_destination_pattern
from wheel_udf.connect.tables import NAME_RULE, TableName, is_table_name, table_name

DESTINATION: Final = "{destination}"
"""Stands for the name of the destination in the name of a table."""

TEMPLATE_RULE: Final = f"{NAME_RULE}; {DESTINATION} in the last part, once, stands for the destination"

_AS_TABLE: Final = "[A-Za-z0-9_-]{1,200}"


@dataclass(frozen=True)
class Route:
    """A line of the allow-list.

    Attributes:
        pattern: A name of a destination, or a pattern.
        table: The table; its last part may have :data:`DESTINATION`.
    """

    pattern: str
    table: TableName

    @property
    def is_template(self) -> bool:
        """Whether each destination has a table of its own."""
        return DESTINATION in self.table.table

    def matches(self) -> Column:
        """Whether a row is for this line."""
        name, allowed = F.col("destination"), AllowList([self.pattern])
        if allowed.expression is None:
            return name == self.pattern
        return name.rlike(rf"\A(?:{allowed.expression})\z")

    def target(self, destination: str) -> TableName | None:
        """The table of a destination; None if no table can have its name."""
        if self.is_template and re.fullmatch(_AS_TABLE, destination) is None:
            return None
        name = self.table.table.replace(DESTINATION, destination)
        return TableName(self.table.catalog, self.table.schema, name)

    def target_column(self) -> Column:
        """The plain name of the table of a row's destination."""
        before, _, behind = self.table.plain.partition(DESTINATION)
        if not self.is_template:
            return F.lit(before)
        return F.concat(F.lit(before), F.col("destination"), F.lit(behind))


def route_faults(destinations: Mapping[str, str]) -> list[WheelError]:
    """The faults of an allow-list."""
    faults: list[WheelError] = []
    if not destinations:
        faults.append(ConfigError("no destination", field="destinations", rule="at least one pattern"))
    for pattern, template in destinations.items():
        if not is_destination_pattern(pattern):
            what = "not a destination pattern"
            faults.append(ConfigError(what, field="destinations", value=pattern, rule=PATTERN_RULE))
        if not _is_template(template):
            what = "not the name of a table"
            faults.append(
                ConfigError(what, field=f"destinations[{pattern!r}]", value=template, rule=TEMPLATE_RULE)
            )
    return faults


def _is_template(text: object) -> bool:
    if not isinstance(text, str) or text.count(DESTINATION) > 1 or DESTINATION in text.rpartition(".")[0]:
        return False
    return is_table_name(text.replace(DESTINATION, "x"))


def routes_of(spark: SparkSession, destinations: Mapping[str, str]) -> list[Route]:
    """The lines of a sound allow-list, with full names."""
    return [Route(pattern, table_name(spark, table)) for pattern, table in destinations.items()]


def targets_of(routes: Iterable[Route], names: Iterable[str]) -> set[TableName]:
    """The tables of destinations."""
    lines = {route.pattern: route for route in routes}
    allowed = AllowList(lines)
    first = {name: allowed.first(name) for name in names}
    found = {lines[pattern].target(name) for name, pattern in first.items() if pattern is not None}
    return {each for each in found if each is not None}


def decision(
    routes: Iterable[Route],
    *,
    own: Iterable[TableName],
    refused: Mapping[TableName, str],
    there: Iterable[str] | None,
) -> Column:
    """Where a fired row goes: a struct of ``route``, the plain name of a table, and ``reason``; one of them is null.

    Args:
        routes: The allow-list.
        own: Tables that no destination may have.
        refused: Tables that cannot take rows, with the reason as a clause.
        there: The plain names, in lower case, of the tables that are there; None: missing ones are created.
    """
    taken = [each.plain.lower() for each in own]
    reasons = {table.plain.lower(): why for table, why in refused.items()}
    known = None if there is None else sorted(there)
    found = _decided(None, F.lit("no destination of the allow-list matches"))
    for route in reversed([*routes]):
        target = route.target_column()
        reason = _reason(route, target, taken, reasons, known)
        decided = F.when(reason.isNull(), _decided(target, None)).otherwise(_decided(None, reason))
        found = F.when(route.matches(), decided).otherwise(found)
    return found


def _reason(
    route: Route, target: Column, own: list[str], refused: Mapping[str, str], there: list[str] | None
) -> Column:
    """Why a row of a line goes to no table; null if it does."""
    key, name = F.lower(target), F.col("destination")
    reasons = []
    if route.is_template:
        unfit = ~name.rlike(rf"\A{_AS_TABLE}\z")
        reasons.append(F.when(unfit, F.concat(F.lit("no table can be named "), name)))
    reasons.append(
        F.when(key.isin(own), F.concat(F.lit("the table "), target, F.lit(" is one of the scheduler itself")))
    )
    if refused:
        pairs = [F.lit(text) for pair in sorted(refused.items()) for text in pair]
        reasons.append(F.try_element_at(F.create_map(*pairs), key))
    if there is not None:
        missing = ~key.isin(there) if there else F.lit(True)
        reasons.append(F.when(missing, F.concat(F.lit("the table "), target, F.lit(" is missing"))))
    return F.coalesce(*reasons)


def _decided(route: Column | None, reason: Column | None) -> Column:
    blank = F.lit(None).cast("string")
    return F.struct(
        (blank if route is None else route).alias("route"),
        (blank if reason is None else reason).alias("reason"),
    )
