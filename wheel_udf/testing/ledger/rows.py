"""Frames to records: commands (:class:`Command`), released rows (:class:`Release`), refusals (:class:`Refusal`).

Here the command contract is read, independently of the product: which commands are certainly bad, the default of
``seq``, due times from ``delay``, delay levels. A command is in one of four states::

    GOOD      keeps to the contract; nothing in the rejects can be it
    OPEN      may have been refused: it is unclear, or a row of the rejects may be it or another one
    REFUSED   is in the rejects
    BAD       breaks the contract: it must be in the rejects
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from wheel_udf.testing.ledger import texts
from wheel_udf.testing.ledger.columns import UNREADABLE, Columns, Frame, Headers
from wheel_udf.testing.ledger.rules import Rules

GOOD, OPEN, REFUSED, BAD = "good", "open", "refused", "bad"
FIRED, MISSED, UNDELIVERABLE = "fired", "missed", "undeliverable"
NEVER: Final = float("-inf")
ANY_TIME: Final = float("inf")

_OPS: Final = {"": False, "SCHEDULE": False, "REPLACE": False, "CANCEL": True}
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


class Version(NamedTuple):
    """A version of an id. Versions are ordered like the tuple."""

    seq: int
    is_cancel: bool
    amend: int


@dataclass(slots=True)
class Command:
    """One command. Instants are UTC epoch ms.

    Attributes:
        at: Its row in the input.
        schedule_id: Its id, as the rejects would name it.
        is_cancel: Whether it is a CANCEL.
        version: None if its ``seq`` is not known.
        seq_given: Whether it has a ``seq`` of its own.
        due_ms: The requested due time; None for a CANCEL, or not known.
        release_ms: When the wheel is to release it: later than `due_ms` with delay levels.
        content: (destination, key, value, headers).
        max_lateness_ms: None for none.
        read_from_ms: It was not read earlier.
        read_by_ms: It was not read later.
        order: Commands with a lower number were read earlier, or in the same batch; None if that is not known.
        state: See above.
    """

    at: int
    schedule_id: str | None
    is_cancel: bool
    version: Version | None
    seq_given: bool
    due_ms: int | None
    release_ms: int | None
    content: tuple[str | None, bytes | None, bytes | None, Headers]
    max_lateness_ms: int | None
    read_from_ms: float
    read_by_ms: float
    order: int | None
    state: str

    @property
    def seq(self) -> int | None:
        """Its ``seq``."""
        return None if self.version is None else self.version.seq


@dataclass(slots=True)
class Release:
    """A released row: fired, or in the rejects as missed or undeliverable. `unknown`: columns that its frame lacks."""

    how: str
    unknown: frozenset[str]
    schedule_id: str | None
    seq: int | None
    at_ms: int
    due_ms: int | None
    content: tuple[str | None, bytes | None, bytes | None, Headers]
    fire_id: str | None
    lateness_ms: int | None
    scheduled_ms: int | None
    level_error_ms: int | None
    delivered_ms: int | None
    table: str | None
    repeatable: bool


@dataclass(slots=True)
class Refusal:
    """A row of the rejects."""

    schedule_id: str | None
    seq: int | None
    code: str
    message: str
    repeatable: bool


def commands_of(frame: Frame, rules: Rules) -> list[Command]:
    """Reads the input."""
    columns = Columns(frame, ("schedule_id",), "commands")
    made = columns.instants("event_time", up=False)
    by = columns.instants("read_by", up=True)
    late = rules.read_within_ms
    if late is not None:
        by = [
            each if each is not None or type(at) is not int else at + late
            for each, at in zip(by, made, strict=True)
        ]
    order = columns.whole("batch")
    if rules.in_order and not columns.has("batch"):
        order = list(range(columns.rows))
    rows = zip(
        range(columns.rows), columns.texts("schedule_id"), columns.texts("op"), columns.whole("seq"),
        columns.whole("source_seq"), columns.whole("amend"), made, columns.instants("deliver_at", up=True),
        columns.texts("delay"), columns.texts("max_lateness"), columns.texts("destination"), columns.octets("key"),
        columns.octets("value"), columns.headers("headers"), columns.instants("read_from", up=False), by, order,
        columns.values("_corrupt_record"), strict=True,
    )  # fmt: skip
    return [_command(row, rules) for row in rows]


def _command(row: tuple[Any, ...], rules: Rules) -> Command:
    at, name, op, seq, source_seq, amend, made, deliver_at, delay, max_lateness, *rest = row
    target, key, value, headers, read_from, read_by, order, corrupt = rest
    word = "" if op is None else op.strip(" \t\r\n").upper() if op is not UNREADABLE else "?"
    is_cancel = _OPS.get(word, False)
    target = rules.default_destination if target is None else target
    lateness = rules.max_lateness_ms if max_lateness is None else texts.duration_ms(max_lateness)
    due = _due_ms(deliver_at, delay, made)
    bad = corrupt is not None or word not in _OPS or _is_bad_id(name) or UNREADABLE in (seq, made)
    if not is_cancel:
        bad = bad or (deliver_at is None) == (delay is None) or target is None or not _is_name(target)
        bad = bad or (lateness or 0) < 0
    unclear = not is_cancel and (due is None or (max_lateness is not None and lateness is None))
    release, beyond = _release_ms(due, made, rules.levels_ms)
    version = next((each for each in (seq, source_seq, made) if each is not None), None)
    return Command(
        at=at,
        schedule_id=_named(name),
        is_cancel=is_cancel,
        version=None if version in (None, UNREADABLE) else Version(version, is_cancel, amend or 0),
        seq_given=seq is not None,
        due_ms=None if is_cancel else due,
        release_ms=None if is_cancel else release,
        content=(target, key, value, headers),
        max_lateness_ms=lateness,
        read_from_ms=NEVER if read_from is None else read_from,
        read_by_ms=ANY_TIME if read_by is None else read_by,
        order=order,
        state=BAD if bad else OPEN if unclear or (beyond and not is_cancel) else GOOD,
    )


def _due_ms(deliver_at: Any, delay: str | None, made: Any) -> int | None:
    if delay is None:
        return deliver_at if type(deliver_at) is int else None
    delay_ms = texts.duration_ms(delay)
    return None if delay_ms is None or type(made) is not int else made + delay_ms


def _release_ms(due: int | None, made: Any, levels: tuple[int, ...]) -> tuple[int | None, bool]:
    """When the wheel releases it, and whether its delay is beyond the last level, where the job's policy decides."""
    if due is None or not levels:
        return due, False
    if type(made) is not int:
        return None, True
    if due <= made:
        return due, False
    at = bisect_left(levels, due - made)
    return (made + levels[-1], True) if at == len(levels) else (made + levels[at], False)


