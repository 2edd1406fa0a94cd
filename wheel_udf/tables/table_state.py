"""The state of a Delta table at a version, and what an append to it has to consider: :class:`TableState`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import types as T

_NOT_OF_A_TYPE: Final = {"metadata", "nullable", "containsNull", "valueContainsNull"}
_CHAR: Final = "__CHAR_VARCHAR_TYPE_STRING"
_GENERATED: Final = "delta.generationExpression"
_DEFAULT: Final = "CURRENT_DEFAULT"
_IDENTITY: Final = "delta.identity.start"
_FILLED: Final = {_GENERATED, _DEFAULT, _IDENTITY}
FORGETS: Final = "delta.setTransactionRetentionDuration"
"""The property of a table that forgets transactions after a time."""

_PLAIN_WRITER: Final = 6
"""The last protocol of writers without a list of features; what it allows shows in the columns and properties."""
_HARMLESS: Final = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "generatedColumns",
        "identityColumns",
        "invariants",
        "timestampNtz",
        "vacuumProtocolCheck",
    }
)
"""Features of writers that ask nothing of an append, or only if a property or column uses them."""
_HOOKS: Final = (
    "delta.autoOptimize",
    "delta.autoOptimize.autoCompact",
    "delta.autoOptimize.optimizeWrite",
    "delta.compatibility.symlinkFormatManifest.enabled",
)
"""Properties by which Delta does more with a commit than add files."""
_PARTITION_TYPES: Final = ("string", "byte", "short", "integer", "long", "date", "boolean")
"""Types whose partition values are the same text in the name of a folder and in the log."""


def has_batch(transactions: Mapping[str, int], app_id: str, batch_id: int) -> bool:
    """Whether a table has a batch, so that it must not be written again: its last transaction of that app id is this
    batch or a later one.

    Args:
        transactions: The version of the last transaction of each app id.
        app_id: Id of the transactions.
        batch_id: Number of the batch.
    """
    return transactions.get(app_id, batch_id - 1) >= batch_id


def bare_type(kind: Any) -> Any:
    """A type, or a list of columns, as the JSON of Spark's schemas has it, reduced to what two equal types have in
    common.

    Left out, at any depth: metadata (comments, column mapping, widenings) and nullability, which Delta enforces for
    columns and fields of structs alone. Names are in lower case.
    """
    if isinstance(kind, list):
        return [bare_type(each) for each in kind]
    if isinstance(kind, dict):
        kept = {part: value for part, value in kind.items() if part not in _NOT_OF_A_TYPE}
        return {part: value.lower() if part == "name" else bare_type(value) for part, value in kept.items()}
    return kind


@dataclass(frozen=True, slots=True)
class TableState:
    """A version of a Delta table.

    Attributes:
        version: Its number; -1 while the log holds no commit.
        metadata: The last ``metaData`` action of its log.
        protocol: The last ``protocol`` action.
        marks: The version of the last transaction of each app id.
    """

    version: int = -1
    metadata: Mapping[str, Any] = field(default_factory=dict)
    protocol: Mapping[str, Any] = field(default_factory=dict)
    marks: Mapping[str, int] = field(default_factory=dict)

    @property
    def table_id(self) -> str:
        """Delta's id of the table: another one after the table was deleted and created again."""
        return str(self.metadata["id"])

    def transactions(self) -> dict[str, int]:
        """The version of the last transaction of each app id."""
        return dict(self.marks)

    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return dict(self.metadata.get("configuration") or {})

    def columns(self) -> list[dict[str, Any]]:
        """The columns as the JSON of Spark's schemas has them, with Delta's metadata."""
        columns: list[dict[str, Any]] = json.loads(self.metadata["schemaString"])["fields"]
        return columns

    def partition_columns(self) -> tuple[str, ...]:
        """The names of the partition columns, in order."""
        return tuple(self.metadata["partitionColumns"])

    def beyond_plain(self) -> str | None:
        """What only Delta's own writer honours in an append to this table; None if nothing."""
        writer = self.protocol["minWriterVersion"]
        features = {
            *(self.protocol.get("writerFeatures") or ()),
            *(self.protocol.get("readerFeatures") or ()),
        }
        if writer > _PLAIN_WRITER and not features <= _HARMLESS:
            return f"the table features {', '.join(sorted(features - _HARMLESS))}"
        properties = self.properties()
        used = [name for name in _HOOKS if properties.get(name, "false").lower() != "false"]
        if properties.get("delta.columnMapping.mode", "none") != "none":
            used.append("delta.columnMapping.mode")
        used += [name for name in properties if name.startswith("delta.constraints.")]
        if used:
            return f"the property {used[0]}"
        columns = {column["name"]: column for column in self.columns()}
        for name, column in columns.items():
            if _FILLED & column["metadata"].keys() or "delta.invariants" in column["metadata"]:
                return f"a value or a rule of the column {name}"
        kinds = (columns[name]["type"] for name in self.partition_columns())
        return next(
            (f"partitions of the type {kind}" for kind in kinds if kind not in _PARTITION_TYPES), None
        )

    def contradiction(
        self, columns: T.StructType, never_null: Collection[str], short: Collection[str] = ()
    ) -> str | None:
        """The reason why no row can be appended; None if there is none.

        Also reported is what would refuse some rows and take others: one such row would fail its batch again and again.

        Args:
            columns: Those of the rows.
            never_null: Names of those that always have a value.
            short: Names of those whose text can always be the name of a folder.
        """
        there = {column["name"].lower(): column for column in self.columns()}
        properties = self.properties()
        if properties.get("delta.columnMapping.mode", "none") != "none":  # folders have random names
            short = columns.names
        faults = [_column_fault(column, there.get(column.name), never_null) for column in columns]
        for name, found in there.items():
            if name not in columns.names:
                faults += _further_faults(found, found["name"])
        faults += [
            _partition_fault(there[name], is_own=name in columns.names, is_short=name in short)
            for name in map(str.lower, self.partition_columns())
        ]
        faults += [
            f"it has the CHECK {name.removeprefix('delta.constraints.')}"
            for name in properties
            if name.startswith("delta.constraints.")
        ]
        return ", ".join(fault for fault in faults if fault) or None


