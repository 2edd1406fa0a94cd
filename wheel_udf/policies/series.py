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

A new version of a series that waits goes on where the old one stands, so that the occurrence at the boundary comes
once::

    the old one                             the new one begins after
    has an occurrence due at P, not         P - 1 ms, if P is not after its event time and it has no beginning of
    released yet                            its own: that occurrence is the new one's, if its rule has it
    has released L                          L, if that is after its own beginning: nothing comes twice

Cost: the instants of a rule are computed once for all series that have it (:mod:`wheel_udf.recurrence.occurrences`); a
loop over the distinct rules, none over the entries.

Caveat: the instants depend on the data of the time zones. A batch that is repeated by a machine with other data may
find others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.arrays import Bools, Int64s
from wheel_udf.common.command_facts import ON_FOLD, ON_GAP, ON_MISSED
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.geometry import INT64_MAX
from wheel_udf.recurrence.local_times import NEVER
from wheel_udf.recurrence.occurrences import Occurrences, occurrences_of
from wheel_udf.shard.rows import SCHEDULE, asked_ms
from wheel_udf.shard.state import ShardState
from wheel_udf.wheel.policies import Firings

LATEST, ALL, NONE = ON_MISSED
_MANY: Final = 1_024


@dataclass(frozen=True)
class SeriesRule:
    """What the column ``repeat`` of an entry says.

    Attributes:
        occurrences: The instants.
        until_ms: No occurrence is after it.
        count: How many occurrences there are.
        on_missed: One of :data:`~wheel_udf.common.command_facts.ON_MISSED`.
        most: Most occurrences that are released late with ``all``.
    """

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
    occurrences = occurrences_of(
        told["repeat"], told["time_zone"], told.get("on_gap", ON_GAP[0]), told.get("on_fold", ON_FOLD[0])
    )
    counts = [told[name] for name in ("count",) if name in told]
    if occurrences.rule.count is not None:
        counts.append(occurrences.rule.count)
    return SeriesRule(
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


# ---- begin ---------------------------------------------------------------------------------------


def begin(commands: pa.Table, state: ShardState) -> tuple[pa.Table, pa.Table | None]:
    """Gives new series their first occurrence.

    Args:
        commands: Commands (``COMMAND_SCHEMA``). Those of series without a due time are new ones.
        state: The shard before the batch.

    Returns:
        The commands with due times, and those that were refused, with their reason (JSON) in the column ``reject``;
        None for none.
    """
    if commands["repeat"].null_count == commands.num_rows:
        return commands, None
    is_new = pc.and_(commands["repeat"].is_valid(), commands["deliver_at_ms"].is_null()).to_numpy()
    is_new &= commands["op"].to_numpy() == SCHEDULE
    if not is_new.any():
        return commands, None
    new = commands.filter(pa.array(is_new)).combine_chunks()
    begin_ms = _begins_after(new, state)
    first_ms = np.full(new.num_rows, NEVER, np.int64)
    anchor_ms = new["anchor_ms"].to_numpy().copy()
    faults: dict[str, str] = {}
    for text, rows in _by_text(new["repeat"]):
        try:
            rule = rule_of(text)
        except ConfigError as fault:
            faults[text] = _reason(f"bad_{fault.field}", str(fault))
            continue
        anchors = anchor_ms[rows]
        if (start_ms := rule.occurrences.rule.starts_ms) is not None:
            anchors = anchor_ms[rows] = np.full(len(rows), start_ms)
        found = rule.occurrences.after(begin_ms[rows], anchors)
        first_ms[rows] = np.where(found <= rule.until_ms, found, NEVER)
    texts = new["repeat"].to_pylist()
    is_refused = first_ms == NEVER
    refused = None
    if is_refused.any():
        at = np.flatnonzero(is_refused)
        told = [faults.get(texts[row]) or _no_occurrence(texts[row]) for row in at.tolist()]
        refused = new.take(pa.array(at)).append_column("reject", pa.array(told))
    placed = _placed(
        new.filter(pa.array(~is_refused)),
        first_ms[~is_refused],
        begin_ms[~is_refused],
        np.zeros(int((~is_refused).sum()), np.int64),
        anchor_ms[~is_refused],
    )
    return pa.concat_tables([commands.filter(pa.array(~is_new)), placed]), refused


def _begins_after(new: pa.Table, state: ShardState) -> Int64s:
    """After which instant each new series has its first occurrence."""
    begin_ms: Int64s = new["last_ms"].to_numpy().copy()
    has_own_beginning = begin_ms != new["anchor_ms"].to_numpy()
    ids = new["schedule_id"].combine_chunks()
    places = state.places_of(ids.unique())
    for chunk in state.entry_chunks:
        if chunk.number not in places:
            continue
        old = chunk.table("schedule_id", "deliver_at_ms", "level_error_ms", "repeat", "last_ms")
        at = pc.index_in(ids, value_set=old["schedule_id"].combine_chunks())
        rows = np.flatnonzero(at.is_valid().to_numpy(zero_copy_only=False))
        if not len(rows):
            continue
        met = old.take(at.take(pa.array(rows)))
        is_series = met["repeat"].is_valid().to_numpy()
        rows, met = rows[is_series], met.filter(pa.array(is_series))
        due_ms, last_ms = asked_ms(met).to_numpy(), met["last_ms"].to_numpy()
        own = begin_ms[rows]
        is_due = (due_ms <= own) & ~has_own_beginning[rows]
        begin_ms[rows] = np.where(is_due, due_ms - 1, np.maximum(own, last_ms))
    return begin_ms


def _placed(
    entries: pa.Table,
    nominal_ms: Int64s,
    last_ms: Int64s,
    occurrence: Int64s,
    anchor_ms: Int64s | None = None,
) -> pa.Table:
    """Entries of series that wait for other occurrences."""
    spread_ms = entries["spread_ms"].fill_null(0).to_numpy()
    columns = {
        "deliver_at_ms": pa.array(nominal_ms + spread_ms),
        "level_error_ms": pa.array(spread_ms, mask=spread_ms == 0),
        "last_ms": pa.array(last_ms),
        "occurrence": pa.array(occurrence),
    }
    if anchor_ms is not None:
        columns["anchor_ms"] = pa.array(anchor_ms)
    for name, values in columns.items():
        entries = entries.set_column(entries.schema.get_field_index(name), entries.schema.field(name), values)
    return entries


def _reason(code: str, message: str) -> str:
    return json.dumps({"error_code": code, "error_message": message})


def _no_occurrence(text: str) -> str:
    repeat = json.loads(text)["repeat"]
    rule = "rule: at least one after its beginning and before until"
    return _reason("no_occurrence", f"a series without an occurrence: repeat = '{repeat}'; {rule}")


def _by_text(texts: pa.ChunkedArray) -> Iterator[tuple[str, Int64s]]:
    """Each distinct text of a column without nulls, and its rows."""
    encoded = texts.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(encoded.dictionary)))
    for code, text in enumerate(encoded.dictionary.to_pylist()):
        yield text, order[ends[code - 1] if code else 0 : ends[code]]


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
        size = due.num_rows
        nominal_ms = asked_ms(due).to_numpy()
        found = _Plan(
            row=[np.flatnonzero(due["repeat"].is_null().to_numpy())],
            nominal_ms=[nominal_ms[due["repeat"].is_null().to_numpy()]],
            missed_before=[np.zeros(due["repeat"].null_count, np.int64)],
            next_ms=np.full(size, NEVER, np.int64),
            last_ms=nominal_ms.copy(),
            passed=np.zeros(size, np.int64),
            dropped=np.zeros(size, np.int64),
        )
        columns = {
            name: due[name].fill_null(0).to_numpy() for name in ("anchor_ms", "spread_ms", "occurrence")
        }
        grace_ms = due["max_lateness_ms"].fill_null(-1).to_numpy()
        rows = np.flatnonzero(due["repeat"].is_valid().to_numpy())
        for text, of_text in _by_text(due["repeat"].drop_null()):
            part = rows[of_text]
            self._plan_rule(rule_of(text), part, nominal_ms[part], columns, grace_ms[part], clock_ms, found)
        return found.firings()

    def _plan_rule(
        self,
        rule: SeriesRule,
        rows: Int64s,
        nominal_ms: Int64s,
        columns: dict[str, Int64s],
        grace_ms: Int64s,
        clock_ms: int,
        found: _Plan,
    ) -> None:
        """Plans the due entries of one rule."""
        anchor_ms, spread_ms, before = (
            columns[name][rows] for name in ("anchor_ms", "spread_ms", "occurrence")
        )
        room = rule.count - before
        upto_ms = np.minimum(clock_ms - spread_ms, rule.until_ms)
        more, newest_ms = _passed_since(rule, nominal_ms, upto_ms, anchor_ms)
        passed = np.minimum(1 + more, room)
        for at in np.flatnonzero(passed < 1 + more).tolist():  # the count ends before the clock
            some = self._some(rule, nominal_ms[at], int(upto_ms[at]), anchor_ms[at], int(passed[at]) - 1)
            newest_ms[at] = some[-1] if len(some) else nominal_ms[at]
        next_ms = rule.occurrences.after(newest_ms, anchor_ms)
        found.next_ms[rows] = np.where((next_ms <= rule.until_ms) & (passed < room), next_ms, NEVER)
        found.last_ms[rows], found.passed[rows] = newest_ms, passed
        if rule.on_missed == ALL:
            self._plan_all(rule, rows, nominal_ms, anchor_ms, upto_ms, passed, found)
            return
        fires = np.ones(len(rows), bool)
        if rule.on_missed == NONE:
            late_ms = clock_ms - spread_ms - newest_ms
            fires = (passed == 1) | (late_ms <= np.where(grace_ms >= 0, grace_ms, self.tick_ms))
        found.dropped[rows] = np.where(fires, 0, passed)
        found.add(rows[fires], newest_ms[fires], passed[fires] - 1)

    def _plan_all(
        self,
        rule: SeriesRule,
        rows: Int64s,
        nominal_ms: Int64s,
        anchor_ms: Int64s,
        upto_ms: Int64s,
        passed: Int64s,
        found: _Plan,
    ) -> None:
        fired = np.minimum(passed, rule.most)
        found.dropped[rows] = passed - fired
        found.add(rows, nominal_ms, np.zeros(len(rows), np.int64))
        late = np.flatnonzero(fired > 1)
        if not len(late):
            return
        # Series that wait for the same occurrence of a rule have the same ones behind it.
        keys = np.stack([nominal_ms[late], anchor_ms[late] * rule.occurrences.rule.is_anchored, fired[late]])
        distinct, place = np.unique(keys, axis=1, return_inverse=True)
        place = place.ravel()
        for number, (nominal, anchor, many) in enumerate(distinct.T.tolist()):
            same = late[place == number]
            some = self._some(rule, nominal, int(upto_ms[same].max()), anchor, many - 1)
            found.add(
                np.repeat(rows[same], len(some)),
                np.tile(some, len(same)),
                np.zeros(len(same) * len(some), np.int64),
            )

    @staticmethod
    def _some(rule: SeriesRule, after_ms: int, upto_ms: int, anchor_ms: int, most: int) -> Int64s:
        return rule.occurrences.between(int(after_ms), upto_ms, int(anchor_ms), most)

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
            nominal_ms, last_ms = plan.around(released, cut)
            parts.append(_placed(due.filter(pa.array(cut)), nominal_ms, last_ms, (before + released)[cut]))
        return pa.concat_tables(parts), ends


