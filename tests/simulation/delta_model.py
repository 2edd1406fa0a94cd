"""Delta's role: a table is a log of atomic commits, each with rows, removals and transactions (app id, version).

::

    begin()     what the table holds now: its version, the last transaction of each app id
    commit()    a conflict if a transaction that was read has been set since; else one more version, whole or not at all

The rule of optimistic concurrency is Delta's own: of two writers that read the same app id and set it, the second gets
``ConcurrentTransactionException``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from delta.exceptions import ConcurrentTransactionException


@dataclass
class Commit:
    """One version of a table."""

    rows: tuple[Any, ...]
    transactions: Mapping[str, int]


@dataclass
class Table:
    """A Delta table of a sink.

    Attributes:
        name: Its name.
        commits: Its versions, from 0.
    """

    name: str
    commits: list[Commit] = field(default_factory=list)
    _last: dict[str, int] = field(default_factory=dict)

    def begin(self) -> Writer:
        return Writer(self, len(self.commits), dict(self._last))

    def transactions(self) -> dict[str, int]:
        return dict(self._last)

    def add(self, commit: Commit) -> None:
        self.commits.append(commit)
        self._last.update(commit.transactions)

    @property
    def rows(self) -> list[Any]:
        return [row for commit in self.commits for row in commit.rows]


@dataclass
class Writer:
    """A transaction on a table: the version that it has read, and one commit."""

    table: Table
    read: int
    transactions: dict[str, int]

    def commit(self, rows: Iterable[Any], app_id: str, batch_id: int, *, checked: bool = True) -> None:
        """Adds rows under a transaction; ``checked=False`` leaves Delta's check out (a planted fault)."""
        since = self.table.commits[self.read :]
        if checked and any(app_id in commit.transactions for commit in since):
            raise ConcurrentTransactionException(f"{app_id} was set since version {self.read}")
        self.table.add(Commit(tuple(rows), {app_id: batch_id}))
