"""Open operations as arrays, in the form in which a step works on them.

::

    operations      keys (flat)        of        position
    a  needs 2  ->  a x   a y   a z    0 0 0     0 1 2
    b  sum >= 10 -> b x                1         0
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wheel_udf.common.arrays import Bools, Int64s
from wheel_udf.purgatory.state import BEAT, NEVER, OPERATION_SCHEMA


def offsets_of(lists: pa.ListArray) -> Int64s:
    """Offsets of the lists that begin at 0, also for a slice."""
    offsets = lists.offsets.to_numpy().astype(np.int64) if len(lists) else np.zeros(1, np.int64)
    return np.asarray(offsets - offsets[0], dtype=np.int64)


class Operations:
    """Open operations as arrays: one row per operation, and flat arrays with one row per key of an operation.

    The arrays are changed in place while the step settles; :meth:`written` makes a table of them again.

    Args:
        table: ``OPERATION_SCHEMA``.
    """

    def __init__(self, table: pa.Table) -> None:
        self.table = table.combine_chunks()
        for name in Operations.__annotations__:
            setattr(self, name, np.array(table[name].to_numpy()))
        keys = table["keys"].combine_chunks()
        self.offsets = offsets_of(keys)
        self.keys = keys.flatten()
        lengths = np.diff(self.offsets)
        self.of = np.repeat(np.arange(table.num_rows), lengths)
        self.position = np.arange(len(self.keys)) - np.repeat(self.offsets[:-1], lengths)
        self.done_ms, self.key_cancel_ms = (
            np.array(table[name].combine_chunks().flatten().to_numpy(zero_copy_only=False), dtype=np.int64)
            for name in ("done_at_ms", "key_cancel_at_ms")
        )

    event_time_ms: Int64s
    deadline_ms: Int64s
    need: npt.NDArray[np.int32]
    threshold: npt.NDArray[np.float64]
    from_ms: Int64s
    delay_ms: Int64s
    limit_delay_ms: Int64s
    since_ms: Int64s
    generation: npt.NDArray[np.int32]
    total: npt.NDArray[np.float64]
    crossed_at_ms: Int64s
    crossed_by: npt.NDArray[np.int32]
    cancel_at_ms: Int64s

    def __len__(self) -> int:
        return len(self.need)

    @property
    def goes_on(self) -> Bools:
        """Mask of the operations that have further generations: joins and heartbeats."""
        return np.asarray((self.limit_delay_ms > 0) | (self.need == BEAT), dtype=np.bool_)

    @property
    def at_rest(self) -> Bools:
        """Mask of the operations between two generations."""
        return np.asarray(self.event_time_ms == NEVER, dtype=np.bool_)

    @property
    def cancellable_from(self) -> Int64s:
        """First instant at which a cancel counts; of a heartbeat its start, although its window moves."""
        return np.minimum(self.from_ms, np.where(self.at_rest, NEVER, self.event_time_ms))

    def effective(self, flat_ms: Int64s) -> Int64s:
        """Times on keys as they count: what happened before an operation's own time counts as of that time."""
        effective: Int64s = np.maximum(flat_ms, self.event_time_ms[self.of])
        return effective

    def least(self, flat: Int64s) -> Int64s:
        """The least value of each operation's keys."""
        found: Int64s = np.minimum.reduceat(flat, self.offsets[:-1]) if len(self) else np.zeros(0, np.int64)
        return found

    def written(self, rows: Bools, look_at_ms: Int64s) -> pa.Table:
        """The selected operations as a table (``OPERATION_SCHEMA``)."""
        offsets = pa.array(self.offsets, pa.int32())
        columns = {name: self.table[name] for name in OPERATION_SCHEMA.names}
        columns |= {name: pa.array(getattr(self, name)) for name in Operations.__annotations__}
        columns |= {
            "done_at_ms": pa.ListArray.from_arrays(offsets, pa.array(self.done_ms)),
            "key_cancel_at_ms": pa.ListArray.from_arrays(offsets, pa.array(self.key_cancel_ms)),
            "look_at_ms": pa.array(look_at_ms),
        }
        table = pa.table([columns[name] for name in OPERATION_SCHEMA.names], schema=OPERATION_SCHEMA)
        return table.filter(pa.array(rows))