def _passed_since(
    rule: SeriesRule, nominal_ms: Int64s, upto_ms: Int64s, anchor_ms: Int64s
) -> tuple[Int64s, Int64s]:
    """How many occurrences there are in (nominal, upto], and the newest of them; the nominal one for none."""
    more, newest_ms = np.zeros(len(nominal_ms), np.int64), nominal_ms.copy()
    behind = np.flatnonzero(rule.occurrences.after(nominal_ms, anchor_ms) <= upto_ms)
    found = rule.occurrences.upto(nominal_ms[behind], upto_ms[behind], anchor_ms[behind])
    more[behind], newest_ms[behind] = found
    return more, newest_ms


@dataclass
class _Plan:
    """:class:`Firings` in the making."""

    row: list[Int64s]
    nominal_ms: list[Int64s]
    missed_before: list[Int64s]
    next_ms: Int64s
    last_ms: Int64s
    passed: Int64s
    dropped: Int64s

    def add(self, row: Int64s, nominal_ms: Int64s, missed_before: Int64s) -> None:
        self.row.append(row)
        self.nominal_ms.append(nominal_ms)
        self.missed_before.append(missed_before)

    def firings(self) -> Firings:
        row, nominal_ms = np.concatenate(self.row), np.concatenate(self.nominal_ms)
        order = np.lexsort((nominal_ms, row))
        return Firings(
            row=row[order],
            nominal_ms=nominal_ms[order],
            missed_before=np.concatenate(self.missed_before)[order],
            next_ms=self.next_ms,
            last_ms=self.last_ms,
            passed=self.passed,
            dropped=self.dropped,
        )
