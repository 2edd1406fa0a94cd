"""Files of a checkpoint, an export and of acts with any bytes in them: read, or an error that names the
file.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given

from tests.hostile import mangled
from tests.unit.checkpoint.test_checkpoint import start
from tests.unit.transfer.test_at_rest import MANIFEST
from wheel_udf.checkpoint.act_files import acts_of, create_act
from wheel_udf.checkpoint.lease import LEASE_FILE, Lease
from wheel_udf.checkpoint.move_marks import import_mark, mark_exported, mark_import
from wheel_udf.checkpoint.planned_settings import PlannedSettings
from wheel_udf.checkpoint.spark_logs import (
    batch_at,
    committed_offsets,
    input_moved,
    last_planned,
    planned_batch,
    planned_offsets,
    planned_watermark_ms,
)
from wheel_udf.common.errors import ActError, CheckpointError, GeometryChangedError, LeaseError, TransferError
from wheel_udf.control.source import is_clock_offset
from wheel_udf.pending.audit import Act, act_of_file
from wheel_udf.spark.files import json_bytes
from wheel_udf.transfer.manifest import find_manifest, write_manifest

PLAN = (
    b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1795230300430,"conf":{}}\n'
    b'{"wheel_clock": 3, "instant_ms": 5}\n{"orders":{"0":4711}}'
)
COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'
METADATA = b'{"id":"d6df10ac-8cb1-44ad-9e12-46d13e2f9dbc"}'
IDENTITY = b'{"format_version": 5, "wheel": "tick_ms=1000,size=20,levels=6", "shards": 4, "clock": "event", "app_id": "a-1", "package_version": "1"}'
JOURNAL = b'[{"from_batch": 0, "settings": {"limit": 5}}]'
MARK = b'{"export_id": "e-1", "place": "x", "done": true}'
ACT = Act(5, "move", "me", "true", "to sms", 3, 0)
DEEP = b"[" * 100_000
REFUSED = (CheckpointError, GeometryChangedError, TransferError, LeaseError)


def written(folder: Path, files: dict[str, bytes]) -> str:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return str(folder)


def all_read_or_refused(files: dict[str, bytes], *readers: Callable[[str], Any]) -> None:
    """Each reader gives a value or an error of this package that names a file; nothing else."""
    for reader in readers:
        folder = tempfile.mkdtemp()
        refused = ""
        try:
            reader(written(Path(folder), files))
        except REFUSED as error:
            refused = f"refused: {error}"
        finally:
            shutil.rmtree(folder)
        assert not refused or folder in refused


@given(mangled(PLAN), mangled(COMMIT), mangled(METADATA), mangled(IDENTITY))
@example(b"v1\n" + DEEP + b"\n" + DEEP, b"v1\n" + DEEP, DEEP, DEEP)
@example(b"v1\n{}\n{}", b"v1\n{}", b"{}", b"{}")
@example(b'v1\n{"batchWatermarkMs":"x","batchTimestampMs":"x"}\n{}', COMMIT, METADATA, IDENTITY)
def test_any_bytes_in_sparks_logs_and_the_identity_are_read_or_refused(
    plan: bytes, commit: bytes, metadata: bytes, identity: bytes
) -> None:
    files = {"offsets/7": plan, "commits/7": commit, "metadata": metadata, "wheel.json": identity}
    all_read_or_refused(
        files,
        start,
        planned_batch,
        last_planned,
        committed_offsets,
        planned_offsets,
        planned_watermark_ms,
        lambda path: batch_at(path, 2**62),
        lambda path: input_moved(path, 7, is_clock_offset),
    )


@given(mangled(JOURNAL), mangled(MARK))
@example(DEEP, DEEP)
def test_any_bytes_in_the_journal_of_settings_and_in_the_marks_of_moves_are_read_or_refused(
    journal: bytes, mark: bytes
) -> None:
    files = {"wheel-settings.json": journal, "wheel-import.json": mark, "wheel-exported.json": mark}
    all_read_or_refused(
        files,
        lambda path: PlannedSettings(path).settings_of(3),
        lambda path: PlannedSettings(path).record({"limit": 6}, 9),
        import_mark,
        start,
    )


@given(mangled(json_bytes(asdict(MANIFEST)), b'{"format": 1}'))
@example(DEEP)
def test_any_bytes_as_a_manifest_are_read_or_refused(content: bytes) -> None:
    all_read_or_refused({"manifest.json": content}, find_manifest)


def test_a_whole_manifest_is_read_and_one_with_a_wrong_type_is_damaged(tmp_path: Path) -> None:
    write_manifest(str(tmp_path), MANIFEST)
    whole = (tmp_path / "manifest.json").read_text()
    assert find_manifest(str(tmp_path)) == MANIFEST

    for good, bad in (
        ('"shards": 2', '"shards": "2"'),
        ('"batch": 7', '"batch": null'),
        ('"clock_ms": 1000', '"clock_ms": "1000"'),
        ('"fired": 3', '"fired": "3"'),
        ('"mode": "direct"', '"mode": 5'),
    ):
        assert good in whole
        (tmp_path / "manifest.json").write_text(whole.replace(good, bad))
        with pytest.raises(TransferError, match="manifest of the export is damaged"):
            find_manifest(str(tmp_path))


def record_in(path: str) -> Act | None:
    """The record in the first file of an act; None if it is one of another release."""
    ((noted, _),) = acts_of(path)
    try:
        return act_of_file(noted)
    except ActError:
        return None


@given(mangled(json_bytes({"record": asdict(ACT), "rows": {"folder": "rows-1"}})))
@example(DEEP)
@example(b'{"record": {"act": 5}, "rows": {}}')
@example(b'{"record": {}, "rows": {"folder": 5}}')
def test_any_bytes_as_the_file_of_an_act_are_a_record_or_an_error(content: bytes) -> None:
    all_read_or_refused({"acts/0.json": content}, record_in)


def test_a_whole_file_of_an_act_is_its_record(tmp_path: Path) -> None:
    create_act(str(tmp_path), 0, asdict(ACT), {"folder": "rows-1"})
    assert record_in(str(tmp_path)) == ACT


@pytest.mark.parametrize("note", [b"", b"{}", b'{"pid": 5}', b"\xff\xfe", DEEP])
def test_a_lease_that_is_held_is_refused_whatever_its_holder_has_noted(
    tmp_path: Path, note: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wheel_udf.checkpoint.file_lock.TRIES", 1)
    with Lease(str(tmp_path)):
        (tmp_path / LEASE_FILE).write_bytes(note)
        with pytest.raises(LeaseError, match="in use by another process"):
            Lease(str(tmp_path)).acquire()


def test_a_file_with_a_number_that_is_no_batch_is_no_batch(tmp_path: Path) -> None:
    path = written(tmp_path, {"offsets/\u00b2": PLAN, "commits/\u00b2": COMMIT, "commits/x": COMMIT})

    assert (last_planned(path), batch_at(path, 0)) == (None, None)


def test_a_moved_checkpoint_is_refused_although_its_mark_says_odd_things(tmp_path: Path) -> None:
    path = str(tmp_path)
    mark_import(path, "\0", "../x\n\x1b[2J", done=False)
    with pytest.raises(CheckpointError, match="has not finished"):
        start(tmp_path)
    mark_import(path, "e-1", "some/export", done=True)
    mark_exported(path, "e-1", "\ud83d\ude00")
    with pytest.raises(CheckpointError, match="was exported"):
        start(tmp_path)
