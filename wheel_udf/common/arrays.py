"""Runs of neighbouring rows with equal keys, computed with shifts and cumulative sums. Pure numpy.

::

    code            a  a  b  c  c  c
    repeats         .  x  .  .  x  x      equals the one before it
    is_last         .  x  x  .  .  x      the last of its run
    flags           x  x  .  x  .  x
    before_in_run   0  1  0  0  1  1      flagged rows of the same run before it
    runs_of         0  1  2  3  4  5      from where the runs begin, 0 2 3, and their lengths, 2 1 3
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]


def repeats(*columns: npt.NDArray[np.generic]) -> Bools:
    """Whether a row equals the one before it; False for the first."""
    same: Bools = np.zeros(len(columns[0]), bool)
    same[1:] = True
    for column in columns:
        same[1:] &= column[1:] == column[:-1]
    return same


def is_last(code: Int64s) -> Bools:
    """Whether a row is the last of its run."""
    last: Bools = np.ones(len(code), bool)
    last[:-1] = ~repeats(code)[1:]
    return last


def before_in_run(flags: Bools, code: Int64s) -> Int64s:
    """For each row, the number of flagged rows before it in its run."""
    if not len(code):
        return np.zeros(0, np.int64)
    before: Int64s = np.cumsum(flags) - flags
    starts = np.flatnonzero(~repeats(code))
    return np.asarray(before - np.repeat(before[starts], np.diff(np.r_[starts, len(code)])), dtype=np.int64)


def runs_of(begins: Int64s, lengths: Int64s) -> Int64s:
    """The numbers of all elements of some runs, one run after the other: int64[n]."""
    return np.asarray(
        np.repeat(begins - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum()), np.int64
    )
