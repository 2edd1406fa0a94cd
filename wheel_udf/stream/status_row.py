"""The status row: what a shard reports after each batch. The one declaration of its columns.

::

    worker    WheelStatus(...).to_json() --> column `status` --.--> outputs.status()    columns for users (type_of)
                                                               '--> delivery/query      WheelStatus.from_json(): reports
              ShardStatus.report()       --> board --> clock source

Imports pyarrow only, besides the standard library and pure modules: it runs on executors.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import reduce
from typing import Any, ClassVar, Self

import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.outcomes import WATCH_COUNTS, WHEEL_COUNTS
from wheel_udf.control.board import ShardReport

_COUNTS = "counts"


def _column(spark_type: str, **default: Any) -> Any:
    """A field of the dataclasses below that is a column of this Spark type."""
    return field(metadata={"type": spark_type}, **default)


@dataclass(frozen=True, kw_only=True)
class ShardStatus:
    """The columns that the status rows of both operators have.

    Attributes:
        shard: Number of the shard.
        batch_id: The batch; -1 outside Spark.
        query_id: Id of the query; empty outside Spark.
        run: Run of the clock source; ``None`` if the batch held no clock row for the shard.
        clock_ms: Clock of the step.
        watermark_ms: Lower bound of the next batch's watermark; ``None`` unless the clock is the event clock.
        next_due_ms: First instant at which something is due; ``None`` if nothing is pending.
        pending: Entries (of a purgatory: operations) that wait.
        received: Rows that came with this batch, good and bad.
        fired_now: Rows of this batch that go to a destination.
        rejected_now: Rows of this batch that were rejected.
        lateness: Histogram of the lateness of the released rows, as
            :meth:`~wheel_udf.wheel.lateness.LatenessHistogram.to_json` writes it.
        destinations: Released rows by destination.
        largest: Upper bound of the bytes of the largest released row, by destination.
        codes: Rejected and missed rows of this batch by their ``error_code``.
        state_bytes: Size of the shard's state.
        remembered: Rows of it about ended ids.
        by_level: Entries by level of the wheel.
        due_within: Entries that are due soon, by horizon (:attr:`wheel_udf.wheel.Holdings.due_within`).
        last_due_ms: When the last entry is due; ``None`` if nothing is pending.
        by_destination: Entries by destination, a sample: the twenty largest, and the others at ``""``.
        counts: Number of rows by outcome since the checkpoint began; a column for each name of
            :attr:`COUNTED`.
    """

    COUNTED: ClassVar[tuple[str, ...]]
    SAMPLED: ClassVar[tuple[str, ...]] = ("by_destination",)
    """Columns that are taken about once a minute (:mod:`wheel_udf.stream.sampling`), and ``None`` in between."""

    shard: int = _column("int")
    batch_id: int = _column("long")
    query_id: str = _column("string")
    run: str | None = _column("string")
    clock_ms: int = _column("long")
    watermark_ms: int | None = _column("long")
    next_due_ms: int | None = _column("long")
    pending: int = _column("long")
    received: int = _column("long")
    fired_now: int = _column("long")
    rejected_now: int = _column("long")
    lateness: str = _column("string")
    destinations: Mapping[str, int] = _column("map<string, long>")
    largest: Mapping[str, int] = _column("map<string, long>")
    codes: Mapping[str, int] = _column("map<string, long>")
    state_bytes: int = _column("long")
    remembered: int = _column("long")
    by_level: Mapping[str, int] = _column("map<string, long>")
    due_within: Mapping[str, int] = _column("map<string, long>")
    last_due_ms: int | None = _column("long", default=None)
    by_destination: Mapping[str, int] | None = _column("map<string, long>", default=None)
    counts: Mapping[str, int]

    @classmethod
    def type_of(cls) -> str:
        """The columns and their types, as Spark's DDL."""
        own = (f"{each.name} {each.metadata['type']}" for each in fields(cls) if each.name != _COUNTS)
        return ", ".join([*own, *(f"{name} long" for name in cls.COUNTED)])

    def to_json(self) -> str:
        """The row as one JSON object; each count is a member of its own."""
        row = asdict(self)
        return json.dumps(row | row.pop(_COUNTS))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of :meth:`to_json`."""
        row = json.loads(text)
        return cls(counts={name: row.pop(name) for name in cls.COUNTED}, **row)

    def report(self, *, held_input: bool | None = None) -> ShardReport:
        """The shard's report for the clock source.

        Args:
            held_input: Whether the batch contained input; by default, whether this shard received rows.
        """
        return ShardReport(
            batch_id=self.batch_id,
            next_due_ms=self.next_due_ms,
            clock_ms=self.clock_ms,
            watermark_ms=self.watermark_ms,
            held_input=self.received > 0 if held_input is None else held_input,
        )


@dataclass(frozen=True, kw_only=True)
class WheelStatus(ShardStatus):
    """A status row of ``schedule``.

    Attributes:
        far: Entries that wait in the slot store.
        levels: Entries by the name of their delay level, a sample, those in flight included.
        held_by: Entries that are held back, by destination, likewise a sample.
        missed_now: Rows of this batch that were released past their ``max_lateness``.
        refused_now: Of the rejected rows of this batch, those over a limit.
        full: Used part of each limit, 1 is all.
        spread_now: Ids whose versions are offsets of several partitions.
        ambiguous_now: Schedules without a seq that differ from another one of their version.
        in_flight: Pending entries that were handed to the sender of the query.
        handed: Rows of this batch that go to the sender, by destination.
        handed_largest: As :attr:`largest`, of these rows.
        confirmed_now: Entries in flight that have fired, as the sender has confirmed.
        dead_to: Dead letters of this batch, by their destination; at ``""`` those that are rejects.
        beyond_ms: See :class:`wheel_udf.control.board.ShardReport`, like `complete_ms`.
    """

    COUNTED: ClassVar[tuple[str, ...]] = WHEEL_COUNTS
    SAMPLED: ClassVar[tuple[str, ...]] = ("by_destination", "levels", "held_by")

    far: int = _column("long")
    levels: Mapping[str, int] | None = _column("map<string, long>", default=None)
    held_by: Mapping[str, int] | None = _column("map<string, long>", default=None)
    missed_now: int = _column("long")
    refused_now: int = _column("long")
    full: Mapping[str, float] = _column("map<string, double>")
    spread_now: int = _column("long")
    ambiguous_now: int = _column("long")
    in_flight: int = _column("long", default=0)
    handed: Mapping[str, int] = _column("map<string, long>", default_factory=dict)
    handed_largest: Mapping[str, int] = _column("map<string, long>", default_factory=dict)
    confirmed_now: int = _column("long", default=0)
    dead_to: Mapping[str, int] = _column("map<string, long>", default_factory=dict)
    beyond_ms: int | None = _column("long", default=None)
    complete_ms: int | None = _column("long", default=None)

    def report(self, *, held_input: bool | None = None) -> ShardReport:
        """As :meth:`ShardStatus.report`, with the fields about the sender, and the number of released rows."""
        report = super().report(held_input=held_input)
        # Rows that are handed over count under the limit of a batch, too.
        released = self.fired_now + self.missed_now + sum(self.handed.values())
        return replace(report, beyond_ms=self.beyond_ms, complete_ms=self.complete_ms, released=released)


@dataclass(frozen=True, kw_only=True)
class WatchStatus(ShardStatus):
    """A status row of ``watch``.

    Attributes:
        resting: Operations between two generations.
        ahead: Events whose time the clock has not passed.
        decided_now: Operations, or generations of them, that this batch has ended.
    """

    COUNTED: ClassVar[tuple[str, ...]] = WATCH_COUNTS

    resting: int = _column("long")
    ahead: int = _column("long")
    decided_now: int = _column("long")


def counts_of(values: pa.ChunkedArray) -> dict[str, int]:
    """Number of occurrences of each value."""
    return {pair["values"]: pair["counts"] for pair in pc.value_counts(values).to_pylist()}


def codes_of(reasons: pa.ChunkedArray) -> dict[str, int]:
    """Number of rejected rows by code, from their reasons (JSON objects that begin with ``error_code``)."""
    found = pc.extract_regex(reasons, r'^\{"error_code": ?"(?P<code>[^"]*)"')
    return counts_of(pc.struct_field(found, "code").drop_null())


_SIZED = {
    "schedule_id": 1,
    "op_id": 1,
    "key": 1,
    "value": 1,
    "headers": 1,
    "source": 1,
    "present": 6,
    "missing": 6,
}
"""Columns without a length limit of their own, with the most bytes that one byte can become in JSON (six)."""


def largest_of(entries: pa.Table) -> dict[str, int]:
    """Upper bound of the bytes of the largest entry of each destination; headers count as JSON text."""
    if not entries.num_rows:
        return {}
    sized = ((entries[name], times) for name, times in _SIZED.items() if name in entries.column_names)
    parts = (
        pc.multiply(pc.binary_length(part).fill_null(0).cast(pa.int64()), times) for part, times in sized
    )
    total = reduce(pc.add, parts)
    sizes = pa.table({"destination": entries["destination"], "bytes": total})
    found = sizes.group_by("destination").aggregate([("bytes", "max")])
    return dict(zip(found["destination"].to_pylist(), found["bytes_max"].to_pylist(), strict=True))


def leaving_to(
    rows: Collection[ShardStatus], counts: str, largest: str
) -> tuple[Counter[str], dict[str, int]]:
    """Adds up what leaves, by destination: the number of rows, and the bytes of the largest one, from two columns of
    status rows (which may be missing).
    """
    rows_to: Counter[str] = Counter()
    largest_to: dict[str, int] = {}
    for row in rows:
        rows_to.update(getattr(row, counts, {}))
        for name, size in getattr(row, largest, {}).items():
            largest_to[name] = max(size, largest_to.get(name, 0))
    return rows_to, largest_to
