"""The account of the Kafka demo: compares what a consumer received with what was sent, by the contract alone.

Of each id the last command counts::

    sent                                    must come out     must not
    SCHEDULE                                version 1
    SCHEDULE, CANCEL in good time           -                 version 1: "cancelled, delivered anyway"
    SCHEDULE, REPLACE in good time          version 2         version 1: "replaced, delivered anyway"
    SCHEDULE, CANCEL too close to its due   either is right: "undecided" (0 unless the machine stalls)

A record is what it says it is only if key, value, headers, topic and due time are those of the command; else it is
"altered".

* **early**: the earlier of the record's own timestamp (set by the job when it sent it) and the consumer's receipt is
  before the due time.
* **lateness**: the consumer's clock when it had the record in hand, minus the due time. First receipts only.
* **duplicates**: the same version again, with the ``wheel-fire-id`` of the first (at least once: a consumer drops it)
  or with another.
* **order**: a shard is written oldest first. A consumer sees the shards of a batch mixed in a partition. A mixture of
  n ordered runs holds no strictly falling subsequence longer than n, so the demo prints that length beside the number
  of shards.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from jobs.demos.kafka_plan import Sent, headers_of, iso, key_of, value_of

GOOD_TIME_MS = 1_000
"""A second command the broker had this long before the first was due must have its effect."""


@dataclass(frozen=True, slots=True)
class Received:
    """A record as the consumer got it. Instants are UTC epoch ms.

    Attributes:
        topic: Where it lay.
        partition: Of the topic.
        key: Of the record.
        value: Of the record.
        headers: In their order.
        stamped_ms: The record's own timestamp.
        received_ms: The consumer's clock at its receipt.
    """

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    stamped_ms: int
    received_ms: int

    def header(self, name: str) -> bytes | None:
        """The last header of that name; None if there is none."""
        return next((value for key, value in reversed(self.headers) if key == name), None)


@dataclass(slots=True)
class Account:
    """Counts, and the latenesses of the first receipts in ms with the due time of each."""

    commands: int = 0
    expected: int = 0
    records: int = 0
    delivered: int = 0
    missing: int = 0
    early: int = 0
    repeated_same_fire_id: int = 0
    repeated_other_fire_id: int = 0
    cancelled: int = 0
    cancelled_anyway: int = 0
    replaced: int = 0
    replaced_anyway: int = 0
    undecided: int = 0
    altered: int = 0
    unknown: int = 0
    rejects: int = 0
    unsent: int = 0
    longest_fall: int = 0
    shards: int = 1
    lateness: list[tuple[int, int]] = field(default_factory=list)
    """(due time in UTC epoch ms, lateness in ms) of each first receipt."""

    @property
    def faults(self) -> dict[str, int]:
        """What has to be 0, by its name, and is not. Repetitions with the same fire id are no fault: at least once."""
        must_be_none = {
            "missing": self.missing,
            "early": self.early,
            "duplicates with another fire id": self.repeated_other_fire_id,
            "cancelled, delivered anyway": self.cancelled_anyway,
            "replaced, delivered anyway": self.replaced_anyway,
            "altered": self.altered,
            "never sent": self.unknown,
            "rejects": self.rejects,
            "refused by the broker": self.unsent,
            "out of order": max(0, self.longest_fall - self.shards),
        }
        return {name: count for name, count in must_be_none.items() if count}


@dataclass(frozen=True, slots=True)
class Fate:
    """What must become of the versions of one id: may is the set that may come out, must the one that has to (or
    None).
    """

    must: int | None
    may: frozenset[int]


def fate_of(versions: Sequence[Sent]) -> Fate:
    """What must come out of one id.

    Args:
        versions: Its commands, in order.
    """
    first, last = versions[0], versions[-1]
    if last is first:
        return Fate(1, frozenset({1}))
    in_time = last.acked_ms is not None and last.acked_ms <= first.due_ms - GOOD_TIME_MS
    undecided = frozenset() if in_time else frozenset({1})
    if last.command.op == "CANCEL":
        return Fate(None, undecided)
    return Fate(2, undecided | {2})


def take_account(
    sent: Sequence[Sent], received: Sequence[Received], *, shards: int, rejects: int = 0
) -> Account:
    """Compares what came out with what was sent.

    Args:
        sent: The commands, in the order in which they were sent.
        received: The records in the order of their receipt.
        shards: Of the wheel.
        rejects: Records in the topic of the rejects.
    """
    by_id: dict[str, list[Sent]] = defaultdict(list)
    for each in sent:
        by_id[each.command.schedule_id].append(each)
    fates = {schedule_id: fate_of(versions) for schedule_id, versions in by_id.items()}
    account = Account(commands=len(sent), records=len(received), rejects=rejects, shards=shards)
    account.unsent = sum(each.acked_ms is None for each in sent)
    account.expected = sum(fate.must is not None for fate in fates.values())
    account.undecided = sum(fate.may > {fate.must} - {None} for fate in fates.values())
    account.cancelled = sum(versions[-1].command.op == "CANCEL" for versions in by_id.values())
    account.replaced = sum(versions[-1].command.op == "REPLACE" for versions in by_id.values())
    firsts = _go_through(received, {(value_of(each.command)): each for each in sent}, fates, account)
    seen = {(each.command.schedule_id, each.command.version) for each, _ in firsts}
    account.delivered = len(seen)
    account.missing = sum(
        fate.must is not None and (schedule_id, fate.must) not in seen for schedule_id, fate in fates.items()
    )
    account.longest_fall = longest_fall(firsts)
    return account


def _go_through(
    received: Sequence[Received],
    sent_by_value: Mapping[bytes | None, Sent],
    fates: Mapping[str, Fate],
    account: Account,
) -> list[tuple[Sent, Received]]:
    """Counts record by record; what was received first of each version."""
    fire_ids: dict[bytes, bytes | None] = {}
    firsts: list[tuple[Sent, Received]] = []
    for record in received:
        each = sent_by_value.get(record.value) if record.value is not None else None
        if each is None or record.value is None:
            account.unknown += 1
            continue
        account.altered += _is_altered(record, each)
        account.early += min(record.stamped_ms, record.received_ms) < each.due_ms
        fire_id = record.header("wheel-fire-id")
        if record.value in fire_ids:
            if fire_ids[record.value] == fire_id:
                account.repeated_same_fire_id += 1
            else:
                account.repeated_other_fire_id += 1
            continue
        fire_ids[record.value] = fire_id
        firsts.append((each, record))
        account.lateness.append((each.due_ms, record.received_ms - each.due_ms))
        if each.command.version not in fates[each.command.schedule_id].may:
            last = fates[each.command.schedule_id].must
            account.cancelled_anyway += last is None
            account.replaced_anyway += last is not None
    return firsts


def _is_altered(record: Received, sent: Sent) -> bool:
    own = [(name, value) for name, value in record.headers if not name.startswith("wheel-")]
    as_sent = [(name, value) for name, value in headers_of(sent) if not name.startswith("wheel-")]
    return (
        record.key != key_of(sent.command)
        or record.topic != sent.command.target
        or own != as_sent
        or record.header("wheel-id") != sent.command.schedule_id.encode()
        or record.header("wheel-deliver-at") != iso(sent.due_ms).encode()
        or record.header("wheel-fire-id") is None
    )


def longest_fall(firsts: Iterable[tuple[Sent, Received]]) -> int:
    """The longest strictly falling subsequence of due times within a batch (one ``wheel-fired-at``) and a partition."""
    groups: dict[tuple[str, int, bytes | None], list[int]] = defaultdict(list)
    for each, record in firsts:
        groups[record.topic, record.partition, record.header("wheel-fired-at")].append(each.due_ms)
    return max((_longest_fall(due) for due in groups.values()), default=0)


def _longest_fall(instants: Sequence[int]) -> int:
    tails: list[
        int
    ] = []  # patience sorting: tails[n] = the best end of a falling subsequence of n + 1, negated
    for instant in instants:
        place = bisect_left(tails, -instant)
        tails[place : place + 1] = [-instant]
    return len(tails)


def quantile(values: Sequence[int], share: float) -> int:
    """The smallest value that at least this share of the values does not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 10_000) * len(ordered) // 10_000) - 1)] if ordered else 0
