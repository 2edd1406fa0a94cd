"""The check of a run: :func:`check`.

::

    commands --- by id ---.      one id:   rows against their commands (match), versions against each other (lives),
    released --- by id ---+--->            rejects against bad commands (refusals), what is lost (book)
    refused  --- by id ---'      all ids:  fire ids, reasons of rejects, the account
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeVar

from wheel_udf.testing.ledger.account import check_account
from wheel_udf.testing.ledger.book import Book
from wheel_udf.testing.ledger.columns import Columns, Frame
from wheel_udf.testing.ledger.offshoots import Offshoots
from wheel_udf.testing.ledger.report import Entry, Report
from wheel_udf.testing.ledger.rows import (
    DEAD,
    DEAD_LETTER,
    FIRE_NOW,
    MISSED,
    RETRY,
    UNDELIVERABLE,
    Command,
    Refusal,
    Release,
    commands_of,
    rejects_of,
    releases_of,
)
from wheel_udf.testing.ledger.rules import Rules
from wheel_udf.testing.ledger.series import Waiting

_RULES = Rules()

_Row = TypeVar("_Row", Command, Release, Refusal)


def check(
    commands: Frame,
    fired: Frame,
    rejects: Frame = (),
    *,
    rules: Rules = _RULES,
    pending: Frame | None = None,
    account: Mapping[str, int] | None = None,
) -> Report:
    """Decides from the input and the sinks of a run whether the run was right (:mod:`wheel_udf.testing.ledger`).

    Each frame is an Arrow table, a pandas frame, a Spark DataFrame or an iterable of dicts. Instants are timestamps,
    ISO text, or whole numbers of ms in columns whose names end in ``_ms`` (``deliver_at_ms``).

    Args:
        commands: All commands that the run has read, good and bad, with the columns of the contract. Further columns:
            ``read_from`` and ``read_by`` (instants), ``batch`` (order of reading), ``source_seq`` (Kafka's offset),
            ``amend``.
        fired: The fired rows of all tables and topics, and dead letters (rows with ``dead_at``). ``schedule_id``,
            ``seq``, ``deliver_at`` and ``fired_at`` are required; others that are missing are not checked. Further
            columns: ``table`` (where a row was found), ``delivered_at`` (when a consumer had it, by the wheel's
            clock), ``at_least_once``.
        rejects: All rows of the rejects; by default there are none. Further column: ``at_least_once``.
        rules: What else is known of the run.
        pending: The pending entries at the end: ``schedule_id``, ``seq``, ``deliver_at``; with retries ``attempt``.
        account: The counts at the end, by the words of the account: ``BatchReport.counts`` and ``pending``, or
            :func:`~wheel_udf.testing.ledger.account.account_of_summary`.

    Returns:
        The report. What a run did wrong never raises here; :meth:`~wheel_udf.testing.ledger.report.Report.require`
        does.

    Raises:
        ContractError: A frame lacks a required column.
    """
    report = Report(keep=rules.keep)
    asked, released = commands_of(commands, rules), releases_of(fired, rules)
    set_aside, refused = rejects_of(rejects, rules)
    released += set_aside
    refusals = [each for each in refused if each.code not in (MISSED, UNDELIVERABLE, DEAD_LETTER)]
    report.commands, report.schedules = len(asked), sum(each.is_schedule for each in asked)
    report.fires, report.retries = (sum(each.op == op for each in asked) for op in (FIRE_NOW, RETRY))
    report.rejects = Counter(each.code or "none" for each in refused)
    waiting = None if pending is None else _waiting(pending)
    ids, rows, reasons = _by_id(asked), _by_id(released), _by_id(refusals)
    offshoots = Offshoots(ids)
    book = Book(rules, report, waiting, offshoots)
    for name in dict.fromkeys((*ids, *rows, *reasons)):
        book.go_through(ids.get(name, []), rows.get(name, []), reasons.get(name, []))
    report.released, report.dead = book.ended.rows["fired"], book.ended.rows[DEAD]
    _check_fire_ids(released, report)
    _check_reasons(refused, report)
    if waiting is not None:
        _check_waiting(waiting, asked, offshoots, report)
    if account is not None:
        repeatable = any(each.repeatable for each in refusals)
        rejected, left = (
            None if repeatable else len(refusals),
            None if waiting is None else sum(map(len, waiting.values())),
        )
        check_account(account, asked, book.ended, rejected, left, report)
    return report


def _by_id(rows: Iterable[_Row]) -> dict[str | None, list[_Row]]:
    found: dict[str | None, list[_Row]] = defaultdict(list)
    for row in rows:
        found[row.schedule_id].append(row)
    return found


def _waiting(pending: Frame) -> dict[Entry, list[Waiting]]:
    columns = Columns(pending, ("schedule_id", "seq"), "pending entries")
    found: dict[Entry, list[Waiting]] = defaultdict(list)
    entries = map(Entry, columns.texts("schedule_id"), columns.whole("seq"))
    dues, attempts = columns.instants("deliver_at", up=True), columns.whole("attempt")
    for entry, due, attempt in zip(entries, dues, attempts, strict=True):
        found[entry].append(Waiting(due if type(due) is int else None, is_again=bool(attempt)))
    return dict(found)


def _check_waiting(
    waiting: Iterable[Entry], commands: Iterable[Command], offshoots: Offshoots, report: Report
) -> None:
    """Every pending entry is a SCHEDULE of the input, or comes of one."""
    known = {Entry(each.schedule_id, each.seq) for each in commands if each.is_schedule}
    unclear = {each.schedule_id for each in commands if each.version is None}
    for entry in set(waiting) - known:
        if entry.schedule_id not in unclear and offshoots.of(entry) is None:
            report.add("not_pending", entry, "no command has this id and seq")


def _check_fire_ids(rows: Iterable[Release], report: Report) -> None:
    """A fire id belongs to one version and one due time, and the other way round."""
    owners: dict[str, tuple[object, ...]] = {}
    fire_ids: dict[tuple[object, ...], str] = {}
    for row in rows:
        if row.how not in ("fired", DEAD) or "fire_id" in row.unknown:
            continue
        about = (row.schedule_id, row.seq, row.due_ms)
        if not row.fire_id and row.how == DEAD:
            continue  # the rejects have none
        if not row.fire_id:
            report.add("fire_id", row, "the row has no fire_id")
        elif owners.setdefault(row.fire_id, about) != about:
            report.add("fire_id", row, f"fire_id {row.fire_id} is also that of {owners[row.fire_id][0]}")
        elif fire_ids.setdefault(about, row.fire_id) != row.fire_id:
            report.add("fire_id", row, f"two fire ids: {fire_ids[about]}, {row.fire_id}")


def _check_reasons(refused: Iterable[Refusal], report: Report) -> None:
    for each in refused:
        if not each.code or not each.message:
            report.add("reject_unexplained", each, f"code {each.code!r}, message {each.message!r}")