def _column_fault(
    column: T.StructField, found: Mapping[str, Any] | None, never_null: Collection[str]
) -> str | None:
    if found is None:
        return f"it has no column {column.name}"
    what, metadata = f"its column {column.name} is", found["metadata"]
    if bare_type(found["type"]) != bare_type(column.dataType.jsonValue()) or _CHAR in metadata:
        kind = metadata.get(_CHAR) or T.StructField.fromJson(dict(found)).dataType.simpleString()
        return f"{what} {kind}, not {column.dataType.simpleString()}"
    if not found["nullable"] and column.name not in never_null:
        return f"{what} NOT NULL"
    if _GENERATED in metadata:
        return f"{what} GENERATED ALWAYS AS ({metadata[_GENERATED]})"
    if metadata.get("delta.identity.allowExplicitInsert") is False:
        return f"{what} GENERATED ALWAYS AS IDENTITY"
    return f"{what} under an invariant" if "delta.invariants" in metadata else None


def _partition_fault(found: Mapping[str, Any], *, is_own: bool, is_short: bool) -> str | None:
    name, kind = found["name"], found["type"]
    if not is_own:
        return (
            None if _FILLED & found["metadata"].keys() else f"it is partitioned by its further column {name}"
        )
    if kind == "binary":
        return f"it is partitioned by {name}, and Delta changes binary values of partitions"
    if kind == "string" and not is_short:
        return f"it is partitioned by {name}, whose text may be too long for the name of a folder"
    return None


def _further_faults(found: Mapping[str, Any], name: str) -> Iterator[str]:
    """The reason why a column of the table, or a field of it, cannot be left out."""
    metadata, kind = found["metadata"], found["type"]
    has_value = metadata.get(_DEFAULT, "NULL").upper() != "NULL" or _IDENTITY in metadata
    if not found["nullable"] and not has_value:
        yield f"its further column {name} is NOT NULL"
    if "delta.invariants" in metadata:
        yield f"its further column {name} is under an invariant"
    if isinstance(kind, Mapping) and kind["type"] == "struct":
        for inner in kind["fields"]:
            yield from _further_faults(inner, f"{name}.{inner['name']}")
