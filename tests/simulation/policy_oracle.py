"""The oracle of a wheel with series, retries and rates.

What leaves a destination with a rate depends on its tokens, so a batch is decided when it runs for the first time::

    offsets/N is written      its commands, its time, what comes back with it: each row that was not taken, once
    batch N has run           exactly the rows of the heap; of destinations with a rate those that left, if they were due;
                              never more than rate * span + burst, over any span of the wheel's clock.
                              A repetition: the same rows
    commits/N is written      what its destinations have not taken comes back with a later batch
    the end                   nothing that came back waits; after some tokens more nothing waits that waited for one; no
                              attempt after the last one, one dead letter for each
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.simulation.core import Command
from tests.simulation.oracle import (
    FLAKY,
    Batch,
    Row,
    WheelOracle,
    check,
    even_part,
    heap_now,
    heap_row,
    shard_of,
)
from tests.simulation.policy_model import Key, Outcome, Policy, PolicyModel, key_of, row_of
from tests.unit.wheel.heap_model import Row as HeapRow

DEAD = "dead"
OutcomeOf = Callable[[Row, int], Outcome]
"""What becomes of a row at the flaky destination, in a batch."""


@dataclass(frozen=True)
class Rated:
    """A rate of destinations: so many rows in each `period_ms`, and `burst` at once."""

    period_ms: int
    burst: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class _Plan:
    """A batch in the journal, as :meth:`WheelOracle.planned` takes it."""

    commands: Sequence[Command]
    now_ms: int | None
    ticks: bool
    limit: int | None
    touched: Collection[int]
    shares: Sequence[int] | None
    returned: Sequence[tuple[HeapRow, Outcome]]


class PolicyOracle(WheelOracle):
    """What a wheel with series, retries and rates must do.

    Args:
        shards: As of the oracle.
        memory_ms: Likewise.
        first_ms: Likewise.
        policy: How the flaky destination is tried again; None: it is not.
        rated: The rate; None without one.
        outcome_of: What has become of rows at the flaky destination, in the last run of their batch.
        keeps_dead: Whether dead letters have a destination.
    """

    def __init__(
        self,
        shards: int,
        memory_ms: int | None,
        first_ms: int,
        *,
        policy: Policy | None,
        rated: Rated | None,
        outcome_of: OutcomeOf,
        keeps_dead: bool,
    ) -> None:
        super().__init__(shards, memory_ms, first_ms)
        self.rated, self.keeps_dead, self.outcome_of = rated, keeps_dead, outcome_of
        self.policy, names = policy, () if rated is None else rated.names
        self.heaps: list[PolicyModel] = [PolicyModel(memory_ms, policy, names) for _ in range(shards)]  # type: ignore[assignment]
        self.plans: list[_Plan] = []
        self.files: list[list[tuple[HeapRow, Outcome]]] = []
        self.files_planned = 0
        self._flaky: list[list[HeapRow]] = []
        self._ran: list[Counter[tuple[Any, ...]]] = []
        self._left: dict[str, list[int]] = {}
        self._attempts: dict[tuple[Any, ...], set[int]] = {}

    @property
    def planned_batches(self) -> int:
        """See :attr:`WheelOracle.planned_batches`."""
        return len(self.plans)

    def planned(  # type: ignore[override]
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
        returned: tuple[int, int] = (0, 0),
    ) -> None:
        """As :meth:`WheelOracle.planned`; `returned` is the span of files with rows that come back."""
        check(batch_id == len(self.plans), f"batch {batch_id} planned after {len(self.plans) - 1}")
        check(span[0] == self.read_to, f"batch {batch_id} reads from {span[0]}, not from {self.read_to}")
        check(
            returned[0] == self.files_planned and returned[1] <= len(self.files),
            f"batch {batch_id} takes what came back {returned}, of {len(self.files)} from {self.files_planned}",
        )
        self.read_to, self.files_planned = span[1], returned[1]
        if shares is not None:
            check(limit is not None and sum(shares) <= limit, f"shares {shares} of a limit of {limit}")
        backs = [each for file in self.files[slice(*returned)] for each in file]
        self.plans.append(_Plan(commands, now_ms, ticks, limit, touched, shares, backs))

    def ran(
        self,
        batch_id: int,
        rows: Mapping[int, Sequence[Mapping[str, Any]]],
        clocks_ms: Mapping[int, int | None],
    ) -> None:
        """A batch has run in the shards.

        Args:
            batch_id: Its number.
            rows: The rows that leave each shard.
            clocks_ms: The clock in the state of each shard.
        """
        seen = Counter(
            (row["kind"], row["destination"], *key_of(row)) for of_shard in rows.values() for row in of_shard
        )
        if batch_id < len(self._ran):
            check(seen == self._ran[batch_id], f"batch {batch_id} is repeated with other rows: {seen}")
            return
        check(batch_id == len(self._ran), f"batch {batch_id} runs after {len(self._ran) - 1}")
        self._ran.append(seen)
        batch, plan = Batch(), self.plans[batch_id]
        self._flaky.append([])
        for shard, heap in enumerate(self.heaps):
            left = [key_of(row) for row in rows.get(shard, ()) if self._has_rate(row)]
            self._run(batch, shard, heap, plan, left)
            if heap.holds and shard in clocks_ms:
                # The state is written if an entry has asked for a token, which the heap does not know.
                heap.clock_ms = clocks_ms[shard]
        self.batches.append(batch)
        self.accounts.append((self.counts(), self.pending))
        self.came.append(self._came())
        self._check_rates()

    def _has_rate(self, row: Mapping[str, Any]) -> bool:
        leaves = row["kind"] in ("fired", "missed")
        return leaves and self.rated is not None and row["destination"] in self.rated.names

    def _run(self, batch: Batch, shard: int, heap: PolicyModel, plan: _Plan, left: list[Key]) -> None:
        mine = [each for each in plan.commands if shard_of(each.id, self.shards) == shard]
        backs = [
            each
            for each in plan.returned
            if shard_of(each[0]["schedule_id"].partition("\0")[0], self.shards) == shard
        ]
        if not mine and not backs and not plan.ticks and shard not in plan.touched:
            check(not left, f"shard {shard} releases {left} without a reason")
            return
        good = [heap_row(each) for each in mine if not each.bad]
        bad = Counter("cancel_rejected" if each.op else "rejected" for each in mine if each.bad)
        self.rejected += bad
        at_ms = plan.now_ms if plan.now_ms is not None else heap_now(heap, self.first_ms)
        share = even_part(plan.limit, shard, self.shards) if plan.shares is None else plan.shares[shard]
        now_ms = heap_now(heap, at_ms)
        fired, missed = heap.policy_batch(good, backs, at_ms, share, left)
        check(
            not heap.unexplained, f"shard {shard} releases {heap.unexplained} at {now_ms}, which is not due"
        )
        if shard in plan.touched or bad or heap.refused:
            heap.clock_ms = now_ms
        batch.rejects += bad.total() + len(missed) + len(heap.refused)
        for row in fired:
            batch.rows.setdefault(row["destination"], []).append(row_of(row, now_ms))
        self._flaky[-1] += [row for row in fired if row["destination"] == FLAKY]
        for row in [*fired, *missed]:
            self._left.setdefault(row["destination"], []).append(now_ms)
        if self.keeps_dead:
            batch.rows.setdefault(DEAD, []).extend(dead_row(row, now_ms) for row in heap.dead)
        else:
            batch.rejects += len(heap.dead)

    def committed(self, batch_id: int, written: Mapping[str, Sequence[Row]], rejects: int) -> None:
        """See :meth:`WheelOracle.committed`. What was not taken will come back."""
        super().committed(batch_id, written, rejects)
        not_taken = []
        for row in self._flaky[batch_id]:
            outcome = self.outcome_of(row_of(row, 0), batch_id)
            if not outcome.is_taken:
                not_taken.append((row, outcome))
        if not_taken:
            self.files.append(not_taken)

    def idle(self, now_ms: int, read_to: int, all_input: int) -> None:
        """See :meth:`WheelOracle.idle`."""
        super().idle(now_ms, read_to, all_input)
        check(
            self.files_planned == len(self.files),
            "idle, though what could not be delivered has not come back",
        )

    def held(self) -> set[tuple[str, int]]:
        """What a rate holds back, each with the instant since when."""
        return {each for heap in self.heaps for each in heap.held_since}

    # ---- promises that need no heap ------------------------------------------------------------------

    def _repeated(self, to: str, batch_id: int, row: Row) -> bool:
        """Whether an attempt was made in another batch: of an occurrence, of a version."""
        name = (to == DEAD, row[0], row[1], row[3], row[7:])
        batches = self._attempts.setdefault(name, set())
        batches.add(batch_id)
        before = [each for each in batches if each < batch_id]
        return any(to != FLAKY or self.outcome_of(row, each).is_tried for each in before)

    def _check_rates(self) -> None:
        """Not more than burst + span / period rows of a destination in any span of the clock."""
        if self.rated is None:
            return
        for name in self.rated.names:
            at_ms = sorted(self._left.get(name, ()))
            for last, until_ms in enumerate(at_ms):
                for first, since_ms in enumerate(at_ms[: last + 1]):
                    most = self.rated.burst + (until_ms - since_ms) / self.rated.period_ms
                    count = last - first + 1
                    check(
                        count <= most, f"{name} got {count} rows from {since_ms} to {until_ms}, over its rate"
                    )

    def ended(self, written: Mapping[str, Sequence[Row]]) -> None:
        """See :meth:`WheelOracle.ended`; and attempts and dead letters, from what the sinks hold alone."""
        super().ended(written)
        if self.policy is None:
            return
        attempts = Counter(
            (row[0], row[1], row[3]) for row in set(written.get(FLAKY, ())) if row[7] > self.policy.attempts
        )
        check(not attempts, f"tried again after the last attempt: {attempts}")
        dead = Counter(row[:4] for row in written.get(DEAD, ()))
        twice = {name: count for name, count in dead.items() if count > 1}
        check(not twice, f"more than one dead letter: {twice}")


def dead_row(row: Mapping[str, Any], now_ms: int) -> Row:
    """A dead letter, as the table has it."""
    name, seq, due_ms, occurrence, _ = key_of(row)
    return name, seq, row["first_amend"], due_ms, now_ms, occurrence, 0, row["failed"]
