"""Rows of the wheel's state as rows of a slot store: series, and entries that have come back from their destination.

A series waits in the state. So that its version is compared with those in the store, it is given the columns of a near
row there. Series that the wheel has not read yet are begun here, as if nothing was known of their ids.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession, functions as F

from wheel_udf.common.errors import CheckpointError
from wheel_udf.pending.acts_on_state import changed_by
from wheel_udf.pending.state import held
from wheel_udf.policies.series import first_occurrences
from wheel_udf.shard.rows import ACTED, COMMAND, COMMAND_SCHEMA, ENTRY_SCHEMA, SCHEDULE, filled, with_columns
from wheel_udf.store.intake import id_hash
from wheel_udf.store.layout import NEAR
from wheel_udf.store.scan import PENDING_SCHEMA

_log = logging.getLogger(__name__)

_AS_STORED: Final = {
    "level": NEAR,
    "slot": 0,
    "act": COMMAND,
    "op": SCHEDULE,
    "seq_given": True,
    "arrived": 0,
}

HASHED_SCHEMA: Final = ENTRY_SCHEMA.append(pa.field("id_hash", pa.int64()))
"""Entries of the state with the hash of their id."""


def held_now(
    spark: SparkSession, checkpoint: str, ids: Sequence[str] | None, as_of_ms: int | None = None
) -> pa.Table:
    """Returns what :func:`wheel_udf.pending.state.held` has found (:data:`HASHED_SCHEMA`)."""
    found = held(spark, checkpoint, ids=ids, as_of_ms=as_of_ms)
    return filled(found.withColumn("id_hash", id_hash(F.col("schedule_id"))).toArrow(), HASHED_SCHEMA)


def series_now(spark: SparkSession, there: pa.Table, unread: pa.Table) -> pa.Table:
    """The pending series (:data:`HASHED_SCHEMA`).

    Args:
        spark: A session.
        there: Entries of the state (:data:`HASHED_SCHEMA`).
        unread: Rows of the store that the wheel has not read.
    """
    known = there.filter(pc.is_valid(there["repeat"]))
    acts = unread.filter(pc.equal(unread["act"], ACTED))
    if known.num_rows and acts.num_rows:
        changed = changed_by(spark.createDataFrame(known), spark.createDataFrame(acts))
        known = filled(changed.toArrow(), HASHED_SCHEMA)
    is_command = pc.and_(pc.equal(unread["act"], COMMAND), pc.is_null(unread["reject"]))
    new = unread.filter(pc.and_(is_command, pc.is_valid(unread["repeat"])))
    if not new.num_rows:
        return known
    # The store lacks some columns of entries that are held back.
    begun = first_occurrences(filled(new, COMMAND_SCHEMA))
    row = pc.index_in(begun["schedule_id"], value_set=new["schedule_id"].combine_chunks())
    unknown = pa.nulls(begun.num_rows, pa.int64())
    begun = with_columns(filled(begun, HASHED_SCHEMA), occurrence=unknown, id_hash=new["id_hash"].take(row))
    return pa.concat_tables([known, begun])


def series_then(spark: SparkSession, checkpoint: str, as_of_ms: int, ids: Sequence[str] | None) -> pa.Table:
    """The series that were in the state; none if that is not known any more."""
    try:
        there = held_now(spark, checkpoint, ids, as_of_ms)
    except CheckpointError as fault:
        _log.warning("series are left out: %s", fault)
        return HASHED_SCHEMA.empty_table()
    return there.filter(pc.is_valid(there["repeat"]))


def as_stored(entries: pa.Table) -> pa.Table:
    """Entries of the state (:data:`HASHED_SCHEMA`) as near rows of a store (:data:`PENDING_SCHEMA`)."""
    given = {
        name: pa.repeat(pa.scalar(value, PENDING_SCHEMA.field(name).type), entries.num_rows)
        for name, value in _AS_STORED.items()
    }
    return with_columns(filled(entries, PENDING_SCHEMA), **given)
