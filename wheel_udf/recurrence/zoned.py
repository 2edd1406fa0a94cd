"""The occurrences of local times as instants: a rule's local times, seen through the pieces of a zone's clock.

Each piece of the clock (:mod:`wheel_udf.recurrence.local_times`) owns a range of local times, in which an occurrence is
an instant by one subtraction. So an occurrence is looked for in the piece of the instant that is asked for, and then in
the next ones, without those that the rule jumps over::

    after 05:30Z    piece 0 |  next local time 02:30, in the gap: shift -> the beginning of piece 1
                            |                                     skip  -> on in piece 1
                    piece 1 |  next local time from the first one that it owns

All arrays are int64[n], in ms. Instants are those of the years 1 to 9999; `anchor_ms` is local, and no more than a day
beyond them.
"""

from __future__ import annotations

import numpy as np

from wheel_udf.common.arrays import Int64s
from wheel_udf.recurrence.local_times import ClockPieces
from wheel_udf.recurrence.sources import MOST, LocalTimes


def next_after(rule: LocalTimes, clock: ClockPieces, at_ms: Int64s, anchor_ms: Int64s) -> Int64s:
    """The first occurrence after each instant; later than the year 9999 where there is none."""
    found = np.zeros(len(at_ms), np.int64)
    rows = np.arange(len(at_ms))
    piece = clock.piece_at(at_ms)
    # In the piece of the instant itself only what comes after it counts.
    bound = np.maximum(at_ms + clock.offset_ms[piece], clock.low_ms[piece] - 1)
    is_whole = bound < clock.low_ms[piece]
    while len(rows):
        local = rule.next_after(bound, anchor_ms[rows])
        is_own = local < clock.high_ms[piece]
        found[rows[is_own]] = (local - clock.offset_ms[piece])[is_own]
        rows, local, piece, is_whole = (each[~is_own] for each in (rows, local, piece, is_whole))
        # In a fold the next piece may go back behind the instant; from a piece that was asked as a whole none does.
        jump = np.searchsorted(clock.ends_ms, local, side="right")
        piece = np.where(is_whole, np.maximum(piece + 1, jump), piece + 1)
        is_shifted = clock.in_gap(local, piece)
        found[rows[is_shifted]] = clock.at_ms[piece[is_shifted]]
        rows, piece = rows[~is_shifted], piece[~is_shifted]
        bound, is_whole = clock.low_ms[piece] - 1, np.ones(len(rows), bool)
    return found


def last_upto(rule: LocalTimes, clock: ClockPieces, at_ms: Int64s, anchor_ms: Int64s) -> Int64s:
    """The last occurrence at or before each instant; earlier than the year 1 where there is none."""
    found = np.zeros(len(at_ms), np.int64)
    rows = np.arange(len(at_ms))
    piece = clock.piece_at(at_ms)
    bound = np.minimum(at_ms + clock.offset_ms[piece], clock.high_ms[piece] - 1)
    is_whole = bound == clock.high_ms[piece] - 1
    while len(rows):
        local = rule.last_upto(bound, anchor_ms[rows])
        is_own = local >= clock.low_ms[piece]
        found[rows[is_own]] = (local - clock.offset_ms[piece])[is_own]
        rows, local, piece, is_whole = (each[~is_own] for each in (rows, local, piece, is_whole))
        jump = np.searchsorted(clock.begins_ms, local, side="right") - 1
        piece = np.where(is_whole, np.minimum(piece - 1, jump), piece - 1)
        is_shifted = clock.in_gap(local, piece + 1)
        found[rows[is_shifted]] = clock.at_ms[piece[is_shifted] + 1]
        rows, piece = rows[~is_shifted], piece[~is_shifted]
        bound, is_whole = clock.high_ms[piece] - 1, np.ones(len(rows), bool)
    return found


def count(
    rule: LocalTimes, clock: ClockPieces, after_ms: Int64s, upto_ms: Int64s, anchor_ms: Int64s
) -> Int64s:
    """How many occurrences are in (after, upto]: at most :data:`wheel_udf.recurrence.sources.MOST`."""
    total = np.zeros(len(after_ms), np.int64)
    first, last = clock.piece_at(after_ms), clock.piece_at(upto_ms)
    latest = int(last.max(initial=-1))
    for piece in range(latest, int(first.min(initial=latest + 1)) - 1, -1):
        rows = np.flatnonzero((first <= piece) & (piece <= last) & (total < MOST) & (after_ms < upto_ms))
        anchors, is_begun = anchor_ms[rows], first[rows] < piece
        low, offset = int(clock.low_ms[piece]), int(clock.offset_ms[piece])
        start = np.where(is_begun, low - 1, np.maximum(after_ms[rows] + offset, low - 1))
        end = np.minimum(int(clock.high_ms[piece]) - 1, upto_ms[rows] + offset)
        total[rows] += _between(rule, start, end, anchors)
        gap, begins = int(clock.gap_ms[piece]), int(clock.begins_ms[piece])
        if gap < begins:
            # All of the gap happen at the instant at which the piece begins, with an occurrence at that local time.
            before, at = (np.full(len(rows), each) for each in (begins - 1, begins))
            is_shifted = _between(rule, np.full(len(rows), gap - 1), before, anchors) > 0
            is_there = _between(rule, before, at, anchors) > 0
            total[rows] += is_begun & is_shifted & ~is_there
    return np.minimum(total, MOST)


def _between(rule: LocalTimes, low_ms: Int64s, high_ms: Int64s, anchor_ms: Int64s) -> Int64s:
    """How many local times are in (low, high]; none if low is behind high."""
    return rule.count(np.minimum(low_ms, high_ms), high_ms, anchor_ms)
