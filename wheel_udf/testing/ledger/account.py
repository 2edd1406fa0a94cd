"""The account: its identities, its agreement with the rows, and the reading of the summary that a run prints.

::

    schedules = pending + near + far + fired + missed + cancelled + superseded + duplicate + rejected
    cancels   = applied + waiting + late + superseded + duplicate + rejected
    pending   = near + far                 tiered mode; far includes replaced and cancelled entries until they end
    applied  <= cancelled                  equal in the direct mode
    fired     = rows of the sinks + undeliverable rows of the rejects;   missed, rejected = rows of the rejects
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from wheel_udf.testing.ledger.report import Report
from wheel_udf.testing.ledger.rows import FIRED, MISSED, UNDELIVERABLE, Command

_SCHEDULES: Final = (
    "pending",
    "near",
    "far",
    "fired",
    "missed",
    "cancelled",
    "superseded",
    "duplicate",
    "rejected",
)
_CANCELS: Final = ("applied", "waiting", "late", "cancel_superseded", "cancel_duplicate", "cancel_rejected")
_LINE: Final = re.compile(r"^\s*(schedules|cancels)\s+[\d,]+ = (.+)$")
_TERM: Final = re.compile(r"([\d,]+) (\w+)")


def check_account(
    account: Mapping[str, int],
    commands: Sequence[Command],
    ended: Mapping[str, int],
    rejected: int | None,
    pending: int | None,
    report: Report,
) -> None:
    """Compares the account with the input and the rows.

    Args:
        account: Counts by the words of the account.
        commands: The input.
        ended: Released rows by how they were released.
        rejected: Refused commands in the rejects; None if that cannot be counted.
        pending: Pending entries; None if they are not known.
        report: To be filled.
    """
    cancels = sum(each.is_cancel for each in commands)
    told = {name: account.get(name, 0) for name in (*_SCHEDULES, *_CANCELS)}
    pairs = [
        ("schedules", len(commands) - cancels, sum(told[name] for name in _SCHEDULES)),
        ("cancels", cancels, sum(told[name] for name in _CANCELS)),
        ("fired", ended.get(FIRED, 0) + ended.get(UNDELIVERABLE, 0), told["fired"]),
        ("missed", ended.get(MISSED, 0), told["missed"]),
        ("rejected", rejected, told["rejected"] + told["cancel_rejected"]),
        ("pending", pending, _pending(told, pending)),
        ("applied", min(told["applied"], told["cancelled"]), told["applied"]),
    ]
    for name, found, counted in pairs:
        if found is not None and found != counted:
            report.add(
                "account", None, f"{name}: the account has {counted:,}, input and sinks have {found:,}"
            )
    for name, count in told.items():
        if count < 0:
            report.add("account", None, f"{name}: {count:,}")


def _pending(told: Mapping[str, int], found: int | None) -> int:
    """The pending entries of an account: with `far` rows the number that is nearest to the one found."""
    surely = told["pending"] + told["near"]
    return surely if found is None else min(max(found, surely), surely + told["far"])


def account_of_summary(lines: Iterable[str]) -> dict[str, int]:
    """The account from the lines that a run prints, of the last summary among them; empty if there is none."""
    told: dict[str, int] = {}
    for line in lines:
        if found := _LINE.match(line):
            prefix = "cancel_" if found[1] == "cancels" else ""
            for count, word in _TERM.findall(found[2]):
                name = word if word in ("applied", "waiting", "late") else f"{prefix}{word}"
                told[name] = int(count.replace(",", ""))
    return told
