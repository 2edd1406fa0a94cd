"""The oracle of a wheel: what must fire in each batch, from the journal of plans and the input alone, by a heap.

It sees what is durable and never the wheel's state::

    offsets/N is written      the batch's commands and time, the settings of the process that planned it  -> one batch of each heap
    a sink gets rows          exactly the rows that the heap released in that batch, none before it is due by any clock so far;
                              no (id, seq) that has left before (once.Deliveries)
    commits/N is written      every sink has its rows; the reported account is the heap's, and it is closed
    the query says "idle"     nothing that it has read is due (nothing is stuck)
    the end                   every command is read; nothing is due

The heap is :class:`tests.unit.wheel.heap_model.HeapModel`: each version at most once, cancels in the batch that would
fire win.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.core import Command
from tests.simulation.once import Deliveries
from tests.unit.wheel.heap_model import CANCEL_OUTCOMES, SCHEDULE_OUTCOMES, HeapModel
from tests.unit.wheel.series_model import SeriesModel
from wheel_udf.common.outcomes import OCCURRENCE_COUNTS

Row = tuple[Any, ...]
AT_LEAST_ONCE = "topic"
"""The destination that is a Kafka topic."""
FLAKY = "flaky"
"""The destination that refuses some rows for now; it gets others more than once. The others are tables."""


_ONCE = 5
"""Columns of a row that is no occurrence of a series."""


class Violation(AssertionError):  # noqa: N818  # no error of the program: a finding
    """The protocol has broken a promise."""


class Undefined(Violation):
    """The steps have come to where the contract promises nothing, so the run ends here."""


def shard_of(schedule_id: str, shards: int) -> int:
    """The shard of an id in the simulation."""
    return sum(schedule_id.encode()) % shards


@dataclass
class Batch:
    """What a batch must write: rows by destination, and the number of its rejects."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    rejects: int = 0


