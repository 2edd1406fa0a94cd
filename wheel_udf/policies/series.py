"""Series: entries that repeat. Implements the policy :class:`wheel_udf.wheel.policies.Repeat`; and finds the first
occurrence of a new series (:func:`begin`).

A series is one entry; its requested time is the nominal time of its next occurrence. When the clock has passed it, the
occurrence is released, and the entry waits for the next one after the *nominal* time: there is no drift::

    every 15 minutes, the clock stands still from 10:01 to 11:05      due: 10:15, 10:30, 10:45, 11:00

    on_missed    released at 11:05                    dropped                  waits for
    latest       11:00, with missed_before = 3        in that number           11:15
    all          10:15, 10:30, 10:45, 11:00           what is above `most`     11:15
    none         nothing                              4                        11:15

What is *missed*: an occurrence after which another one was due already. With ``none`` the newest one is released
all the same if it is on time: within ``max_lateness``, or, without one, within a tick of the wheel. ``max_lateness``
holds for each occurrence that is released, as for any entry.

A new version of a series goes on where the old one stands, whether both are read in one batch or not, so that the
occurrence at the boundary comes once::

    the old one                              the new one begins after
    waits for P, which is not after the      P - 1 ms, if it has no beginning of its own: that occurrence is the new
    event time of the new one                one's, if its rule has it
    has released L, or begun after it        L, if that is after its own beginning: nothing comes twice

A period without a beginning of its own keeps the phase of the old one if the rule is the same. Of another period the
first occurrence is one period after the event. A new version that has no occurrence any more ends the series; a series
of an unknown id that never has one is refused.

Cost: the instants of a rule are computed once for all series that have it (:mod:`wheel_udf.recurrence.occurrences`); a
loop over the distinct texts of rules, none over the entries.

Caveats: the instants depend on the data of the time zones. A batch that is repeated by a machine with other data may
find others. Of more than 100,000 occurrences of a series in one step no more are counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.arrays import Bools, Int64s, before_in_run
from wheel_udf.common.command_facts import ON_FOLD, ON_GAP, ON_MISSED
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.geometry import INT64_MAX, Wheel
from wheel_udf.recurrence.local_times import NEVER
from wheel_udf.recurrence.occurrences import Occurrences, occurrences_of
from wheel_udf.recurrence.rule import Kind
from wheel_udf.shard.rows import SCHEDULE, asked_ms, with_columns
from wheel_udf.shard.state import ShardState
from wheel_udf.wheel.known import NOTHING, PENDING, Known, look_up
from wheel_udf.wheel.policies import Firings
from wheel_udf.wheel.version_order import in_version_order, is_later, order_of, rank_of

LATEST, ALL, NONE = ON_MISSED
_MANY: Final = 65_536
_ANY_WHEEL: Final = Wheel(tick_ms=1_000, size=20, levels=1)
Core = tuple[str, str, str, str]


@dataclass(frozen=True)
class SeriesRule:
    """What the column ``repeat`` of an entry says.

    Attributes:
        core: Rule, zone, and the policies of gaps and folds: what decides the instants.
        occurrences: The instants.
        until_ms: No occurrence is after it.
        count: How many occurrences there are.
        on_missed: One of :data:`~wheel_udf.common.command_facts.ON_MISSED`.
        most: Most occurrences that are released late with ``all``.
    """

    core: Core
    occurrences: Occurrences
    until_ms: int
    count: int
    on_missed: str
    most: int


@lru_cache(maxsize=_MANY)
def rule_of(text: str) -> SeriesRule:
    """Reads the column ``repeat`` of an entry.

    Raises:
        ConfigError: The rule or its zone is none.
    """
    told: dict[str, Any] = json.loads(text)
    core = told["repeat"], told["time_zone"], told.get("on_gap", ON_GAP[0]), told.get("on_fold", ON_FOLD[0])
    occurrences = occurrences_of(*core)
    counts = [each for each in (told.get("count"), occurrences.rule.count) if each is not None]
    return SeriesRule(
        core,
        occurrences,
        told.get("until_ms", INT64_MAX),
        min(counts, default=INT64_MAX),
        told.get("on_missed", LATEST),
        told.get("most", INT64_MAX),
    )


def upcoming(text: str, nominal_ms: int, anchor_ms: int, occurrence: int, most: int) -> list[int]:
    """Returns the nominal times of the occurrences that a series waits for, the next one first.

    Args:
        text: The column ``repeat`` of its entry.
        nominal_ms: The nominal time of the next one.
        anchor_ms: The entry's anchor.
        occurrence: How many it has had.
        most: How many at most.

    Raises:
        ConfigError: The rule or its zone is none.
    """
    rule = rule_of(text)
    most = min(most, rule.count - occurrence)
    more = rule.occurrences.between(nominal_ms, rule.until_ms, anchor_ms, most - 1) if most > 1 else ()
    return [nominal_ms, *map(int, more)][: max(most, 0)]


def faults_of(texts: pa.Array) -> pa.Table:
    """Returns those texts of the column ``repeat`` that are no rules, each with the reason that :func:`begin` gives.

    Args:
        texts: Without nulls.

    Returns:
        ``repeat`` and ``reason`` (JSON).
    """
    texts = pc.unique(texts)
    faults, _ = _read(texts)
    reasons = [_reason_of(fault) for fault in faults.values()]
    wrong = texts.take(pa.array(list(faults), pa.int64()))
    return pa.table({"repeat": wrong, "reason": pa.array(reasons, pa.string())})


def first_occurrences(commands: pa.Table) -> pa.Table:
    """Gives new series their first occurrence as if nothing was known of their ids.

    Args:
        commands: New series, ``COMMAND_SCHEMA``.

    Returns:
        Those that have one.
    """
    begun, _ = begin(commands, ShardState.empty(_ANY_WHEEL))
    asked: Int64s = asked_ms(begun).to_numpy()
    return begun.filter(pa.array((asked > begun["last_ms"].to_numpy()) & (asked != NEVER)))


@dataclass(frozen=True)
class _Group:
    """Rows of series whose instants and policy are the same.

    Attributes:
        rule: The rule of one of them, for its instants and its policy.
        rows: The rows, int64[n].
        until_ms: Of each row, int64[n].
        count: Likewise.
    """

    rule: SeriesRule
    rows: Int64s
    until_ms: Int64s
    count: Int64s


def _grouped(texts: pa.ChunkedArray) -> list[_Group]:
    """Groups rows by what their column ``repeat`` (without nulls) says."""
    encoded = pc.dictionary_encode(texts).combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0)
    codes = encoded.indices.to_numpy().astype(np.int64)
    groups: dict[tuple[Core, str, int], int] = {}
    rules: list[SeriesRule] = []
    group_of = np.full(len(encoded.dictionary), -1, np.int64)
    until_ms, count = np.zeros((2, len(encoded.dictionary)), np.int64)
    for code, text in enumerate(encoded.dictionary.to_pylist()):
        rule = rule_of(text)
        number = groups.setdefault((rule.core, rule.on_missed, rule.most), len(rules))
        if number == len(rules):
            rules.append(rule)
        group_of[code], until_ms[code], count[code] = number, rule.until_ms, rule.count
    of_row = group_of[codes]
    order = np.argsort(of_row, kind="stable")
    ends = np.searchsorted(of_row[order], np.arange(len(rules) + 1))
    return [
        _Group(
            rule, rows := order[ends[number] : ends[number + 1]], until_ms[codes[rows]], count[codes[rows]]
        )
        for number, rule in enumerate(rules)
    ]


# ---- begin ---------------------------------------------------------------------------------------


def begin(
    commands: pa.Table, state: ShardState, now_ms: int | None = None, memory_ms: int | None = None
) -> tuple[pa.Table, pa.Table | None]:
    """Gives new series their first occurrence.

    Args:
        commands: Commands (``COMMAND_SCHEMA``). Those of series without a due time are new ones.
        state: The shard before the batch.
        now_ms: The clock of the batch; None for that of the state.
        memory_ms: How long an ended id is remembered; None for ever.

    Returns:
        The commands with due times, and those that were refused, with their reason (JSON) in the column ``reject``;
        None for none.
    """
    is_new = _is_new(commands)
    if not is_new.any():
        return commands, None
    clock_ms = state.clock_ms or 0 if now_ms is None else now_ms
    ids = pc.unique(commands["schedule_id"].filter(pa.array(is_new)))
    at = np.flatnonzero(pc.is_in(commands["schedule_id"], value_set=ids).to_numpy())
    part = commands.take(pa.array(at)).combine_chunks()
    known = look_up(state, ids, clock_ms, memory_ms)
    chain = _Chain(part, pc.index_in(part["schedule_id"], value_set=ids), known, state)
    for rows in chain.rounds():
        chain.follow(rows)
    new = np.flatnonzero(is_new[at])
    reasons = chain.reasons(new, known)
    is_good = np.array([reason is None for reason in reasons], bool)
    placed = chain.placed(new[is_good], clock_ms)
    refused = part.take(pa.array(new[~is_good])).append_column(
        "reject", pa.array([reason for reason in reasons if reason is not None], pa.string())
    )
    begun = pa.concat_tables([commands.filter(pa.array(~is_new)), placed])
    return begun, refused if refused.num_rows else None


def _is_new(commands: pa.Table) -> Bools:
    if commands["repeat"].null_count == commands.num_rows:
        return np.zeros(commands.num_rows, bool)
    is_new = pc.and_(commands["repeat"].is_valid(), commands["deliver_at_ms"].is_null()).to_numpy()
    return np.asarray(is_new & (commands["op"].to_numpy() == SCHEDULE), bool)


class _Chain:
    """The commands of some ids, one after the other in version order, and the series that each of them leaves.

    Arrays by code of an id: `due_ms` is the nominal time for which the series waits (``NEVER`` for none), `last_ms` and
    `anchor_ms` are those of its entry, `core` is that of its rule. Arrays by row: `first_ms`, `begin_ms`, `anchor`,
    `number`.
    """

    def __init__(self, commands: pa.Table, code: pa.Array, known: Known, state: ShardState) -> None:
        self.commands = commands
        self.code: Int64s = code.to_numpy().astype(np.int64)
        self.seq = commands["seq"].to_numpy()
        self.rank = order_of(rank_of(commands["amend"].to_numpy(), commands["op"].to_numpy()))
        self.is_series = commands["repeat"].is_valid().to_numpy() & (commands["op"].to_numpy() == SCHEDULE)
        self._event_ms: Int64s = commands["last_ms"].fill_null(0).to_numpy()
        self.anchor: Int64s = commands["anchor_ms"].fill_null(0).to_numpy().copy()
        # An act that skips the first occurrence begins after it, where its rule begins.
        self._own = (self._event_ms != self.anchor) | commands["occurrence"].is_valid().to_numpy()
        self.first_ms, self.begin_ms = np.full(len(self.code), NEVER, np.int64), self._event_ms.copy()
        self.number: Int64s = commands["occurrence"].fill_null(0).to_numpy().copy()  # of acts that skip
        self.faults, self._cores = _read(commands["repeat"].combine_chunks())
        self._is_bad = np.array([row in self.faults for row in range(len(self.code))], bool)
        self.is_live = np.zeros(len(self.code), bool)
        self._is_known, self._seq, self._rank = known.status != NOTHING, known.seq, order_of(known.rank)
        size = len(known.status)
        self._due_ms, self._last_ms, self._anchor_ms = (
            np.full(size, NEVER, np.int64),
            *np.zeros((2, size), np.int64),
        )
        self._core: list[Core | None] = [None] * size
        self._take_pending(known, state)

    def _take_pending(self, known: Known, state: ShardState) -> None:
        """Starts with the series that wait."""
        pending = np.flatnonzero(known.status == PENDING)
        names = ("deliver_at_ms", "level_error_ms", "held_ms", "repeat", "last_ms", "anchor_ms")
        for number in np.unique(known.chunk[pending]).tolist():
            codes = pending[known.chunk[pending] == number]
            old = state.entry_chunks[number].table("schedule_id", *names).take(pa.array(known.row[codes]))
            is_series = old["repeat"].is_valid().to_numpy()
            codes, old = codes[is_series], old.filter(pa.array(is_series))
            self._due_ms[codes] = asked_ms(old).to_numpy()
            self._last_ms[codes], self._anchor_ms[codes] = (
                old["last_ms"].to_numpy(),
                old["anchor_ms"].to_numpy(),
            )
            for code, text in zip(codes.tolist(), old["repeat"].to_pylist(), strict=True):
                self._core[code] = rule_of(text).core

    def rounds(self) -> Iterator[Int64s]:
        """The first command of each id, then the second of each, and so on."""
        # In the order in which the fold takes copies of one version.
        order = in_version_order(self.commands, self.code).at
        order = order[~self._is_bad[order]]
        place = before_in_run(np.ones(len(order), bool), self.code[order])
        by_place = np.argsort(place, kind="stable")
        ends = np.flatnonzero(np.r_[np.diff(place[by_place]) != 0, True]) + 1
        for begin_at, end in pairwise([0, *ends.tolist()]):
            yield order[by_place[begin_at:end]]

    def follow(self, rows: Int64s) -> None:
        """Applies commands of different ids; those that a known version beats change nothing."""
        code = self.code[rows]
        known = (self._seq[code], self._rank[code])
        rows = rows[~self._is_known[code] | is_later((self.seq[rows], self.rank[rows]), known)]
        code = self.code[rows]
        self.is_live[rows] = True
        self._is_known[code], self._seq[code], self._rank[code] = True, self.seq[rows], self.rank[rows]
        is_series = self.is_series[rows]
        self._due_ms[code[~is_series]] = NEVER
        rows, code = rows[is_series], code[is_series]
        has_due = self.commands["deliver_at_ms"].is_valid().to_numpy()[rows]  # acts
        self._begin(rows[~has_due])
        acted = self.commands.take(pa.array(rows[has_due]))
        self.first_ms[rows[has_due]] = asked_ms(acted).to_numpy()
        self._due_ms[code], self._last_ms[code] = self.first_ms[rows], self.begin_ms[rows]
        self._anchor_ms[code] = self.anchor[rows]
        for row, each in zip(rows.tolist(), code.tolist(), strict=True):
            self._core[each] = self._cores[row]

    def _begin(self, rows: Int64s) -> None:
        """Finds the first occurrence of new series."""
        if not len(rows):
            return
        for group in _grouped(self.commands["repeat"].take(pa.array(rows))):
            self._begin_group(group, rows[group.rows])

    def _begin_group(self, group: _Group, rows: Int64s) -> None:
        code, event_ms, rule = self.code[rows], self._event_ms[rows], group.rule.occurrences.rule
        waits = self._due_ms[code] != NEVER
        same = waits & np.array([self._core[each] == group.rule.core for each in code.tolist()], bool)
        goes_on = same & ~self._own[rows]
        anchor = np.where(goes_on, self._anchor_ms[code], self.anchor[rows])
        if rule.starts_ms is not None:
            anchor = np.full(len(rows), rule.starts_ms)
        has_due = waits & (self._due_ms[code] <= event_ms) & ~self._own[rows]
        if rule.is_anchored and rule.starts_ms is None:
            has_due &= same
        after_last = np.where(waits, np.maximum(event_ms, self._last_ms[code]), event_ms)
        begin_ms = np.where(has_due, self._due_ms[code] - 1, after_last)
        first_ms = group.rule.occurrences.after(begin_ms, anchor)
        if rule.starts_ms is not None and rule.count is not None:
            before = np.full(len(rows), rule.starts_ms - 1)
            number = group.rule.occurrences.upto(before, begin_ms, anchor)[0]
            self.number[rows] = np.maximum(self.number[rows], number)
        is_over = (first_ms > group.until_ms) | (self.number[rows] >= group.count)
        self.first_ms[rows] = np.where(is_over, NEVER, first_ms)
        self.begin_ms[rows], self.anchor[rows] = begin_ms, anchor

    def reasons(self, rows: Int64s, known: Known) -> list[str | None]:
        """Why each of some new series is refused, as JSON; None if it is not."""
        has_none = (
            self.is_series & self.commands["deliver_at_ms"].is_null().to_numpy() & (self.first_ms == NEVER)
        )
        others = np.bincount(self.code[~(self._is_bad | has_none)], minlength=len(known.status))
        unknown = ((others == 0) & (known.status == NOTHING))[self.code[rows]] & has_none[rows]
        found: list[str | None] = []
        for row, is_refused in zip(rows.tolist(), unknown.tolist(), strict=True):
            if row in self.faults:
                found.append(_reason_of(self.faults[row]))
            else:
                found.append(_no_occurrence(self._cores[row]) if is_refused else None)
        return found

    def placed(self, rows: Int64s, clock_ms: int) -> pa.Table:
        """New series as commands that wait for their first occurrence.

        One without any is over when it is read. What the fold drops has the last due time of all, so that no copy of a
        version is kept in place of the first one.
        """
        entries = self.commands.take(pa.array(rows))
        is_over = self.first_ms[rows] == NEVER
        nominal_ms = np.where(is_over, np.minimum(self.begin_ms[rows], clock_ms), self.first_ms[rows])
        begin_ms = np.where(is_over, nominal_ms, self.begin_ms[rows])
        nominal_ms = np.where(self.is_live[rows], nominal_ms, NEVER)
        spread_ms = np.where(is_over, 0, entries["spread_ms"].fill_null(0).to_numpy())
        return _placed(entries, nominal_ms, begin_ms, self.number[rows], self.anchor[rows], spread_ms)


def _read(texts: pa.Array) -> tuple[dict[int, ConfigError], list[Core | None]]:
    """Reads a column ``repeat``: what is wrong with a row, by the row, and the cores of the others; None of none."""
    faults: dict[int, ConfigError] = {}
    cores: list[Core | None] = []
    for row, text in enumerate(texts.to_pylist()):
        core = None
        try:
            core = rule_of(text).core if text is not None else None
        except ConfigError as fault:
            faults[row] = fault
        cores.append(core)
    return faults, cores


def _placed(
    entries: pa.Table,
    nominal_ms: Int64s,
    last_ms: Int64s,
    occurrence: Int64s,
    anchor_ms: Int64s | None = None,
    spread_ms: Int64s | None = None,
) -> pa.Table:
    """Entries of series that wait for other occurrences."""
    if spread_ms is None:
        spread_ms = entries["spread_ms"].fill_null(0).to_numpy()
    columns = {
        "deliver_at_ms": pa.array(nominal_ms + spread_ms),
        "level_error_ms": pa.array(spread_ms, mask=spread_ms == 0),
        "last_ms": pa.array(last_ms),
        "occurrence": pa.array(occurrence),
    }
    if anchor_ms is not None:
        columns["anchor_ms"] = pa.array(anchor_ms)
    return with_columns(entries, **columns)


def _reason_of(fault: ConfigError) -> str:
    return _reason(f"bad_{fault.field}", str(fault))


def _reason(code: str, message: str) -> str:
    return json.dumps({"error_code": code, "error_message": message})


def _no_occurrence(core: Core | None) -> str:
    repeat = "" if core is None else core[0]
    rule = "rule: at least one after its beginning and before until"
    return _reason("no_occurrence", f"a series without an occurrence: repeat = '{repeat}'; {rule}")


# ---- repeat --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Series:
    """The policy ``Repeat`` of the wheel.

    Attributes:
        tick_ms: The tick of the wheel.
    """

    tick_ms: int

    def plan(self, due: pa.Table, clock_ms: int) -> Firings:
        """As :meth:`wheel_udf.wheel.policies.Repeat.plan`."""
        nominal_ms: Int64s = asked_ms(due).to_numpy()
        is_series = due["repeat"].is_valid().to_numpy()
        found = _Plan(due.num_rows, nominal_ms)
        once = np.flatnonzero(~is_series)
        found.add(once, nominal_ms[once])
        last_ms = due["last_ms"].fill_null(INT64_MAX).to_numpy()
        # One that was begun without any occurrence is over.
        rows = np.flatnonzero(is_series & (nominal_ms > np.where(is_series, last_ms, nominal_ms)))
        columns = {
            name: due[name].fill_null(0).to_numpy() for name in ("anchor_ms", "spread_ms", "occurrence")
        } | {"nominal_ms": nominal_ms, "grace_ms": due["max_lateness_ms"].fill_null(-1).to_numpy()}
        for group in _grouped(due["repeat"].take(pa.array(rows))):
            chosen = rows[group.rows]
            self._plan_group(
                group, chosen, {name: each[chosen] for name, each in columns.items()}, clock_ms, found
            )
        return found.firings()

    def _plan_group(
        self, group: _Group, rows: Int64s, of: dict[str, Int64s], clock_ms: int, found: _Plan
    ) -> None:
        """Plans due entries whose instants and policy are the same."""
        occurrences, nominal_ms, anchor_ms = group.rule.occurrences, of["nominal_ms"], of["anchor_ms"]
        room = group.count - of["occurrence"]
        upto_ms = np.minimum(clock_ms - of["spread_ms"], group.until_ms)
        more, newest_ms = np.zeros(len(rows), np.int64), nominal_ms.copy()
        behind = np.flatnonzero(occurrences.after(nominal_ms, anchor_ms) <= upto_ms)
        more[behind], newest_ms[behind] = occurrences.upto(
            nominal_ms[behind], upto_ms[behind], anchor_ms[behind]
        )
        passed = np.minimum(1 + more, room)
        cut = np.flatnonzero(passed < 1 + more)  # the count ends before the clock
        rule = occurrences.rule
        if rule.kind == Kind.ELAPSED:
            newest_ms[cut] = nominal_ms[cut] + (passed[cut] - 1) * rule.size
        else:
            for same, some in _listed(group.rule, nominal_ms, anchor_ms, passed, cut):
                newest_ms[same] = some[-1] if len(some) else nominal_ms[same]
        next_ms = occurrences.after(newest_ms, anchor_ms)
        found.next_ms[rows] = np.where((next_ms <= group.until_ms) & (passed < room), next_ms, NEVER)
        found.last_ms[rows], found.passed[rows] = newest_ms, passed
        if group.rule.on_missed == ALL:
            self._plan_all(group.rule, rows, nominal_ms, anchor_ms, passed, newest_ms, found)
            return
        is_dropped = np.zeros(len(rows), bool)
        if group.rule.on_missed == NONE:
            late_ms = clock_ms - of["spread_ms"] - newest_ms
            grace_ms = np.where(of["grace_ms"] >= 0, of["grace_ms"], self.tick_ms)
            is_dropped = (passed > 1) & (late_ms > grace_ms)
        found.add(rows, newest_ms, passed - 1, nominal_ms, is_dropped)

    @staticmethod
    def _plan_all(
        rule: SeriesRule,
        rows: Int64s,
        nominal_ms: Int64s,
        anchor_ms: Int64s,
        passed: Int64s,
        newest_ms: Int64s,
        found: _Plan,
    ) -> None:
        fired = np.minimum(passed, rule.most)
        found.add(rows, nominal_ms)
        for same, some in _listed(rule, nominal_ms, anchor_ms, fired, np.flatnonzero(fired > 1)):
            found.add(np.repeat(rows[same], len(some)), np.tile(some, len(same)))
        over = np.flatnonzero(passed > fired)
        # What is dropped begins after the last one that is released.
        begin_ms = np.full(len(rows), NEVER, np.int64)
        for same, some in _listed(rule, nominal_ms, anchor_ms, fired + 1, over):
            begin_ms[same] = some[-1]
        found.add(
            rows[over], newest_ms[over], (passed - fired - 1)[over], begin_ms[over], np.ones(len(over), bool)
        )

    def going_on(self, due: pa.Table, plan: Firings, released: Int64s) -> tuple[pa.Table, Bools]:
        """As :meth:`wheel_udf.wheel.policies.Repeat.going_on`."""
        is_series = due["repeat"].is_valid().to_numpy()
        whole = is_series & (released == plan.planned(due.num_rows))
        ends = whole & (plan.next_ms == NEVER)
        goes_on = whole & ~ends
        before = due["occurrence"].fill_null(0).to_numpy()
        parts = [
            _placed(
                due.filter(pa.array(goes_on)),
                plan.next_ms[goes_on],
                plan.last_ms[goes_on],
                (before + plan.passed)[goes_on],
            )
        ]
        cut = is_series & ~whole & (released > 0)
        if cut.any():
            # Only firings with nothing dropped before them are released before others of their series.
            nominal_ms, last_ms = plan.around(released, cut)
            parts.append(_placed(due.filter(pa.array(cut)), nominal_ms, last_ms, (before + released)[cut]))
        return pa.concat_tables(parts), ends


def _listed(
    rule: SeriesRule, nominal_ms: Int64s, anchor_ms: Int64s, number: Int64s, rows: Int64s
) -> Iterator[tuple[Int64s, Int64s]]:
    """For some rows, the occurrences after the nominal one, `number` less one: rows that have the same, and these.

    Series that wait for the same occurrence of a rule have the same ones behind it.
    """
    if not len(rows):
        return
    anchors = anchor_ms[rows] * rule.occurrences.rule.is_anchored
    keys, place = np.unique(np.stack([nominal_ms[rows], anchors, number[rows]]), axis=1, return_inverse=True)
    order = np.argsort(place.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(place.ravel(), minlength=keys.shape[1])).tolist()
    for (nominal, anchor, many), (begin_at, end) in zip(keys.T.tolist(), pairwise([0, *ends]), strict=True):
        some = rule.occurrences.between(nominal, INT64_MAX, anchor, many - 1)
        yield rows[order[begin_at:end]], some


class _Plan:
    """:class:`Firings` in the making."""

    def __init__(self, size: int, nominal_ms: Int64s) -> None:
        self._parts: list[tuple[Int64s, Int64s, Int64s, Int64s, Bools]] = []
        self.next_ms, self.last_ms = np.full(size, NEVER, np.int64), nominal_ms.copy()
        self.passed = np.zeros(size, np.int64)

    def add(
        self,
        row: Int64s,
        nominal_ms: Int64s,
        missed_before: Int64s | None = None,
        begin_ms: Int64s | None = None,
        is_dropped: Bools | None = None,
    ) -> None:
        """Adds firings; see :class:`Firings`."""
        none = np.zeros(len(row), np.int64)
        self._parts.append(
            (
                row,
                nominal_ms,
                none if missed_before is None else missed_before,
                nominal_ms if begin_ms is None else begin_ms,
                none.astype(bool) if is_dropped is None else is_dropped,
            )
        )

    def firings(self) -> Firings:
        """The plan."""
        row, nominal_ms, missed_before, begin_ms, is_dropped = (
            np.concatenate(each) for each in zip(*self._parts, strict=True)
        )
        order = np.lexsort((nominal_ms, row))
        return Firings(
            row=row[order],
            nominal_ms=nominal_ms[order],
            missed_before=missed_before[order],
            begin_ms=begin_ms[order],
            is_dropped=is_dropped[order],
            next_ms=self.next_ms,
            last_ms=self.last_ms,
            passed=self.passed,
        )
