"""One released row against the commands of its id: whose row it is, and whether content and instants are right.

::

    row (id, seq 2)  -->  SCHEDULEs of the id with seq 2  -->  those with the row's content  -->  its copies
                          none: wrong_version                  none: altered, wrong_destination
"""

from __future__ import annotations

from collections.abc import Sequence

from wheel_udf.common.instants import instant_text_ms
from wheel_udf.testing.ledger.columns import Headers
from wheel_udf.testing.ledger.fires import as_fired_now
from wheel_udf.testing.ledger.report import Report
from wheel_udf.testing.ledger.rows import DEAD, GOOD, MISSED, OPEN, Command, Release
from wheel_udf.testing.ledger.rules import Rules

_CONTENT = ("destination", "key", "value", "headers")


def copies_of(
    row: Release, commands: Sequence[Command], fires: Sequence[Command], rules: Rules, report: Report
) -> list[Command]:
    """The commands that the row can come from, perhaps none; reports what is wrong with the row itself.

    The instants of a series are not checked here (:mod:`wheel_udf.testing.ledger.series`).

    Args:
        row: The row.
        commands: The versions of its id.
        fires: The FIRE_NOWs of its id.
        rules: Of the check.
        report: To be filled.
    """
    same = [
        each
        for each in commands
        if each.is_schedule and (each.version is None or each.version.seq == row.seq)
    ]
    accepted = [each for each in same if each.state in (GOOD, OPEN)]
    if not accepted:
        kind = "fired_and_rejected" if same else "wrong_version"
        seqs = sorted({each.seq for each in commands if each.is_schedule and each.seq is not None})
        detail = "all commands of this version are rejected" if same else f"the id's versions are {seqs[:5]}"
        report.add(kind, row, f"{row.how} at {instant_text_ms(row.at_ms)}; {detail}")
        return []
    accepted = [as_fired_now(each, row, fires) for each in accepted]
    changed = [differences(row, each) for each in accepted]
    exact = [each for each, names in zip(accepted, changed, strict=True) if not names]
    if not exact:
        _report_change(row, min(changed, key=len), report)
    found = exact or accepted
    if row.table is not None and "destination" not in row.unknown and row.table != row.content[0]:
        report.add("wrong_destination", row, f"names {row.content[0]}, found in {row.table}")
    if row.how != DEAD and not any(each.repeats for each in found):
        _check_instants(row, found, rules, report)
    return found


def differences(row: Release, command: Command) -> list[str]:
    """The columns in which a row differs from a command; those that the row's frame lacks are not compared."""
    asked, found = command.content, row.content
    names = [name for name, a, b in zip(_CONTENT[:3], asked, found, strict=False) if a != b]
    if (asked[3] or found[3]) and _headers(asked[3], row) != _headers(found[3], row):
        names.append("headers")
    if command.due_ms is not None and command.due_ms != row.due_ms:
        names.append("deliver_at")
    return [name for name in names if name not in row.unknown] if names else names


def _headers(headers: Headers, row: Release) -> Headers:
    """To Kafka, an entry's own headers named ``wheel-*`` do not go."""
    return tuple(pair for pair in headers if not pair[0].startswith("wheel-")) if row.repeatable else headers


def _report_change(row: Release, names: list[str], report: Report) -> None:
    if "destination" in names:
        report.add("wrong_destination", row, f"{row.how} to {row.content[0]}")
    if others := [name for name in names if name != "destination"]:
        report.add("altered", row, f"{', '.join(others)} differ from the command's")


def _check_instants(row: Release, copies: Sequence[Command], rules: Rules, report: Report) -> None:
    planned = row.scheduled_ms if row.scheduled_ms is not None else row.due_ms
    floors = [each.release_ms for each in copies if each.release_ms is not None]
    floor = min(floors, default=planned if planned is not None else row.at_ms)
    first = row.at_ms if row.delivered_ms is None else min(row.at_ms, row.delivered_ms)
    if first < max(floor, row.scheduled_ms or floor):
        report.add("early", row, f"due {instant_text_ms(floor)}, {row.how} at {instant_text_ms(first)}")
    if wrong := _wrong_figures(row, copies, planned, rules):
        report.add("bad_figures", row, f"{row.how} at {instant_text_ms(row.at_ms)}; {wrong}")
    if len(floors) == len(copies) and all(each.state == GOOD for each in copies):
        _check_lateness(row, copies, rules, report)


def _wrong_figures(row: Release, copies: Sequence[Command], planned: int | None, rules: Rules) -> str:
    spread = max(each.spread_ms for each in copies) if row.scheduled_ms is None else 0
    if row.lateness_ms is not None and planned is not None:
        late = row.at_ms - planned
        # How much of its spread an id has is not known here.
        if not late - spread <= row.lateness_ms <= late:
            return f"lateness_ms = {row.lateness_ms}"
    if row.scheduled_ms is None or row.due_ms is None:
        return ""
    if row.scheduled_ms - row.due_ms != (row.level_error_ms or 0):
        return f"level_error_ms = {row.level_error_ms}"
    allowed = [each for each in copies if each.state == GOOD and each.release_ms is not None]
    if rules.levels_ms and allowed and not any(_is_within(row.scheduled_ms, each) for each in allowed):
        return f"scheduled_at = {instant_text_ms(row.scheduled_ms)}"
    return ""


def _is_within(at_ms: int, command: Command) -> bool:
    release = command.release_ms or 0
    return release <= at_ms <= release + command.spread_ms


def _check_lateness(row: Release, copies: Sequence[Command], rules: Rules, report: Report) -> None:
    late = [(row.at_ms - (each.release_ms or 0), each.spread_ms, each.max_lateness_ms) for each in copies]
    text = f"{late[0][0]} ms late; max_lateness {late[0][2]} ms"
    is_missed = row.how == MISSED
    if is_missed and not any(bound is not None and most > bound for most, _, bound in late):
        report.add("missed_wrongly", row, text)
    if not is_missed and all(bound is not None and most - spread > bound for most, spread, bound in late):
        report.add("not_missed", row, text)
    if rules.fires_within_ms is not None and not row.is_again:
        latest = max(max((each.release_ms or 0) + each.spread_ms, each.read_by_ms) for each in copies)
        bound = latest + rules.fires_within_ms
        if row.at_ms > bound:
            report.add("late", row, f"{row.how} {row.at_ms - bound:.0f} ms beyond fires_within_ms")
