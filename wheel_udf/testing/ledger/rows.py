"""Frames to records: commands (:class:`Command`), released rows (:class:`Release`), refusals (:class:`Refusal`).

Here the command contract is read, independently of the product: which commands are certainly bad, the default of
``seq``, due times from ``delay``, delay levels, the terms of series. A command is in one of four states::

    GOOD      keeps to the contract; nothing in the rejects can be it
    OPEN      may have been refused: it is unclear, or a row of the rejects may be it or another one
    REFUSED   is in the rejects
    BAD       breaks the contract: it must be in the rejects

A released row has one of four fates::

    FIRED           in a table or topic
    MISSED          in the rejects: later than its max_lateness, or an occurrence that was dropped
    UNDELIVERABLE   in the rejects: its sink refused it
    DEAD            a dead letter: a row with ``dead_at``, or in the rejects
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from wheel_udf.common.errors import ContractError
from wheel_udf.testing.ledger import texts
from wheel_udf.testing.ledger.columns import UNREADABLE, Columns, Frame, Headers
from wheel_udf.testing.ledger.rules import Rules
from wheel_udf.testing.ledger.terms import TERMS, Terms, terms_of

GOOD, OPEN, REFUSED, BAD = "good", "open", "refused", "bad"
FIRED, MISSED, UNDELIVERABLE, DEAD = "fired", "missed", "undeliverable", "dead"
SCHEDULE, CANCEL, FIRE_NOW, RETRY = "SCHEDULE", "CANCEL", "FIRE_NOW", "RETRY"
DEAD_LETTER: Final = "dead_letter"
"""The code of a dead letter in the rejects."""
NEVER: Final = float("-inf")
ANY_TIME: Final = float("inf")

_OPS: Final = {"": SCHEDULE, "REPLACE": SCHEDULE, **{op: op for op in (SCHEDULE, CANCEL, FIRE_NOW, RETRY)}}
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
        op: SCHEDULE, CANCEL, FIRE_NOW or RETRY. The last two are no versions of their id.
        version: None if its ``seq`` is not known.
        seq_given: Whether it has a ``seq`` of its own.
        due_ms: The requested due time; None for a CANCEL or a series, or not known.
        release_ms: When the wheel is to release it: later than `due_ms` with delay levels.
        spread_ms: How much later than that it may be, with ``spread``.
        content: (destination, key, value, headers).
        max_lateness_ms: None for none.
        read_from_ms: It was not read earlier.
        read_by_ms: It was not read later.
        order: Commands with a lower number were read earlier, or in the same batch; None if that is not known.
        state: See above.
        repeats: Whether it is a series.
        terms: Those of a series; None if they cannot be read.
        fire_from_ms: A FIRE_NOW may have released it from then on.
        fire_by_ms: A FIRE_NOW has released it by then, if it was pending.
    """

    at: int
    schedule_id: str | None
    op: str
    version: Version | None
    seq_given: bool
    due_ms: int | None
    release_ms: int | None
    spread_ms: int
    content: tuple[str | None, bytes | None, bytes | None, Headers]
    max_lateness_ms: int | None
    read_from_ms: float
    read_by_ms: float
    order: int | None
    state: str
    repeats: bool = False
    terms: Terms | None = None
    fire_from_ms: float = ANY_TIME
    fire_by_ms: float = ANY_TIME

    @property
    def is_cancel(self) -> bool:
        """Whether it is a CANCEL."""
        return self.op == CANCEL

    @property
    def is_schedule(self) -> bool:
        """Whether it is a SCHEDULE or REPLACE."""
        return self.op == SCHEDULE

    @property
    def soonest_ms(self) -> float | None:
        """When it can have been released at the earliest; None if that is not known."""
        return None if self.release_ms is None else min(self.release_ms, self.fire_from_ms)

    @property
    def latest_ms(self) -> float | None:
        """When it was due for certain; None if that is not known."""
        return None if self.release_ms is None else min(self.release_ms + self.spread_ms, self.fire_by_ms)

    @property
    def seq(self) -> int | None:
        """Its ``seq``."""
        return None if self.version is None else self.version.seq


@dataclass(slots=True)
class Release:
    """A released row.

    Attributes:
        how: Its fate, see above.
        unknown: Columns that its frame lacks.
        due_ms: Its ``deliver_at``; of a series, the nominal time of the occurrence.
        attempt: Which attempt it is; None without retries.
        occurrence: Which occurrence of its series it is; None of others, or where that is not known.
        missed_before: How many occurrences right before it were missed; likewise.
    """

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
    attempt: int | None
    occurrence: int | None
    missed_before: int | None

    @property
    def is_again(self) -> bool:
        """Whether it is an attempt after the first one."""
        return self.attempt is not None and self.attempt > 1


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
        columns.values("_corrupt_record"), columns.texts("spread"), _terms(columns), strict=True,
    )  # fmt: skip
    return [_command(row, rules) for row in rows]


def _terms(columns: Columns) -> list[dict[str, Any]]:
    """The columns of series, by row."""
    if not any(columns.has(name) for name in TERMS):
        return [dict.fromkeys(TERMS)] * columns.rows
    names = ("repeat", "time_zone", "on_missed", "on_gap", "on_fold")
    found = {name: columns.texts(name) for name in names} | {"count": columns.whole("count")}
    found |= {name: columns.instants(name, up=name == "starts_at") for name in ("starts_at", "until")}
    return [dict(zip(TERMS, row, strict=True)) for row in zip(*(found[name] for name in TERMS), strict=True)]


