"""A job that moves: shards, wheel, mode, clock and path change between its runs; it fires and counts as one that
stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.delta.transfer.homes import SMALL, WIDE, Home, Job
from tests.spark.streams import cancel, due
from wheel_udf.common.errors import CheckpointError, TransferError
from wheel_udf.control.clocks import ProcessingClock
from wheel_udf.pending import acts
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.transfer import importing, into_store

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def test_a_job_that_moves_four_times_fires_and_counts_as_one_that_stays(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(spark, tmp_path)
    first = Home(job, "first", SMALL, 2, tiered=False)
    resharded = Home(job, "resharded", WIDE, 3, tiered=False)
    tiered = Home(job, "tiered", SMALL, 2, tiered=True)
    regrouped = Home(job, "regrouped", WIDE, 3, tiered=True)
    last = Home(job, "last", SMALL, 1, tiered=False, clock=ProcessingClock())

    job.say(
        [due("start", 1, 0)],
        [
            *(due("a", 30, 20), due("b", 500, 20), due("c", 900, 20), due("d", 3_000, 20)),
            *(due("e", 700, 20), due("f", 100, 20), due("gone", 600, 20)),
            due("year 9977", 251_000_000_000, 20),
            cancel("w", 20, seq=2),  # its schedule comes after two moves
        ],
        [cancel("gone", 40, seq=2), due("f", 2_000, 40, seq=2), due("clock", 45, 50)],
    )
    first.run()
    assert first.leave().pending == 6
    _killed_in_the_first_batch(resharded, first, monkeypatch)
    assert resharded.come_from(first).pending == 6
    with pytest.raises(CheckpointError, match=r"was exported to .*first-export"):
        first.run()
    with pytest.raises(TransferError, match="the checkpoint is in use"):
        first.come_from(first)

    # a is remembered as fired: said again, it is a duplicate. An older b loses against the pending one.
    job.say([due("a", 30, 60), due("b", 800, 60, seq=2), due("b", 450, 60, seq=0)])
    resharded.run()
    resharded.leave()
    _killed_before_the_intake(tiered, resharded, monkeypatch)
    assert tiered.come_from(resharded).pending == 6

    job.say([cancel("c", 70, seq=2), due("w", 850, 70)])
    tiered.run()
    acts.move(spark, tiered.work, acts.Picked(["e"]), to="deliver_at + interval 10 seconds")
    with pytest.raises(TransferError, match="acts were recorded that the job has not taken yet"):
        tiered.leave()
    tiered.run()
    # c is still in its slot: the export counts it as cancelled.
    assert tiered.leave().pending == 5
    assert regrouped.come_from(tiered).pending == 5
    assert [row.act for row in acts.audit(spark, regrouped.work.query).collect()] == ["move"]

    job.say([due("f", 2_500, 80, seq=3)])
    regrouped.run()
    regrouped.leave()
    last.come_from(regrouped)
    # By the wall clock all but one is due.
    job.say([due("late", 70, 1_000)])
    last.run()

    assert job.fired() == [
        ("a", 1, 30),
        ("b", 2, 800),
        ("clock", 1, 45),
        ("d", 1, 3_000),
        ("e", 1, 710),
        ("f", 3, 2_500),
        ("late", 1, 70),
        ("start", 1, 1),
    ]
    ended = {"fired": 8, "cancelled": 3, "superseded": 5, "duplicate": 1, "applied": 3}
    assert job.account == {"pending": 1, **ended}


def _store(home: Home) -> SlotStore:
    store = home.work.store
    assert store is not None
    return store


class _KilledError(Exception):
    """Stands for a kill."""


def _killed_in_the_first_batch(home: Home, old: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(_batch: DataFrame, _number: int) -> None:
        raise _KilledError

    with monkeypatch.context() as patch:
        patch.setattr(importing, "expecting", lambda _pending: killed)
        with pytest.raises(Exception, match="_KilledError"):
            home.come_from(old)
    _is_refused(home)


def _killed_before_the_intake(home: Home, old: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise _KilledError

    with monkeypatch.context() as patch:
        patch.setattr(into_store, "run_first_batch", killed)
        with pytest.raises(_KilledError):
            home.come_from(old)
    _is_refused(home)


def _is_refused(home: Home) -> None:
    with pytest.raises(CheckpointError, match="run the same import again"):
        home.run()
