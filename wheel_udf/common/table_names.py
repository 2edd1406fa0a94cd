"""Names of tables in a catalog: ``catalog.schema.table``, and the names that a sink makes of its destinations.

::

    table_name("main.reminders.{destination}").of("late-2")    main.reminders.`late-2`

A name has one to three parts; a part with a character other than ``A-Z a-z 0-9 _`` is written in backticks. In a
template ``{destination}`` stands for the name of a destination, in the last part alone: no destination leaves its
schema. Catalogs compare names without case, so two names may mean one table (:func:`may_be_one`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from wheel_udf.common.errors import ConfigError
from wheel_udf.common.names import AllowList

PLACEHOLDER: Final = "{destination}"
"""Stands for the name of a destination."""

TABLE_RULE: Final = (
    "table, schema.table or catalog.schema.table; in backticks, if a part has more than A-Z a-z 0-9 _"
)
_TEMPLATE_RULE: Final = f"{PLACEHOLDER} in the last part, once"

_PART: Final = r"(?:(?:[A-Za-z0-9_]|\{destination\})+|`(?:[^`\x00-\x1f]|``)+`)"
_NAME: Final = re.compile(rf"{_PART}(?:\.{_PART}){{0,2}}")
_EACH: Final = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
_DEFAULTS: Final = ("spark_catalog", "default")


@dataclass(frozen=True, order=True)
class TableName:
    """A name of one to three parts, or a template of such names.

    Attributes:
        parts: Catalog, schema and table, as far as they are given, without backticks.
    """

    parts: tuple[str, ...]

    @property
    def is_template(self) -> bool:
        """Whether :data:`PLACEHOLDER` is in it."""
        return PLACEHOLDER in self.parts[-1]

    @property
    def schema(self) -> tuple[str, ...]:
        """The parts before the table: of catalog and schema, as far as they are given."""
        return self.parts[:-1]

    @property
    def sql(self) -> str:
        """The name for Spark, each part in backticks."""
        return quoted(self.parts)

    def of(self, destination: str | None) -> TableName:
        """The table of a destination; of a name that is no template, and of None: the name itself."""
        if destination is None:
            return self
        return TableName((*self.schema, self.parts[-1].replace(PLACEHOLDER, destination)))

    def destination_of(self, table: str) -> str | None:
        """The destination whose table has this last part; None if no one's has."""
        before, _, after = self.parts[-1].lower().partition(PLACEHOLDER)
        inside = len(before), len(table) - len(after)
        fits = table.lower().startswith(before) and table.lower().endswith(after) and inside[0] < inside[1]
        return table[inside[0] : inside[1]] if fits else None

    def __str__(self) -> str:
        return ".".join(part if re.fullmatch(r"[\w{}]+", part) else quoted((part,)) for part in self.parts)


def quoted(parts: tuple[str, ...]) -> str:
    """Parts of a name for Spark, each in backticks."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)


def table_name(text: str, field: str = "table") -> TableName:
    """Reads a name, or a template.

    Raises:
        ConfigError: It is none.
    """
    if _NAME.fullmatch(text) is None:
        raise ConfigError("not the name of a table", field=field, value=text, rule=TABLE_RULE)
    found = (in_ticks.replace("``", "`") or plain for in_ticks, plain in _EACH.findall(text))
    name = TableName(tuple(found))
    if text.count(PLACEHOLDER) > name.is_template:
        raise ConfigError(
            "destinations may not choose the schema of their table",
            field=field,
            value=text,
            rule=_TEMPLATE_RULE,
        )
    return name


def may_be_one(name: TableName, pattern: str, template: TableName) -> bool:
    """Whether a table may be that of a destination, too. What a name leaves out is taken for Spark's defaults.

    Args:
        name: The name of a table.
        pattern: A name or pattern of the allow-list.
        template: The table of its sink.
    """
    if _full(name)[:2] != _full(template)[:2]:
        return False
    if not template.is_template:
        return _full(name) == _full(template)
    destination = template.destination_of(name.parts[-1])
    return destination is not None and AllowList([pattern.lower()]).first(destination.lower()) is not None


def is_same(name: TableName, other: TableName) -> bool:
    """Whether two names mean one table, with Spark's defaults for what they leave out."""
    return _full(name) == _full(other)


def _full(name: TableName) -> tuple[str, ...]:
    return tuple(part.lower() for part in (*_DEFAULTS[: 3 - len(name.parts)], *name.parts))
