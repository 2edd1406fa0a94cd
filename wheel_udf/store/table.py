"""The table of the slot store: its columns and properties, its creation, and the check that a table is this store.

A store is created by one commit that holds only its metadata, so a creation that was killed has created nothing; of
two concurrent creations one gets a conflict and uses the other's table. Layout and format version are properties of
the table; a table with other values is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from pyspark.sql import SparkSession, types as T

from wheel_udf.common.errors import GeometryChangedError, StoreError
from wheel_udf.store.layout import StoreLayout
from wheel_udf.tables import delta_log as tables
from wheel_udf.tables.delta_transaction import ConflictError, Transaction
from wheel_udf.tables.table_state import FORGETS, bare_type

FORMAT_VERSION: Final = 4
"""Raised when columns or their meaning change; a table of another version is refused."""

STORE_SCHEMA: Final = T.StructType(
    [
        T.StructField("level", T.IntegerType(), nullable=False),
        T.StructField("slot", T.LongType(), nullable=False),
        T.StructField("act", T.ByteType(), nullable=False),
        T.StructField("schedule_id", T.StringType()),
        T.StructField("id_hash", T.LongType()),
        T.StructField("seq", T.LongType()),
        T.StructField("amend", T.IntegerType()),
        T.StructField("op", T.ByteType()),
        T.StructField("seq_given", T.BooleanType()),
        T.StructField("deliver_at_ms", T.LongType()),
        T.StructField("delay_level_ms", T.LongType()),
        T.StructField("level_error_ms", T.LongType()),
        T.StructField("max_lateness_ms", T.LongType()),
        T.StructField("destination", T.StringType()),
        T.StructField("key", T.BinaryType()),
        T.StructField("value", T.BinaryType()),
        T.StructField("headers", T.StringType()),
        T.StructField("source", T.StringType()),
        T.StructField("repeat", T.StringType()),
        T.StructField("anchor_ms", T.LongType()),
        T.StructField("spread_ms", T.LongType()),
        T.StructField("last_ms", T.LongType()),
        T.StructField("occurrence", T.LongType()),
        T.StructField("attempt", T.LongType()),
        T.StructField("first_amend", T.IntegerType()),
        T.StructField("failed_at_ms", T.LongType()),
        T.StructField("first_error", T.StringType()),
        T.StructField("last_error", T.StringType()),
        T.StructField("reject", T.StringType()),
        T.StructField("event_time_ms", T.LongType()),
        T.StructField("arrived", T.LongType(), nullable=False),
    ]
)
"""A row of the store. ``deliver_at_ms`` is when the wheel is to release it; of that, ``level_error_ms`` is the rounding
of its delay level, whose span is ``delay_level_ms`` (both null without a level). Not to be mixed up with ``level``,
which is one of the wheel's. ``repeat``, ``anchor_ms``, ``spread_ms``, ``last_ms`` and ``occurrence`` are those of a
series (:data:`~wheel_udf.shard.rows.ENTRY_SCHEMA`), null of other entries. A series has no ``deliver_at_ms``: the wheel
computes it. The five columns from ``attempt`` to ``last_error`` are those of a RETRY, null of other rows; but an entry
that a FIRE_NOW brings near has a ``first_amend`` (:mod:`wheel_udf.tiered.fires`)."""

STORE_DDL: Final = ", ".join(
    f"{column.name} {column.dataType.simpleString()}{'' if column.nullable else ' NOT NULL'}"
    for column in STORE_SCHEMA
)
""":data:`STORE_SCHEMA` as text."""

PARTITIONED_BY: Final = ("level", "slot")

_LAYOUT: Final = "wheel_udf.layout"
_FORMAT: Final = "wheel_udf.format_version"
_KEPT: Final = ("delta.logRetentionDuration", "delta.deletedFileRetentionDuration")
_SPOIL: Final = ("delta.enableDeletionVectors", FORGETS)
"""Properties with which a file does not hold all of its rows, or the table forgets how far it was written."""
TABLE_PROPERTIES: Final[Mapping[str, str]] = {
    # The columns of look-ups and of the clock, and two that say whether a file has series or a FIRE_NOW. Statistics on
    # payloads have no use and cost time in every commit.
    "delta.dataSkippingStatsColumns": "act,id_hash,seq,deliver_at_ms,event_time_ms,arrived,anchor_ms",
    # Some code reads files by their paths, so a file must hold all of its rows (no deletion vectors).
    "delta.enableDeletionVectors": "false",
}
"""Properties of a new table, beside its layout, its format version and its retention."""

DEFAULT_KEEP_MS: Final = 86_400_000


def open_table(
    spark: SparkSession, path: str, layout: StoreLayout, *, create: bool, keep_ms: int = DEFAULT_KEEP_MS
) -> None:
    """Opens the table of a store, or creates it by one commit, so that a creation that was killed has created nothing.

    Args:
        spark: The session.
        path: Place of the table.
        layout: The layout that it must have, or gets.
        create: Create it if nothing is there.
        keep_ms: How long a new store keeps unused files and log entries; longer than any batch of the wheel.

    Raises:
        GeometryChangedError: It was created with another layout or in another format.
        StoreError: It is missing and `create` is False, or something else is at the place.
    """
    if is_made(spark, path, layout):
        return
    if not create:
        raise StoreError(
            "the slot store is missing", field=path, hint="run the job once, or correct store.path"
        )
    _create(path, layout, keep_ms)
    _require_ours(path, layout)


def layout_of(path: str) -> StoreLayout:
    """Returns the layout that a store was made with.

    Raises:
        StoreError: There is no slot store at the place.
        GeometryChangedError: It was made in another format.
    """
    properties = tables.snapshot(path).properties()
    if _LAYOUT not in properties or _FORMAT not in properties:
        hint = "run the job once, or correct the path"
        raise StoreError(
            "there is no slot store", field=path, rule=f"a Delta table with {_LAYOUT}", hint=hint
        )
    _require_same(path, "format", properties[_FORMAT], str(FORMAT_VERSION))
    return StoreLayout.parse(properties[_LAYOUT])


def is_made(spark: SparkSession, path: str, layout: StoreLayout) -> bool:
    """Returns whether the table of a store exists. Creates nothing.

    Args:
        spark: The session.
        path: Place of the table.
        layout: The layout that it must have.

    Raises:
        GeometryChangedError: It was created with another layout or in another format.
        StoreError: Something else is at the place.
    """
    if tables.snapshot(path).version >= 0:
        _require_ours(path, layout)
        return True
    _require_nothing(spark, path)
    return False


def _require_nothing(spark: SparkSession, path: str) -> None:
    # Without a log nothing may be there; an empty log is what a killed creation leaves.
    has_log = tables.has_log(spark, path)
    if tables.is_foreign(spark, path, or_leftovers=not has_log):
        raise StoreError(
            "the place of the slot store is not empty and holds no slot store",
            field=path,
            rule="an empty place",
        )


def _create(path: str, layout: StoreLayout, keep_ms: int) -> None:
    # Not DeltaTable.createIfNotExists: that fails on an empty log, which it takes for a lost table.
    transaction = Transaction(path)
    if transaction.before.version >= 0:
        return
    # Of two creations at a time one gets a conflict; a table is there either way, and is checked next.
    with suppress(ConflictError):
        transaction.commit_creation(STORE_SCHEMA, PARTITIONED_BY, table_properties(layout, keep_ms))


def table_properties(layout: StoreLayout, keep_ms: int) -> dict[str, str]:
    """The properties of a new store."""
    kept = dict.fromkeys(_KEPT, f"interval {-(-keep_ms // 1_000)} seconds")
    return {**TABLE_PROPERTIES, **kept, _LAYOUT: layout.fingerprint(), _FORMAT: str(FORMAT_VERSION)}


def _require_ours(path: str, layout: StoreLayout) -> None:
    table = tables.snapshot(path)
    properties = table.properties()
    if _LAYOUT not in properties or _FORMAT not in properties:
        raise StoreError(
            "this Delta table is not a slot store", field=path, rule=f"has the property {_LAYOUT}"
        )
    _require_same(path, "format", properties[_FORMAT], str(FORMAT_VERSION))
    _require_same(path, "layout", properties[_LAYOUT], layout.fingerprint())
    if (beyond := table.beyond_plain()) is not None:
        raise StoreError(
            "the slot store asks more of its writers than it was made with", field=path, value=beyond
        )
    if (spoils := next((name for name in _SPOIL if _is_set(properties.get(name))), None)) is not None:
        raise StoreError(
            "the slot store has a property with which its rows cannot be trusted",
            field=f"{path}: {spoils}",
            value=properties[spoils],
            rule="not set",
            hint=f"restore the table from before it was set, then ALTER TABLE ... UNSET TBLPROPERTIES ('{spoils}')",
        )
    columns = table.columns()
    same = bare_type(columns) == bare_type(STORE_SCHEMA.jsonValue()["fields"])
    if not same or table.partition_columns() != PARTITIONED_BY:
        there = T.StructType.fromJson({"fields": columns}).simpleString()
        raise StoreError("the slot store has other columns", field=path, value=there, rule=STORE_DDL)


def _is_set(value: str | None) -> bool:
    return value is not None and value.lower() != "false"


def _require_same(path: str, what: str, there: str, here: str) -> None:
    if there != here:
        raise GeometryChangedError(
            f"the slot store was made with another {what}",
            field=path,
            value=there,
            rule=here,
            hint="use the old setting; or export the job with the release and settings that it was made with, "
            "and import it into a new store",
        )
