"""Names of tables of a catalog, as a config gives them.

::

    lake.reminders.{destination}    the destination "a.b"  -->  `lake`.`reminders`.`a.b`
    shop.`my table`                 no destination         -->  `shop`.`my table`
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from wheel_udf.common.errors import ConfigError

DESTINATION: Final = "{destination}"
"""Stands for the name of the destination, in the last part alone."""

RULE: Final = f"one to three parts with dots between them, {DESTINATION} in the last one alone"
_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^.`\s]+)")
_MOST_PARTS: Final = 3


@dataclass(frozen=True)
class TableName:
    """The name of a table, or of one for each destination.

    Attributes:
        parts: Its parts: catalog, schema, table, or the last ones of these.
    """

    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, field: str = "table") -> Self:
        """Reads a name as people write it.

        Raises:
            ConfigError: It is none; its `field` is the given one.
        """
        parts, at = [], 0
        while (found := _PART.match(text, at)) is not None:
            quoted, plain = found.groups()
            parts.append(plain if quoted is None else quoted.replace("``", "`"))
            at = found.end()
            if at == len(text) or text[at] != ".":
                break
            at += 1
        ended_well = bool(parts) and at == len(text) and not text.endswith(".")
        if not ended_well or len(parts) > _MOST_PARTS or any(DESTINATION in part for part in parts[:-1]):
            raise ConfigError("not the name of a table", field=field, value=text, rule=RULE)
        return cls(tuple(parts))

    @property
    def catalog(self) -> str | None:
        """The catalog; None: the current one of the session."""
        return self.parts[0] if len(self.parts) == _MOST_PARTS else None

    @property
    def schema(self) -> str | None:
        """The schema with its catalog, quoted; None: the current one."""
        return ".".join(map(quoted, self.parts[:-1])) or None

    def of(self, destination: str | None) -> str:
        """The name of a destination's table, quoted for Spark; None: of the table that is no destination's."""
        last = self.parts[-1] if destination is None else self.parts[-1].replace(DESTINATION, destination)
        return ".".join(map(quoted, (*self.parts[:-1], last)))


def quoted(part: str) -> str:
    """A part of a name as Spark's SQL has it."""
    return "`" + part.replace("`", "``") + "`"