class WheelOracle:
    """What the wheel of one checkpoint must do.

    Args:
        shards: Number of shards.
        memory_ms: How long ended ids are remembered.
        first_ms: The clock before the first batch, where batches do not always bring one.
        has_series: Whether commands may repeat.
    """

    def __init__(
        self, shards: int, memory_ms: int | None, first_ms: int, *, has_series: bool = False
    ) -> None:
        self.shards, self.first_ms = shards, first_ms
        self.heaps: list[HeapModel] = [
            SeriesModel(memory_ms, tick_ms=1) if has_series else HeapModel(memory_ms) for _ in range(shards)
        ]
        self.batches: list[Batch] = []
        self.deliveries = Deliveries(memory_ms)
        self.read_to = 0
        self.rejected: Counter[str] = Counter()
        self.accounts: list[tuple[Counter[str], int]] = []
        self.came: list[tuple[int, int]] = []

    # ---- what is durable -----------------------------------------------------------------------------

    def planned(
        self,
        batch_id: int,
        span: tuple[int, int],
        commands: Sequence[Command],
        now_ms: int | None,
        *,
        ticks: bool,
        limit: int | None,
        touched: Collection[int] = (),
        shares: Sequence[int] | None = None,
        waits: bool = False,
    ) -> None:
        """A batch is in the journal.

        Args:
            batch_id: Its number.
            span: The part of the input that it reads.
            commands: The commands in it.
            now_ms: The clock that follows from the plan; None: it stays where it is.
            ticks: Whether the batch has rows of the clock.
            limit: Most rows that it may release.
            shares: How the clock divides the limit among the shards; None: evenly.
            waits: Whether the batch releases nothing, because the instant that its rows belong to comes with the next
                one.
            touched: Shards that hold the clock as if they got commands: they get rows of the store, or an instant of
                the clock.
        """
        check(batch_id == len(self.batches), f"batch {batch_id} planned after {len(self.batches) - 1}")
        check(
            span[0] == self.read_to,
            f"batch {batch_id} reads from {span[0]}, the one before to {self.read_to}",
        )
        self.read_to = span[1]
        if shares is not None:
            check(limit is not None and sum(shares) <= limit, f"shares {shares} of a limit of {limit}")
        batch = Batch()
        for shard, heap in enumerate(self.heaps):
            mine = [each for each in commands if shard_of(each.id, self.shards) == shard]
            if not mine and not ticks and shard not in touched:
                continue
            good = [heap_row(each) for each in mine if not each.bad]
            bad = Counter("cancel_rejected" if each.op else "rejected" for each in mine if each.bad)
            self.rejected += bad
            at_ms = now_ms if now_ms is not None else heap_now(heap, self.first_ms)
            share = even_part(limit, shard, self.shards) if shares is None else shares[shard]
            share = 0 if waits else share
            fired, missed = heap.batch(good, at_ms, share)
            if shard in touched or bad:
                heap.clock_ms = heap_now(heap, at_ms)
            self.deliveries.read(batch_id, mine, heap_now(heap, at_ms))
            refused = len(heap.refused) if isinstance(heap, SeriesModel) else 0
            self.rejected["rejected"] += refused
            batch.rejects += bad.total() + len(missed) + refused
            for row in fired:
                batch.rows.setdefault(row["destination"], []).append(_fired_row(row, heap_now(heap, at_ms)))
        self.batches.append(batch)
        self.accounts.append((self.counts(), self.pending))
        self.came.append(self._came())

    def wrote(self, to: str, batch_id: int, rows: Iterable[Row], clock_ms: int) -> None:
        """A sink has got rows of a batch, while no clock had passed `clock_ms`."""
        found = sorted(rows)
        must = sorted(self.batches[batch_id].rows.get(to, ()))
        check(found == must, f"{to} got {found} in batch {batch_id}, and must get {must}")
        early = [row for row in found if row[3] > clock_ms]
        check(not early, f"{to} got {early} before it was due, at {clock_ms}")
        twice = [row for row in found if self._repeated(to, batch_id, row)]
        check(not twice, f"{to} got {twice} in batch {batch_id}, delivered before")

    def _repeated(self, to: str, batch_id: int, row: Row) -> bool:  # noqa: ARG002  # as all oracles
        name = row[:2] if len(row) == _ONCE else (*row[:2], row[3])
        return self.deliveries.repeated(batch_id, name, row[4])

    def committed(self, batch_id: int, written: Mapping[str, Sequence[Row]], rejects: int) -> None:
        """A batch counts as done; `written` has all rows of tables and topics."""
        batch = self.batches[batch_id]
        for to, rows in batch.rows.items():
            missing = Counter(rows) - Counter(written.get(to, ()))
            check(not missing, f"batch {batch_id} is committed without {sorted(missing)} in {to}")
        all_rejects = sum(each.rejects for each in self.batches[: batch_id + 1])
        check(rejects >= all_rejects, f"batch {batch_id} is committed, {rejects} rejects of {all_rejects}")

    def reported(self, batch_id: int, counts: Mapping[str, int], pending: int) -> None:
        """The account of a batch, all shards together."""
        must, waiting = self.accounts[batch_id]
        found = {name: count for name, count in counts.items() if count}
        check(
            (found, pending) == (dict(+must), waiting),
            f"batch {batch_id} reports {found}, pending {pending}; true is {dict(+must)}, pending {waiting}",
        )

    def reported_sums(self, batch_id: int, counts: Mapping[str, int], pending: int) -> None:
        """The account of a batch of the tiered mode: what has left is exact, and the sums are closed."""
        must, _ = self.accounts[batch_id]
        for name in ("fired", "missed", "rejected", "cancel_rejected", *OCCURRENCE_COUNTS):
            found = counts.get(name, 0)
            check(found == must[name], f"batch {batch_id} reports {found} {name}; true is {must[name]}")
        schedules, cancels = self.came[batch_id]
        ended = sum(counts.get(name, 0) for name in SCHEDULE_OUTCOMES) + pending
        check(
            ended == schedules,
            f"batch {batch_id} accounts for {ended} schedules of {schedules}: {counts} {pending}",
        )
        told = sum(counts.get(name, 0) for name in CANCEL_OUTCOMES)
        check(told == cancels, f"batch {batch_id} accounts for {told} cancels of {cancels}: {counts}")

    def idle(self, now_ms: int, read_to: int, all_input: int) -> None:
        """The query finds nothing to do at an instant."""
        check(read_to == all_input, f"idle, though input {read_to} to {all_input} is unread")
        for heap in self.heaps:
            due = heap.next_due_ms
            now = max(now_ms, heap.clock_ms) if heap.clock_ms is not None else now_ms
            check(due is None or due > now, f"idle at {now}, though something is due at {due}: stuck")

    def ended(self, written: Mapping[str, Sequence[Row]]) -> None:
        """All is over: what the sinks hold, and the account."""
        must: dict[str, list[Row]] = {}
        for batch in self.batches:
            for to, rows in batch.rows.items():
                must.setdefault(to, []).extend(rows)
        for to in must.keys() | written.keys():
            found, wanted = Counter(written.get(to, ())), Counter(must.get(to, ()))
            if to in (AT_LEAST_ONCE, FLAKY):
                found, wanted = Counter(set(found)), Counter(set(wanted))
            check(not (wanted - found), f"{to} has lost {sorted(wanted - found)}")
            check(not (found - wanted), f"{to} has {sorted(found - wanted)} once too often")
        self._check_account()

    @property
    def planned_batches(self) -> int:
        """How many batches are in the journal."""
        return len(self.batches)

    # ---- the account ---------------------------------------------------------------------------------

    def counts(self) -> Counter[str]:
        """Outcomes so far."""
        total = Counter(self.rejected)
        for heap in self.heaps:
            total.update(heap.counts)
        return total

    @property
    def pending(self) -> int:
        """Entries that wait."""
        return sum(heap.pending for heap in self.heaps)

    def _came(self) -> tuple[int, int]:
        """How many schedules and cancels were read."""
        schedules = sum(heap.schedules_in for heap in self.heaps) + self.rejected["rejected"]
        return schedules, sum(heap.cancels_in for heap in self.heaps) + self.rejected["cancel_rejected"]

    def _check_account(self) -> None:
        counts, (schedules, cancels) = self.counts(), self._came()
        ended = sum(counts[name] for name in SCHEDULE_OUTCOMES) + self.pending
        check(schedules == ended, f"{schedules} schedules came, {ended} are accounted for")
        told = sum(counts[name] for name in CANCEL_OUTCOMES)
        check(cancels == told, f"{cancels} cancels came, {told} are accounted for")


