"""The report of one micro-batch: :class:`BatchReport`, made from the status rows of its shards by :func:`report_of`.

A shard that the batch has not touched counts with its last status row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from wheel_udf.common.durations import parse_duration_ms
from wheel_udf.common.outcomes import (
    CANCEL_OUTCOMES,
    EVENT_COUNTS,
    FIRE_OUTCOMES,
    OCCURRENCE_COUNTS,
    OPERATION_OUTCOMES,
    SCHEDULE_OUTCOMES,
)
from wheel_udf.shard.holdings import HORIZONS_MS, Holdings
from wheel_udf.stream.frame_facts import FrameFacts
from wheel_udf.stream.status_row import ShardStatus
from wheel_udf.wheel.lateness import LatenessHistogram


@dataclass(frozen=True, slots=True)
class Stored:
    """The contents of the slot store, from the metadata of its files.

    Attributes:
        files: Number of files, those of retired entries included.
        bytes: Their size.
        by_level: Rows that wait, by level of the wheel; those in the inbox, which have no level yet, are at ``inbox``.
        due_within: Rows of by_level that are due soon, as :attr:`wheel_udf.wheel.Holdings.due_within`; without the
            inbox.
        handed_over: Rows that have left each level since the run began.
    """

    files: int = 0
    bytes: int = 0
    by_level: Mapping[str, int] = field(default_factory=dict)
    due_within: Mapping[str, int] = field(default_factory=dict)
    handed_over: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The report of one micro-batch.

    Attributes:
        batch_id: Spark's number of the batch.
        received: Commands read by this batch, valid and invalid.
        fired: Rows released to their destinations by this batch, including undeliverable ones.
        missed: Rows released after their ``max_lateness``, which go to the rejects.
        rejected: Commands that this batch rejected.
        undeliverable: Fired rows that a sink refused, which go to the rejects.
        pending: Entries that wait after this batch, over all shards: in Spark's state, and those of `far`. Exact where
            `far` is None.
        far: Of these, the rows in the slot store; None without a store. A far entry that was replaced or cancelled
            counts until its window is handed over, and only then has an outcome. :func:`wheel_udf.pending.pending`
            leaves it out at once.
        next_due_ms: Due time of the earliest pending entry (UTC epoch ms); None if nothing is pending.
        clock_ms: The wheel's clock after this batch (UTC epoch ms); None while it has none.
        watermark_ms: The event-time watermark that this batch ran with (UTC epoch ms); None without one.
        lateness: Lateness of this batch's fired rows.
        counts: Outcomes since the checkpoint began, over all shards, by the words of :mod:`wheel_udf.common.outcomes`:
            of a wheel ``WHEEL_COUNTS``, of a purgatory ``WATCH_COUNTS``; a missing key counts 0.
        held_input: Whether the batch read commands.
        backlog: Whether due entries were held back: because of the limit, or (tiered mode, event clock; then this
            batch has released none) until the next batch brings the instant that they belong to.
        complete: Whether every shard has reported its counts since the query started; if not, ``pending`` and
            ``counts`` are those of the shards that have.
        spread: Ids whose versions are offsets of several partitions, so that the latest version is not known.
        ambiguous: Schedules without a ``seq`` that differ from another one of the same id and event time, which was
            kept.
        refused: Rejected commands over the limits.
        full: Used part of each limit (1 is full), by its name; for slots and destinations, the fullest of those that
            received entries last.
        paused: Whether the intake is paused because a limit is reached.
        levels: Entries in Spark's state by the name of their delay level (``30s``), shortest first; levels without
            entries are left out. A sample that each shard takes about once a minute.
        purgatory: Whether this is the report of a purgatory; ``fired`` then counts delivered outcomes.
        decided: Operations, or generations of them, that this batch has ended, delivered or only counted; 0 for a
            wheel.
        clock_kind: Kind of the wheel's clock. `lateness` is wall-clock time under ``processing`` only; under ``event``
            and ``simulated`` it is a distance in the data's own time, up to the span of a batch.
        codes: Rejected and missed rows of this batch by their ``error_code``.
        held: What Spark's state holds, over all shards.
        by_destination: Entries in Spark's state by destination: the twenty largest and, at ``""``, the others. A
            sample that each shard takes about once a minute.
        held_by: Entries that are held back by a rate, a breaker or the wait before another attempt, by destination;
            likewise a sample.
        store: What the slot store holds, as of some seconds ago; None without one.
        in_flight: Pending entries that were handed to the sender; None without punctual delivery. `fired` then counts
            confirmed entries, up to `ahead` after they were sent, and `lateness` those sent since the last report.
        handed: Rows that this batch gave to the sender.
        returned: Fired rows that come back to the wheel, because they could not be delivered.
        dead: Dead letters of this batch.
        breakers: The state (``closed``, ``open``, ``half-open``) of each breaker that has seen a failure.
    """

    batch_id: int
    received: int
    fired: int
    missed: int
    rejected: int
    undeliverable: int
    pending: int
    next_due_ms: int | None
    clock_ms: int | None
    watermark_ms: int | None
    lateness: LatenessHistogram
    counts: dict[str, int]
    held_input: bool
    backlog: bool
    complete: bool = True
    spread: int = 0
    ambiguous: int = 0
    refused: int = 0
    full: Mapping[str, float] = field(default_factory=dict)
    paused: bool = False
    levels: Mapping[str, int] = field(default_factory=dict)
    purgatory: bool = False
    decided: int = 0
    clock_kind: str = "processing"
    far: int | None = None
    codes: Mapping[str, int] = field(default_factory=dict)
    held: Holdings = Holdings()  # noqa: RUF009  # frozen
    by_destination: Mapping[str, int] = field(default_factory=dict)
    held_by: Mapping[str, int] = field(default_factory=dict)
    store: Stored | None = None
    in_flight: int | None = None
    handed: int = 0
    returned: int = 0
    dead: int = 0
    breakers: Mapping[str, str] = field(default_factory=dict)

    @property
    def in_data_time(self) -> bool:
        """Whether the wheel's clock, and so `lateness`, follows the data instead of the wall clock."""
        return self.clock_kind in ("event", "simulated")

    @property
    def waiting(self) -> dict[str, int]:
        """Entries without an outcome, by the words of the progress line: ``pending``, or ``near`` and ``far``."""
        return (
            {"pending": self.pending}
            if self.far is None
            else {"near": self.pending - self.far, "far": self.far}
        )

    @property
    def accounts(self) -> dict[str, tuple[str, ...]]:
        """What is accounted for, and its outcomes (besides pending)."""
        if self.purgatory:
            return {"operations": OPERATION_OUTCOMES, "events": EVENT_COUNTS}
        return {"schedules": SCHEDULE_OUTCOMES, "cancels": CANCEL_OUTCOMES, "fires": FIRE_OUTCOMES}

    @property
    def occurrences(self) -> dict[str, int]:
        """The occurrences of series that are over, by how they ended."""
        return {
            name.removeprefix("occurrences_"): self.counts.get(name, 0)
            for name in OCCURRENCE_COUNTS
            if not self.purgatory
        }


