"""The account: its identities, its agreement with the rows, and the reading of the summary that a run prints.

::

    schedules + retried = pending + near + far + fired + missed + cancelled + superseded + duplicate + rejected
                          + ended + dead
    cancels     = applied + waiting + late + superseded + duplicate + rejected
    fires       = applied + late + rejected
    occurrences = fired + missed + skipped
    pending     = near + far               tiered mode; far includes replaced and cancelled entries until they end
    applied    <= cancelled                equal in the direct mode
    fired       = rows of the sinks + undeliverable rows of the rejects;   missed, rejected = rows of the rejects
    dead        = dead letters

A series is one schedule, and each of its rows an occurrence. What came back (``retried``) is one more schedule, and is
released again: then ``fired`` is at least the number of rows, and at most ``retried`` more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from wheel_udf.testing.ledger.report import Report
from wheel_udf.testing.ledger.rows import DEAD, FIRED, MISSED, RETRY, UNDELIVERABLE, Command

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
    "ended",
    "dead",
)
_CANCELS: Final = ("applied", "waiting", "late", "cancel_superseded", "cancel_duplicate", "cancel_rejected")
_FIRES: Final = ("fire_applied", "fire_late", "fire_rejected")
_OCCURRENCES: Final = ("occurrences_fired", "occurrences_missed", "occurrences_skipped")
_RETRIED: Final = "retried"
_LINE: Final = re.compile(r"^\s*(schedules|cancels|fires|occurrences)\s+[\d,]+ = (.+)$")
_CAME_BACK: Final = re.compile(r"^\s*([\d,]+) of the schedules are entries that came back")
_PREFIXES: Final = {"cancels": "cancel_", "fires": "fire_", "occurrences": "occurrences_"}
_TERM: Final = re.compile(r"([\d,]+) (\w+)")


@dataclass
class Ended:
    """What the rows say of how versions and occurrences have ended.

    Attributes:
        rows: Released rows by their fate, without repetitions; those of series are among them.
        occurrences: Occurrences by the words of the account.
        of_series: How many of the rows these are, by their fate.
        unknown: Whether rows of series do not say how many were missed before.
        added: Rows of entries that acts have added: the input does not have them.
    """

    rows: Counter[str] = field(default_factory=Counter)
    occurrences: Counter[str] = field(default_factory=Counter)
    of_series: Counter[str] = field(default_factory=Counter)
    unknown: bool = False
    added: int = 0


def check_account(
    account: Mapping[str, int],
    commands: Sequence[Command],
    ended: Ended,
    rejected: int | None,
    pending: int | None,
    report: Report,
) -> None:
    """Compares the account with the input and the rows.

    Args:
        account: Counts by the words of the account.
        commands: The input.
        ended: What the rows say.
        rejected: Refused commands in the rejects; None if that cannot be counted.
        pending: Pending entries; None if they are not known.
        report: To be filled.
    """
    told = {name: account.get(name, 0) for name in (*_SCHEDULES, *_CANCELS, *_FIRES, *_OCCURRENCES, _RETRIED)}
    cancels, schedules = (sum(test(each) for each in commands) for test in (_is_cancel, _is_schedule))
    given_back, retried = sum(each.op == RETRY for each in commands), told[_RETRIED]
    refused = told["rejected"] + told["cancel_rejected"] + told["fire_rejected"]
    # A RETRY that was refused is a schedule; what acts have added is one, too.
    most = schedules + retried + given_back + ended.added
    pairs = [
        ("schedules", _nearest(schedules + retried, most, sum(told[name] for name in _SCHEDULES))),
        ("cancels", (cancels, sum(told[name] for name in _CANCELS))),
        ("fires", (report.fires, sum(told[name] for name in _FIRES))),
        *_of_rows(told, ended),
        ("rejected", (rejected, refused)),
        ("pending", (pending, _pending(told, pending))),
        ("applied", (min(told["applied"], told["cancelled"]), told["applied"])),
    ]
    for name, (found, counted) in pairs:
        if found is not None and found != counted:
            report.add(
                "account", None, f"{name}: the account has {counted:,}, input and sinks have {found:,}"
            )
    for name, count in told.items():
        if count < 0:
            report.add("account", None, f"{name}: {count:,}")


def _is_cancel(command: Command) -> bool:
    return command.is_cancel


def _is_schedule(command: Command) -> bool:
    return command.is_schedule


def _of_rows(told: Mapping[str, int], ended: Ended) -> list[tuple[str, tuple[int | None, int]]]:
    """What the rows have, and what the account has of them."""
    rows, retried = ended.rows, told[_RETRIED]
    missed = None if ended.unknown else ended.occurrences["occurrences_missed"]
    if missed is not None and retried:
        # What a first attempt says that has failed is in no row.
        missed = max(missed, told["occurrences_missed"])
    found: list[tuple[str, tuple[int | None, int]]] = [
        ("missed", (rows[MISSED] - ended.of_series[MISSED], told["missed"])),
        ("occurrences_missed", (missed, told["occurrences_missed"])),
        ("dead", (rows[DEAD], told["dead"])),
    ]
    fired, occurrences = rows[FIRED] + rows[UNDELIVERABLE], ended.occurrences["occurrences_fired"]
    if retried:
        both = told["fired"] + told["occurrences_fired"]
        return [("fired", _nearest(fired, fired + retried, both)), *found]
    return [
        ("fired", (fired - occurrences, told["fired"])),
        ("occurrences_fired", (occurrences, told["occurrences_fired"])),
        *found,
    ]


def _nearest(least: int, most: int, counted: int) -> tuple[int, int]:
    """The number between two bounds that is nearest to the one counted, and that one."""
    return min(max(counted, least), most), counted


def _pending(told: Mapping[str, int], found: int | None) -> int:
    """The pending entries of an account: with `far` rows the number that is nearest to the one found."""
    surely = told["pending"] + told["near"]
    return surely if found is None else min(max(found, surely), surely + told["far"])


def account_of_summary(lines: Iterable[str]) -> dict[str, int]:
    """The account from the lines that a run prints, of the last summary among them; empty if there is none."""
    told: dict[str, int] = {}
    for line in lines:
        if found := _LINE.match(line):
            if found[1] == "schedules":
                told.pop(_RETRIED, None)  # the line about them is there only if there are any
            for count, word in _TERM.findall(found[2]):
                of_cancels = found[1] == "cancels" and word in ("applied", "waiting", "late")
                name = word if of_cancels else f"{_PREFIXES.get(found[1], '')}{word}"
                told[name] = int(count.replace(",", ""))
        elif back := _CAME_BACK.match(line):
            told[_RETRIED] = int(back[1].replace(",", ""))
    return told
