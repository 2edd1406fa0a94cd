"""What a checkpoint at rest holds: the leases that keep it at rest, its tables, the positions of its sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from wheel_udf.checkpoint.identity import Identity, identity_of
from wheel_udf.checkpoint.lease import Lease, holding
from wheel_udf.checkpoint.returned_files import returned_waiting
from wheel_udf.checkpoint.spark_logs import committed_offsets, last_committed, planned_batch
from wheel_udf.common.errors import TransferError
from wheel_udf.control.source import is_clock_offset
from wheel_udf.pending.entries import PendingWork
from wheel_udf.pending.state import from_state, remembered, waiting
from wheel_udf.purgatory.seed import rows_of_text
from wheel_udf.purgatory.state import KINDS
from wheel_udf.shard.rows import ENTRY_SCHEMA, MEMORY_SCHEMA
from wheel_udf.store.lease import store_lease

ENTRIES: Final = "entries"
MEMORY: Final = "memory"
ACTS: Final = "acts"
ACTS_FILE: Final = f"{ACTS}.json"
SOURCES: Final = "sources"

SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    ENTRIES: ENTRY_SCHEMA,
    MEMORY: MEMORY_SCHEMA,
    **{name: kind.schema for name, kind in KINDS.items()},
}
"""The columns of each table but the acts."""

FINISH: Final = "run the job once more with --trigger available-now, which finishes it"


@contextmanager
def at_rest(work: PendingWork) -> Iterator[tuple[Identity, Callable[[], None]]]:
    """Inside, no process can start the job; the identity of the query that holds the state, and what raises a
    LeaseError if that has ended: ask before each write.

    Raises:
        CheckpointError: There is no checkpoint, or it is damaged.
        GeometryChangedError: It is of another format.
        LeaseError: The job runs.
        TransferError: A planned batch is not committed, or no batch was; or acts, or entries that come back, wait.
    """
    parts = parts_of(work)
    identities = [identity_of(part) for part in parts]
    of_store = [] if work.store is None else [store_lease(work.store.path)]
    with holding([*of_store, *map(Lease, parts)]) as require_leases:
        for part in parts:
            _require_finished(part)
        if waiting := work.acts_waiting():
            raise TransferError(
                "acts were recorded that the job has not taken yet",
                field=work.query,
                value=f"{waiting} acts",
                hint=FINISH,
            )
        if waiting := returned_waiting(work.query):
            raise TransferError(
                "entries come back that could not be delivered, and the job has not taken them yet",
                field=work.query,
                value=f"of {waiting} batches",
                hint=FINISH,
            )
        yield identities[-1], require_leases


def parts_of(work: PendingWork) -> Sequence[str]:
    """The checkpoints of a job's queries; the last one has the state, the first one the sources."""
    return [work.checkpoint] if work.store is None else [f"{work.checkpoint}/intake", work.query]


def _require_finished(part: str) -> None:
    if last_committed(part) is None:
        raise TransferError(
            "the checkpoint has no committed batch, so there is nothing to move",
            field=part,
            hint="begin with a new checkpoint",
        )
    planned = planned_batch(part)
    if planned is not None:
        raise TransferError(
            "a batch is planned and not committed; tables may have a part of its rows",
            field=part,
            value=f"batch {planned}",
            hint=FINISH,
        )


def positions_of(part: str) -> dict[int, Any]:
    """Where the sources of a query stand, without the clock: the offset of each after the last committed batch, None if
    it had none, by its place in the query.
    """
    offsets = committed_offsets(part) or []
    return {number: position for number, position in enumerate(offsets) if not is_clock_offset(position)}


def tables_of(spark: SparkSession, checkpoint: str, *, purgatory: bool) -> dict[str, DataFrame]:
    """The rows in the state of a query, by kind."""
    if not purgatory:
        return {
            ENTRIES: waiting(spark, checkpoint).drop("in_flight"),
            MEMORY: remembered(spark, checkpoint),
        }
    return {
        name: from_state(spark, checkpoint, partial(rows_of_text, name), kind.schema)
        for name, kind in KINDS.items()
    }