def heap_now(heap: HeapModel, now_ms: int) -> int:
    """The clock of a heap's last batch."""
    return now_ms if heap.clock_ms is None else max(heap.clock_ms, now_ms)


def check(holds: bool, what: str) -> None:  # as an assert
    """Raises a violation if something does not hold."""
    if not holds:
        raise Violation(what)


def even_part(limit: int | None, shard: int, shards: int) -> int | None:
    """The part of a limit that a shard has if nothing divides it otherwise."""
    if limit is None:
        return None
    return max(1, limit // shards + (1 if shard < limit % shards else 0))


def heap_row(command: Command) -> dict[str, Any]:
    """A command as the heap takes it."""
    return {
        "schedule_id": command.id,
        "op": command.op,
        "seq": command.seq,
        "amend": getattr(command, "amend", 0),
        "of_state": getattr(command, "of_state", False),
        "seq_given": command.seq_given,
        "deliver_at_ms": 0 if command.op else command.due_ms,
        "max_lateness_ms": command.lateness_ms,
        "destination": None if command.op else command.to,
        **getattr(command, "series_columns", {}),
    }


def _fired_row(row: Mapping[str, Any], now_ms: int) -> Row:
    once = row["schedule_id"], row["seq"], row["amend"], row["deliver_at_ms"], now_ms
    return once if row.get("occurrence") is None else (*once, row["occurrence"], row["missed_before"])
