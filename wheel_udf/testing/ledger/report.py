"""The result of a check: :class:`Report`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

KINDS: Final = (
    "lost", "overdue", "early", "twice", "wrong_occurrence", "after_cancel", "superseded", "no_command",
    "wrong_version", "altered", "wrong_destination", "bad_figures", "fire_id", "late", "missed_wrongly", "not_missed",
    "fired_and_rejected", "reject_missing", "reject_unexplained", "reject_no_command", "not_pending", "account",
)  # fmt: skip
"""Kinds of findings; :mod:`wheel_udf.testing.ledger` describes them."""

_SHOWN: Final = 3


class LedgerError(AssertionError):
    """A run broke its guarantees; the message is the report."""


class Entry(NamedTuple):
    """An id and its version."""

    schedule_id: str | None
    seq: int | None


class About(Protocol):
    """A command, a row or an entry."""

    @property
    def schedule_id(self) -> str | None:
        """Its id."""

    @property
    def seq(self) -> int | None:
        """Its version."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of a run, or one case that cannot be decided.

    Attributes:
        kind: One of :data:`KINDS`, or ``undecided``.
        schedule_id: The id; None where it has none, and for the account.
        seq: Its version; None where that is not known.
        detail: What was found, with instants.
    """

    kind: str
    schedule_id: str | None
    seq: int | None
    detail: str

    def __str__(self) -> str:
        about = [] if self.schedule_id is None else [self.schedule_id]
        about += [] if self.seq is None else [f"seq {self.seq}"]
        return f"{' '.join(about)}: {self.detail}" if about else self.detail


@dataclass(slots=True)
class Report:
    """The findings of a check.

    Attributes:
        counts: Number of findings by kind; kinds without findings are left out.
        findings: The first ``keep`` of each kind, in the order of :data:`KINDS`.
        undecided: Versions for which released and not released are both right, as far as can be known.
        examples: The first ``keep`` of these.
        commands: Commands read.
        schedules: Those that are SCHEDULE or REPLACE.
        fires: Those that are FIRE_NOW.
        retries: Those that are RETRY.
        released: Rows of the sinks, without repetitions; dead letters, and ``missed`` and ``undeliverable`` rows of the
            rejects are not among them. Each attempt is one.
        dead: Dead letters.
        repetitions: Rows of at-least-once sinks beyond the first of their fire id.
        rejects: Rows of the rejects by ``error_code``.
    """

    keep: int = 10
    counts: Counter[str] = field(default_factory=Counter)
    undecided: int = 0
    examples: list[Finding] = field(default_factory=list)
    commands: int = 0
    schedules: int = 0
    fires: int = 0
    retries: int = 0
    released: int = 0
    dead: int = 0
    repetitions: int = 0
    rejects: Mapping[str, int] = field(default_factory=dict)
    _found: dict[str, list[Finding]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether no fault was found."""
        return not self.counts

    @property
    def findings(self) -> list[Finding]:
        """The first findings of each kind."""
        return [each for kind in KINDS for each in self._found.get(kind, ())]

    def of(self, kind: str) -> list[Finding]:
        """The first findings of one kind."""
        return list(self._found.get(kind, ()))

    def add(self, kind: str, about: About | None, detail: str) -> None:
        """Adds a finding; of the account, about None."""
        assert kind in KINDS, kind
        self.counts[kind] += 1
        kept = self._found.setdefault(kind, [])
        if len(kept) < self.keep:
            kept.append(_finding(kind, about, detail))

    def leave_open(self, about: About, detail: str) -> None:
        """Adds a case that cannot be decided."""
        self.undecided += 1
        if len(self.examples) < self.keep:
            self.examples.append(_finding("undecided", about, detail))

    def require(self) -> None:
        """Raises if a fault was found.

        Raises:
            LedgerError: With the lines of the report.
        """
        if not self.ok:
            raise LedgerError(str(self))

    def __str__(self) -> str:
        codes = ", ".join(f"{code} {count:,}" for code, count in sorted(self.rejects.items()))
        result = (
            "the ledger closes" if self.ok else f"the ledger does NOT close: {self.counts.total():,} faults"
        )
        cancels = self.commands - self.schedules - self.fires - self.retries
        told = f"{self.schedules:,} schedules, {cancels:,} cancels"
        rare = {"FIRE_NOW": self.fires, "RETRY": self.retries}
        told += "".join(f", {number:,} {op}" for op, number in rare.items() if number)
        dead = f", dead letters {self.dead:,}" if self.dead else ""
        lines = [
            result,
            f"  commands   {self.commands:,}: {told}",
            f"  released   {self.released:,}{dead}, repetitions {self.repetitions:,}; rejects: {codes or 'none'}",
            *(line for kind in KINDS if self.counts[kind] for line in self._lines(kind)),
        ]
        if self.undecided:
            lines.append(
                f"  undecided  {self.undecided:,}, such as {self.examples[0] if self.examples else '-'}"
            )
        return "\n".join(lines)

    def _lines(self, kind: str) -> list[str]:
        shown = [f"    {each}" for each in self._found.get(kind, ())[:_SHOWN]]
        return [f"  {kind} {self.counts[kind]:,}", *shown]


def _finding(kind: str, about: About | None, detail: str) -> Finding:
    name, seq = (None, None) if about is None else (about.schedule_id, about.seq)
    return Finding(kind, name, seq, detail)