def _is_bad_id(name: Any) -> bool:
    return name in (None, "", UNREADABLE) or "\0" in name or len(name.encode(errors="replace")) > 512


def _named(name: Any) -> str | None:
    return None if name is UNREADABLE or name is None else name[:512]


def _is_name(target: Any) -> bool:
    return isinstance(target, str) and _NAME.fullmatch(target) is not None and target not in (".", "..")


_COMPARED: Final = ("destination", "key", "value", "headers")


def releases_of(frame: Frame, rules: Rules) -> list[Release]:
    """Reads fired rows."""
    columns = Columns(frame, ("schedule_id", "seq", "deliver_at", "fired_at"), "fired rows")
    rows = _releases(columns, columns.instants("fired_at", up=False), FIRED, rules)
    return list(rows)


def rejects_of(frame: Frame, rules: Rules) -> tuple[list[Release], list[Refusal]]:
    """Reads the rejects: what was released and missed or could not be delivered, and what was refused."""
    columns = Columns(frame, ("schedule_id", "error_code"), "rejects")
    codes = columns.texts("error_code")
    at = columns.instants("rejected_at", up=False)
    released = [
        row
        for how in (MISSED, UNDELIVERABLE)
        for row, code in zip(_releases(columns, at, how, rules), codes, strict=True)
        if code == how
    ]
    names, seqs, messages = columns.texts("schedule_id"), columns.whole("seq"), columns.texts("error_message")
    rows = zip(names, seqs, codes, messages, _repeatable(columns, rules), strict=True)
    refused = [
        Refusal(_named(name), seq, code or "", message or "", again)
        for name, seq, code, message, again in rows
    ]
    return released, refused


def _repeatable(columns: Columns, rules: Rules) -> list[bool]:
    known = columns.values("at_least_once")
    return [rules.at_least_once if each is None else bool(each) for each in known]


def _releases(columns: Columns, at: list[Any], how: str, rules: Rules) -> Iterator[Release]:
    unknown = frozenset(name for name in (*_COMPARED, "deliver_at", "fire_id") if not columns.has(name))
    names = [_named(name) for name in columns.texts("schedule_id")]
    instants = [at_ms if type(at_ms) is int else 0 for at_ms in at]
    contents = zip(
        columns.texts("destination"), columns.octets("key"), columns.octets("value"), columns.headers("headers"),
        strict=True,
    )  # fmt: skip
    rows = zip(
        names, columns.whole("seq"), instants, columns.instants("deliver_at", up=True), contents,
        columns.texts("fire_id"), columns.whole("lateness_ms"), columns.instants("scheduled_at", up=True),
        columns.whole("level_error_ms"), columns.instants("delivered_at", up=False), columns.texts("table"),
        _repeatable(columns, rules), strict=True,
    )  # fmt: skip
    return (Release(how, unknown, *row) for row in rows)
