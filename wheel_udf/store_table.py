"""The slot store's table: its columns, how it is made, and how it is known again.

A store is made in one commit that holds its metadata alone, so a creation that was killed has made nothing; of two at a time one is told, and finds
the other's. Layout and format version are properties of the table, and what bears others is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from delta.exceptions import (
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
)
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from wheel_udf import tables
from wheel_udf.errors import GeometryChangedError, StoreError
from wheel_udf.java import scala_map, scala_none, scala_seq
from wheel_udf.store_layout import StoreLayout

FORMAT_VERSION: Final = 2
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
        T.StructField("reject", T.StringType()),
        T.StructField("event_time_ms", T.LongType()),
        T.StructField("arrived", T.LongType(), nullable=False),
    ]
)
"""A row of the store. ``deliver_at_ms`` is when the wheel is to release it; of that, ``level_error_ms`` is the rounding of its delay level, whose
span is ``delay_level_ms`` (both null without a level). Not to be mixed up with ``level``, which is one of the wheel's."""

STORE_DDL: Final = ", ".join(
    f"{column.name} {column.dataType.simpleString()}{'' if column.nullable else ' NOT NULL'}"
    for column in STORE_SCHEMA
)
""":data:`STORE_SCHEMA` as text."""

PARTITIONED_BY: Final = ("level", "slot")

_LAYOUT: Final = "wheel_udf.layout"
_FORMAT: Final = "wheel_udf.format_version"
_KEPT: Final = ("delta.logRetentionDuration", "delta.deletedFileRetentionDuration")
TABLE_PROPERTIES: Final[Mapping[str, str]] = {
    # Each checkpoint of the log is a latency spike; a new reader replays up to this many small commits instead.
    "delta.checkpointInterval": "100",
    # What is looked up by, and what the clock is taken from. Statistics on payloads help nobody and cost in every commit.
    "delta.dataSkippingStatsColumns": "id_hash,seq,deliver_at_ms,event_time_ms,arrived",
    # Files are read by their paths in places: what is in one has to be all of it.
    "delta.enableDeletionVectors": "false",
}
"""Properties of a new table, beside its layout, its format version and how long it keeps what is dropped."""

DEFAULT_KEEP_MS: Final = 86_400_000

_OTHER_CREATION: Final = (
    ProtocolChangedException,
    MetadataChangedException,
    ConcurrentWriteException,
    ConcurrentTransactionException,
)


def open_table(
    spark: SparkSession, path: str, layout: StoreLayout, *, create: bool, keep_ms: int = DEFAULT_KEEP_MS
) -> None:
    """Sees to it that the table of a store is there. It is made by one commit, so that a creation that was killed has made nothing.

    Args:
        spark: The session.
        path: Place of the table.
        layout: The layout it has, or will have.
        create: Make it if nothing is there.
        keep_ms: How long a new store keeps files and log entries that nothing needs any more. Longer than any batch of the wheel takes.

    Raises:
        GeometryChangedError: It was made with another layout, or in another format.
        StoreError: It is missing and not to be made, or what is there is no slot store.
    """
    if not tables.has_log(spark, path) or tables.snapshot(spark, path).version() < 0:
        _require_nothing(spark, path)
        if not create:
            raise StoreError("the slot store is missing", field=path, hint="make it, or say where it is")
        _create(spark, path, layout, keep_ms)
    _require_ours(spark, path, layout)


def _require_nothing(spark: SparkSession, path: str) -> None:
    # Without a log nothing may be there; an empty log is what a killed creation leaves.
    has_log = tables.has_log(spark, path)
    if tables.is_foreign(spark, path, or_leftovers=not has_log):
        raise StoreError(
            "something else is where the slot store should be", field=path, rule="an empty place"
        )


def _create(spark: SparkSession, path: str, layout: StoreLayout, keep_ms: int) -> None:
    # Not DeltaTable.createIfNotExists: that takes an empty log for a table that has been lost, and fails.
    transaction = tables.delta_log(spark, path).startTransaction()
    if transaction.snapshot().version() >= 0:
        return
    metadata = _metadata(spark, layout, keep_ms)
    transaction.updateMetadata(metadata, False)  # noqa: FBT003  # the session's defaults hold, too; py4j knows no keywords
    none, kind = scala_none(spark), tables.delta_class(spark, "DeltaOperations$CreateTable")
    operation = kind(metadata, False, False, none)  # noqa: FBT003  # the same
    # Of two creations at a time one is told; a table is there either way, and is looked at next.
    with suppress(*_OTHER_CREATION):
        transaction.commit(scala_seq(spark, []), operation)


def _metadata(spark: SparkSession, layout: StoreLayout, keep_ms: int) -> Any:
    kind = tables.delta_class(spark, "actions.Metadata")
    kept = dict.fromkeys(_KEPT, f"interval {-(-keep_ms // 1_000)} seconds")
    own = {_LAYOUT: layout.fingerprint(), _FORMAT: str(FORMAT_VERSION)}
    configuration = scala_map(spark, {**TABLE_PROPERTIES, **kept, **own})
    # By position: id, name, description, format, schema, partition columns, properties, time of creation.
    default = {number: getattr(kind, f"apply$default${number}")() for number in (1, 2, 3, 4, 8)}
    schema, by = STORE_SCHEMA.json(), scala_seq(spark, PARTITIONED_BY)
    return kind(default[1], default[2], default[3], default[4], schema, by, configuration, default[8])


def _require_ours(spark: SparkSession, path: str, layout: StoreLayout) -> None:
    metadata = tables.snapshot(spark, path).metadata()
    properties = metadata.configuration()
    found = {name: properties.get(name) for name in (_LAYOUT, _FORMAT)}
    if any(value.isEmpty() for value in found.values()):
        raise StoreError("this Delta table is no slot store", field=path, rule=f"has the property {_LAYOUT}")
    _require_same(path, "format", str(found[_FORMAT].get()), str(FORMAT_VERSION))
    _require_same(path, "layout", str(found[_LAYOUT].get()), layout.fingerprint())
    there = T.StructType.fromJson(json.loads(metadata.schema().json()))
    columns = [(c.name, c.dataType, c.nullable) for c in there]
    by = tuple(metadata.partitionColumns().apply(i) for i in range(metadata.partitionColumns().size()))
    if columns != [(c.name, c.dataType, c.nullable) for c in STORE_SCHEMA] or by != PARTITIONED_BY:
        raise StoreError(
            "the slot store has other columns", field=path, value=there.simpleString(), rule=STORE_DDL
        )


def _require_same(path: str, what: str, there: str, here: str) -> None:
    if there != here:
        raise GeometryChangedError(
            f"the slot store was made with another {what}",
            field=path,
            value=there,
            rule=here,
            hint="go back to it, or begin an empty store at another place",
        )