def _command(row: tuple[Any, ...], rules: Rules) -> Command:
    at, name, op, seq, source_seq, amend, made, deliver_at, delay, max_lateness, *rest = row
    target, key, value, headers, read_from, read_by, order, corrupt, spread, series = rest
    word = "" if op is None else op.strip(" \t\r\n").upper() if op is not UNREADABLE else "?"
    kind = _OPS.get(word, SCHEDULE)
    is_schedule, repeats = kind == SCHEDULE, kind == SCHEDULE and series["repeat"] is not None
    target = rules.default_destination if target is None else target
    lateness = rules.max_lateness_ms if max_lateness is None else texts.duration_ms(max_lateness)
    window = 0 if spread is None else texts.duration_ms(spread)
    due = _due_ms(deliver_at, delay, made)
    bad = corrupt is not None or word not in _OPS or _is_bad_id(name) or seq is UNREADABLE
    starts: list[bool] = []
    if is_schedule:
        starts = [deliver_at is not None, delay is not None, series["starts_at"] is not None]
        bad = bad or sum(starts) > 1 or not (repeats or any(starts[:2])) or target is None
        bad = bad or not _is_name(target) or (lateness or 0) < 0 or not 0 <= (window or 0) <= _WIDEST_MS
        bad = bad or (
            not repeats and any(series[each] is not None for each in ("starts_at", "until", "count"))
        )
    begins = due if due is not None else series["starts_at"]
    terms = (
        terms_of(series, begins, made, rules.time_zone)
        if repeats and not (any(starts) and begins is None)
        else None
    )
    is_known = terms is not None if repeats else due is not None
    unclear = is_schedule and (
        not is_known or window is None or (max_lateness is not None and lateness is None)
    )
    # Forms that the job reads and this checker does not.
    unclear = unclear or made is UNREADABLE
    release, beyond = (None, False) if repeats else _release_ms(due, made, rules.levels_ms)
    version = next((each for each in (seq, source_seq, made) if each is not None), None)
    is_open = unclear or kind == RETRY or (beyond and is_schedule)
    return Command(
        at=at,
        schedule_id=_named(name),
        op=kind,
        version=None if version in (None, UNREADABLE) else Version(version, kind == CANCEL, amend or 0),
        seq_given=seq is not None,
        due_ms=due if is_schedule and not repeats else None,
        release_ms=release if is_schedule and window is not None else None,
        spread_ms=max((window or 0) - 1, 0),
        content=(target, key, value, headers),
        max_lateness_ms=lateness,
        read_from_ms=NEVER if read_from is None else read_from,
        read_by_ms=ANY_TIME if read_by is None else read_by,
        order=order,
        state=OPEN if kind == RETRY else BAD if bad else OPEN if is_open else GOOD,
        repeats=repeats,
        terms=terms,
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


_WIDEST_MS: Final = 366 * 86_400_000
"""The widest ``spread``."""


def _is_bad_id(name: Any) -> bool:
    return name in (None, "", UNREADABLE) or "\0" in name or len(name.encode(errors="replace")) > 512


def _named(name: Any) -> str | None:
    return None if name is UNREADABLE or name is None else name[:512]


def _is_name(target: Any) -> bool:
    return isinstance(target, str) and _NAME.fullmatch(target) is not None and target not in (".", "..")


_PASSED_OVER: Final = re.compile(r"occurrences that were over: (\d+)")
_COMPARED: Final = ("destination", "key", "value", "headers")


def releases_of(frame: Frame, rules: Rules) -> list[Release]:
    """Reads fired rows, and the dead letters among them."""
    columns = Columns(frame, ("schedule_id", "seq", "deliver_at"), "fired rows")
    if columns.rows and not columns.has("fired_at") and not columns.has("dead_at"):
        raise ContractError("fired rows lack a column: fired_at", field="fired_at", rule="required")
    fired, dead = (columns.instants(name, up=False) for name in ("fired_at", "dead_at"))
    rows = _releases(columns, [one or other for one, other in zip(dead, fired, strict=True)], FIRED, rules)
    return [_as_dead(row, origin) if at is not None else row
            for row, at, origin in zip(rows, dead, columns.texts("origin"), strict=True)]  # fmt: skip


def _as_dead(row: Release, origin: str | None) -> Release:
    """A dead letter as a delivery to the destination that it was for."""
    to = row.content[0] if origin is None else origin
    return replace(row, how=DEAD, content=(to, *row.content[1:]), table=None, attempt=None)


def rejects_of(frame: Frame, rules: Rules) -> tuple[list[Release], list[Refusal]]:
    """Reads the rejects: what was released and is there for another reason, and what was refused."""
    columns = Columns(frame, ("schedule_id", "error_code"), "rejects")
    codes, messages = columns.texts("error_code"), columns.texts("error_message")
    at = columns.instants("rejected_at", up=False)
    released = [
        row if how != MISSED else replace(row, missed_before=_missed_before(message))
        for how, said in ((MISSED, MISSED), (UNDELIVERABLE, UNDELIVERABLE), (DEAD, DEAD_LETTER))
        for row, code, message in zip(_releases(columns, at, how, rules), codes, messages, strict=True)
        if code == said
    ]
    names, seqs = columns.texts("schedule_id"), columns.whole("seq")
    rows = zip(names, seqs, codes, messages, _repeatable(columns, rules), strict=True)
    refused = [
        Refusal(_named(name), seq, code or "", message or "", again)
        for name, seq, code, message, again in rows
    ]
    return released, refused


def _missed_before(message: Any) -> int | None:
    """How many occurrences a row of the rejects stands for beside its own; None if it is of no series."""
    found = _PASSED_OVER.match(message) if isinstance(message, str) else None
    return None if found is None else int(found[1]) - 1


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
        _repeatable(columns, rules), columns.whole("attempt"), columns.whole("occurrence"),
        columns.whole("missed_before"), strict=True,
    )  # fmt: skip
    return (Release(how, unknown, *row) for row in rows)