def report_of(  # noqa: PLR0913  # what a batch is made of, by name
    statuses: Sequence[ShardStatus],
    shards: Collection[ShardStatus],
    *,
    batch_id: int,
    undeliverable: int,
    held_input: bool,
    facts: FrameFacts,
    sent: LatenessHistogram | None = None,
    returned: int = 0,
    breakers: Mapping[str, str] | None = None,
) -> BatchReport:
    """Makes the report of a batch.

    Args:
        statuses: The status rows of the shards that the batch has touched.
        shards: The last status row of every shard since the query started.
        batch_id: Spark's number of the batch.
        undeliverable: Fired rows that a sink refused.
        held_input: Whether the batch read commands.
        facts: The facts about the frame that is delivered.
        sent: With punctual delivery, the lateness of what the sender has sent since the last report.
        returned: Fired rows that come back, because they could not be delivered.
        breakers: The state of each breaker that has seen a failure.
    """
    next_due_ms = min((row.next_due_ms for row in shards if row.next_due_ms is not None), default=None)
    clock_ms = max((row.clock_ms for row in shards), default=None)
    watermarks = (row.watermark_ms for row in statuses if row.watermark_ms is not None)
    far = total_of(shards, "far")
    lateness = sent or LatenessHistogram()
    for row in statuses:
        lateness = lateness.merge(LatenessHistogram.from_json(row.lateness))
    return BatchReport(
        batch_id=batch_id,
        received=total_of(statuses, "received"),
        fired=total_of(statuses, "fired_now") + total_of(statuses, "confirmed_now"),
        missed=total_of(statuses, "missed_now"),
        rejected=total_of(statuses, "rejected_now"),
        refused=total_of(statuses, "refused_now"),
        full=_fullest([getattr(row, "full", {}) for row in shards]),
        spread=total_of(statuses, "spread_now"),
        ambiguous=total_of(statuses, "ambiguous_now"),
        undeliverable=undeliverable,
        pending=total_of(shards, "pending") + far,
        far=far if facts.stored else None,
        levels=_by_level([getattr(row, "levels", None) or {} for row in shards]),
        next_due_ms=next_due_ms,
        clock_ms=clock_ms,
        watermark_ms=max(watermarks, default=None),
        lateness=lateness,
        counts=_added(row.counts for row in shards),
        clock_kind=facts.clock,
        purgatory=facts.is_purgatory,
        decided=total_of(statuses, "decided_now"),
        held_input=held_input,
        complete=len(shards) == facts.shards,
        backlog=next_due_ms is not None and clock_ms is not None and next_due_ms <= clock_ms,
        codes=_added(row.codes for row in statuses),
        held=_held(shards),
        by_destination=_added(row.by_destination or {} for row in shards),
        held_by=_added(getattr(row, "held_by", None) or {} for row in shards),
        in_flight=None if facts.punctual is None else total_of(shards, "in_flight"),
        handed=sum(sum(getattr(row, "handed", {}).values()) for row in statuses),
        returned=returned,
        breakers=breakers or {},
        dead=sum(sum(getattr(row, "dead_to", {}).values()) for row in statuses),
    )


def total_of(rows: Collection[ShardStatus], column: str) -> int:
    """Adds up a column of status rows; 0 if the status rows of this operator do not have it."""
    return sum(getattr(row, column, 0) for row in rows)


def _added(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)


def _held(shards: Collection[ShardStatus]) -> Holdings:
    by_level = _added(row.by_level for row in shards)
    return Holdings(
        bytes=total_of(shards, "state_bytes"),
        remembered=total_of(shards, "remembered"),
        by_level={int(level): by_level[level] for level in sorted(by_level, key=int)},
        due_within=dict.fromkeys(HORIZONS_MS, 0) | _added(row.due_within for row in shards),
        last_due_ms=max((row.last_due_ms for row in shards if row.last_due_ms is not None), default=None),
    )


def _fullest(shards: list[Mapping[str, float]]) -> dict[str, float]:
    """Returns for each limit the use of the fullest shard."""
    return {bound: max(full.get(bound, 0.0) for full in shards) for bound in {*chain(*shards)}}


def _by_level(shards: list[Mapping[str, int]]) -> dict[str, int]:
    """Adds up pending entries by the name of their delay level, over all shards, shortest level first."""
    return dict(sorted(_added(shards).items(), key=lambda level: parse_duration_ms(level[0])))
