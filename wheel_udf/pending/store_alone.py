"""Pending entries of a tiered job without Spark: from the slot store alone, if that is enough.

The store knows every entry but those of the wheel's state that it cannot tell: due ones that were held back, series,
entries that have come back from their destination. Near entries that are due later are all in the state. If they are as
many as a run has logged after its last batch, the state has no others::

    entries in the state, as logged                20,417
    near entries of the store that are due later   20,417    --> the store knows all that is pending
                                                   20,411    --> Spark has to read the state
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import pyarrow as pa

from wheel_udf.checkpoint.act_files import acts_of
from wheel_udf.pending.comparison import SLIM, VERSION, Moment, is_near, still_left, versions_of
from wheel_udf.store.log import StoreLog
from wheel_udf.store.scan import PENDING_SCHEMA, Scan


@dataclass(frozen=True)
class StoreAlone:
    """What waits in a tiered job, as its slot store knows it.

    Attributes:
        moment: The store, and what the wheel has read of it.
        read_later: Versions of the rows that the wheel has not read.
        held: How many entries the wheel's state holds.
    """

    moment: Moment
    read_later: pa.Table
    held: int

    @classmethod
    def of(cls, log: StoreLog, checkpoint: str, position: tuple[int, int | None], held: int) -> Self | None:
        """Looks at a job.

        Args:
            log: The log of its store.
            checkpoint: Checkpoint of the wheel's query.
            position: Which version of the store the wheel has read, and its clock
                (:func:`~wheel_udf.checkpoint.spark_logs.read_to`).
            held: How many entries its state holds then.

        Returns:
            None if there are acts that the store does not have, or series that the wheel has not read.

        Raises:
            CheckpointError, StoreError: One of them is damaged.
        """
        contents = log.contents()
        if acts_of(checkpoint, contents.head.acts_taken):
            return None
        version, clock_ms = position
        scan = Scan(log.path, log.files_since(version))
        unread = scan.columns(scan.files, SLIM)
        if unread["repeat"].null_count < unread.num_rows:
            return None
        read_later, nothing = versions_of(unread), PENDING_SCHEMA.empty_table()
        return cls(
            Moment(log, contents, nothing, still_left(clock_ms, read_later), nothing), read_later, held
        )

    @cached_property
    def knows_all(self) -> bool:
        """Whether the state holds nothing that the store does not know."""
        rows = self.moment.divided.rows
        later = versions_of(rows.filter(is_near(rows)))
        return int(later.join(self.read_later, list(VERSION), join_type="left anti").num_rows) == self.held

    @property
    def far_rows(self) -> int:
        """Rows of the store that are not near, by its log."""
        return self.moment.log.far_rows()

    def count(self) -> int | None:
        """How many entries wait; None if the store does not know."""
        return self.moment.divided.count() if self.knows_all else None

    def rows(self, ids: Sequence[str] | None, first: int) -> pa.Table | None:
        """The entries that are due first.

        Args:
            ids: Only the entries with these ids; None for all.
            first: At most so many.

        Returns:
            Rows of the store (:data:`~wheel_udf.store.scan.PENDING_SCHEMA`), the next one first, no series; None if the
            store does not know.
        """
        if ids is None:
            found = self.moment.divided.first(first) if self.knows_all else None
        else:
            found = self.moment.whole(ids)
            # What the store says is pending is, whatever else the state holds.
            if len(set(ids)) > found.num_rows and not self.knows_all:
                found = None
        if found is None:
            return None
        return found.sort_by([("deliver_at_ms", "ascending"), ("schedule_id", "ascending")]).slice(0, first)
