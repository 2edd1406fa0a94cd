"""What an export asks of a checkpoint and of its folder, and how the account is shared: files and numbers, no Spark."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.unit.checkpoint.test_checkpoint import commit, plan, start
from wheel_udf.checkpoint.lease import Lease
from wheel_udf.common.errors import LeaseError, TransferError
from wheel_udf.pending.audit import Act, records_of, take_over
from wheel_udf.pending.entries import PendingWork
from wheel_udf.transfer.content import at_rest, positions_of
from wheel_udf.transfer.exporting import found_export, require_unused
from wheel_udf.transfer.importing import begin_checkpoint, beginning
from wheel_udf.transfer.manifest import Manifest, find_manifest, read_manifest, write_manifest
from wheel_udf.transfer.seeds import shared

CLOCK = '{"wheel_clock": 3}'
MANIFEST = Manifest(
    export_id="e-1",
    mode="direct",
    wheel="tick_ms=1000,size=20,levels=6",
    shards=2,
    clock="event",
    app_id="departures-1",
    batch=7,
    clock_ms=1_000,
    counts={"fired": 3, "waiting": 0},
    rows={"entries": 2, "memory": 5},
    positions=[{"orders": {"0": 4711}}, None],
)


# ---- the checkpoint ------------------------------------------------------------------------------


def test_a_job_that_runs_is_not_exported(tmp_path: Path) -> None:
    start(tmp_path)

    with Lease(str(tmp_path)), pytest.raises(LeaseError, match="in use"), at_rest(PendingWork(str(tmp_path))):
        pass


def test_a_planned_batch_has_to_be_finished_first(tmp_path: Path) -> None:
    identity = start(tmp_path)
    plan(tmp_path, 0, CLOCK, '{"logOffset":0}')
    commit(tmp_path, 0)
    plan(tmp_path, 1, CLOCK, '{"logOffset":1}')
    with (
        pytest.raises(TransferError, match="'batch 1'; hint: run the job once more"),
        at_rest(PendingWork(str(tmp_path))),
    ):
        pass

    commit(tmp_path, 1)
    with at_rest(PendingWork(str(tmp_path))) as (found, require_leases):
        assert found == identity
        require_leases()
        with pytest.raises(LeaseError):
            Lease(str(tmp_path)).acquire()


def test_a_checkpoint_without_batches_has_nothing_to_move(tmp_path: Path) -> None:
    start(tmp_path)

    with pytest.raises(TransferError, match="nothing to move"), at_rest(PendingWork(str(tmp_path))):
        pass


def test_the_positions_are_those_of_the_sources_without_the_clock(tmp_path: Path) -> None:
    plan(tmp_path, 0, CLOCK, '{"orders":{"0":4711}}', "-")
    commit(tmp_path, 0)

    assert positions_of(str(tmp_path)) == {1: {"orders": {"0": 4711}}, 2: None}


# ---- the folder ----------------------------------------------------------------------------------


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_manifest(str(tmp_path), MANIFEST)

    assert read_manifest(str(tmp_path), purgatory=False) == MANIFEST
    assert MANIFEST.pending == 2


def test_a_folder_without_a_manifest_is_no_export(tmp_path: Path) -> None:
    assert find_manifest(str(tmp_path)) is None
    with pytest.raises(TransferError, match="no complete export here"):
        read_manifest(str(tmp_path), purgatory=False)


def test_an_export_of_another_format_names_the_release_that_made_it(tmp_path: Path) -> None:
    write_manifest(str(tmp_path), MANIFEST)
    file = tmp_path / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 2, "package_version": "9.0"}))

    with pytest.raises(TransferError, match=r"another format.* = 2; rule: 1; hint: release 9\.0 made it"):
        read_manifest(str(tmp_path), purgatory=False)


def test_an_export_is_not_written_over_something_else(tmp_path: Path) -> None:
    write_manifest(str(tmp_path), MANIFEST)
    identity = start(tmp_path / "checkpoint")
    with pytest.raises(TransferError, match="holds another export"):
        found_export(str(tmp_path), identity, 7)

    (tmp_path / "other" / "entries").mkdir(parents=True)
    require_unused(str(tmp_path / "other"))  # an export that was killed has left it
    (tmp_path / "other" / "letters").touch()
    with pytest.raises(TransferError, match="not empty"):
        require_unused(str(tmp_path / "other"))


def test_an_import_needs_a_new_checkpoint(tmp_path: Path) -> None:
    plan(tmp_path, 0, CLOCK)

    with (
        pytest.raises(TransferError, match="a job that has started"),
        beginning(MANIFEST, "f", [str(tmp_path)]),
    ):
        pass


def test_an_import_that_is_killed_is_done_again_and_one_that_is_done_is_not(tmp_path: Path) -> None:
    def begun() -> bool:
        with beginning(MANIFEST, "f", [str(tmp_path)]) as is_new:
            plan(tmp_path, 0, CLOCK)
            return is_new

    def killed() -> None:
        with beginning(MANIFEST, "f", [str(tmp_path)]):
            raise KeyError

    with pytest.raises(KeyError):
        killed()
    assert [begun(), begun()] == [True, False]


def test_the_acts_of_the_old_job_come_before_those_of_the_new_one(tmp_path: Path) -> None:
    done = [Act(5, "move", "me", "true", "to sms", 3, number) for number in (0, 1)]
    take_over(str(tmp_path), [asdict(act) for act in done])

    assert [(act.change, act.batch) for act in records_of(str(tmp_path))] == [("to sms", -2), ("to sms", -1)]


def test_an_export_that_has_lost_its_acts_is_not_imported(tmp_path: Path) -> None:
    identity: Any = {"wheel_fingerprint": "tick_ms=1,size=2,levels=1", "shards": 2, "clock_kind": "event"}
    with pytest.raises(TransferError, match="records of acts are missing or damaged"):
        begin_checkpoint(MANIFEST, str(tmp_path / "export"), str(tmp_path / "job"), "wheel", identity)


# ---- the account ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waiting", "remembered", "shares"),
    [
        (0, {1: 2}, [0, 0, 0]),
        (5, {1: 2, 2: 1}, [2, 2, 1]),
        (2, {0: 1, 1: 2}, [1, 1, 0]),
    ],
)
def test_what_waits_is_counted_by_the_shard_that_remembers_it_and_nothing_twice(
    waiting: int, remembered: dict[int, int], shares: list[int]
) -> None:
    counts = shared({"fired": 9, "waiting": waiting}, remembered, 3)

    assert [each["waiting"] for each in counts] == shares
    assert [each.get("fired", 0) for each in counts] == [9, 0, 0]


def test_a_purgatory_counts_on_one_shard() -> None:
    assert shared({"completed": 4}, {}, 2) == [{"completed": 4}, {}]
