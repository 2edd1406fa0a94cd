"""Forgetting: what a killed call leaves, and the texts that have an id. Files, no Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.checkpoint.test_checkpoint import start
from tests.unit.transfer.test_at_rest import MANIFEST
from wheel_udf.checkpoint.lease import Lease
from wheel_udf.checkpoint.move_marks import import_mark, mark_exported, mark_import
from wheel_udf.common.errors import ActError, LeaseError, TransferError
from wheel_udf.pending.audit import has_id
from wheel_udf.transfer.forgetting import finish_forgetting
from wheel_udf.transfer.id_rows import frame_of_ids
from wheel_udf.transfer.manifest import Manifest, write_manifest


class Import:
    """An import that only notes that it was called."""

    def __init__(self, *parts: Path) -> None:
        self.parts, self.folders = parts, list[str]()

    def __call__(self, folder: str) -> Manifest:
        self.folders.append(folder)
        for part in self.parts:
            assert [each.name for each in part.iterdir() if each.name != "wheel.lease"] == [
                "wheel-import.json"
            ]
            mark_import(str(part), MANIFEST.export_id, folder, done=True)
        return MANIFEST


def exported(checkpoint: Path, *parts: Path) -> Path:
    """Checkpoints of a job, and the export beside them."""
    folder = checkpoint.with_name(f"{checkpoint.name}-forgetting")
    for part in parts:
        start(part)
    (folder / "entries").mkdir(parents=True)
    write_manifest(str(folder), MANIFEST)
    return folder


def test_nothing_is_finished_where_no_call_was_killed(tmp_path: Path) -> None:
    start(tmp_path / "job")
    begin = Import()

    finish_forgetting(str(tmp_path / "job"), begin)
    assert begin.folders == []


def test_an_export_that_was_killed_before_its_mark_is_dropped_because_the_job_may_have_gone_on(
    tmp_path: Path,
) -> None:
    job = tmp_path / "job"
    folder = exported(job, job)
    mark_exported(str(job), "another export", "elsewhere")
    begin = Import()

    finish_forgetting(str(job), begin)
    assert begin.folders == []
    assert not folder.exists()
    assert (job / "wheel.json").exists()


def test_a_call_that_was_killed_after_the_mark_is_finished_and_its_export_deleted(tmp_path: Path) -> None:
    job = tmp_path / "job"
    folder = exported(job, job)
    mark_exported(str(job), MANIFEST.export_id, str(folder))
    begin = Import(job)

    finish_forgetting(str(job), begin)
    assert begin.folders == [str(folder)]
    assert not folder.exists()


def test_a_tiered_job_that_was_killed_between_its_parts_is_emptied_again_with_its_store(
    tmp_path: Path,
) -> None:
    job, store = tmp_path / "job", tmp_path / "store"
    intake, wheel = job / "intake", job / "wheel"
    folder = exported(job, intake, wheel)
    write_manifest(str(folder), replace(MANIFEST, mode="tiered"))
    (store / "_delta_log").mkdir(parents=True)
    (intake / "wheel.json").unlink()
    mark_import(str(intake), MANIFEST.export_id, str(folder), done=False)
    mark_exported(str(wheel), MANIFEST.export_id, str(folder))
    begin = Import(intake, wheel)

    finish_forgetting(str(job), begin, store=str(store))
    assert begin.folders == [str(folder)]
    assert list(store.iterdir()) == []


def test_what_was_begun_in_another_mode_is_kept(tmp_path: Path) -> None:
    job = tmp_path / "job"
    folder = exported(job, job / "intake", job / "wheel")
    write_manifest(str(folder), replace(MANIFEST, mode="tiered"))

    with pytest.raises(TransferError, match=r"another mode.*tiered.*run forget with the old settings"):
        finish_forgetting(str(job), Import())
    assert folder.exists()


def test_an_import_that_had_begun_is_repeated(tmp_path: Path) -> None:
    job = tmp_path / "job"
    folder = exported(job, job)
    mark_import(str(job), MANIFEST.export_id, str(folder), done=False)

    finish_forgetting(str(job), lambda _folder: MANIFEST)
    assert (job / "wheel.json").exists()
    assert not folder.exists()


def test_a_job_that_runs_is_not_emptied(tmp_path: Path) -> None:
    job = tmp_path / "job"
    folder = exported(job, job)
    mark_exported(str(job), MANIFEST.export_id, str(folder))

    with Lease(str(job)), pytest.raises(LeaseError):
        finish_forgetting(str(job), Import(job))
    assert (job / "wheel.json").exists()
    assert import_mark(str(job)) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("schedule_id in ['ann']", True),
        ("(value LIKE '%ann%')", True),
        ('schedule_id in ["o\'ne\\n"]', True),
        ("(schedule_id = 'o''ne\n')", True),
        ("(destination = 'old')", False),
        ("", False),
    ],
)
def test_a_text_of_a_record_has_an_id_as_it_is_or_as_python_or_sql_write_it(
    text: str, *, found: bool
) -> None:
    assert has_id(text, ["ann", "o'ne\n", 'quote"s']) == found


@pytest.mark.parametrize(
    ("ids", "why"), [([], "no id is given"), ([""], "an empty id"), (["\udcff"], "not a text")]
)
def test_an_id_is_a_text(ids: list[str], why: str) -> None:
    spark: Any = None
    with pytest.raises(ActError, match=why):
        frame_of_ids(spark, ids)
