"""What was exported does not start, and what is being imported does not start yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.checkpoint.test_checkpoint import WHEEL, start
from wheel_udf.checkpoint.identity import check_checkpoint, identity_of
from wheel_udf.checkpoint.move_marks import (
    empty_for_import,
    import_mark,
    is_emptied,
    mark_exported,
    mark_import,
)
from wheel_udf.checkpoint.spark_logs import source_log, write_source_log
from wheel_udf.common.errors import CheckpointError, GeometryChangedError

ASKED: dict[str, Any] = {"wheel_fingerprint": WHEEL, "shards": 4, "clock_kind": "event"}


def test_an_exported_checkpoint_refuses_to_start_until_the_mark_is_deleted(tmp_path: Path) -> None:
    identity = start(tmp_path)
    mark_exported(str(tmp_path), "e-1", "some/export")
    for refused in (lambda: start(tmp_path), lambda: check_checkpoint(str(tmp_path), **ASKED)):
        with pytest.raises(
            CheckpointError, match=r"was exported to some/export.*delete this file to go on here"
        ):
            refused()

    (tmp_path / "wheel-exported.json").unlink()
    assert start(tmp_path) == identity


def test_a_checkpoint_starts_only_when_its_import_is_done(tmp_path: Path) -> None:
    mark_import(str(tmp_path), "e-1", "some/export", done=False)
    with pytest.raises(
        CheckpointError, match=r"import of some/export has not finished.*run the same import again"
    ):
        start(tmp_path)
    with pytest.raises(CheckpointError, match="has not finished"):
        start(tmp_path, importing="e-2")

    identity = start(tmp_path, importing="e-1")
    with pytest.raises(CheckpointError, match="has not finished"):
        start(tmp_path)
    mark_import(str(tmp_path), "e-1", "some/export", done=True)
    assert start(tmp_path) == identity
    mark = import_mark(str(tmp_path))
    assert mark is not None
    assert mark.done


def test_a_checkpoint_that_is_emptied_refuses_to_start_until_its_own_import_has_finished(
    tmp_path: Path,
) -> None:
    place, folder = tmp_path / "job", str(tmp_path / "job-forgetting")
    start(place)
    (place / "state" / "0").mkdir(parents=True)
    (place / "state" / "0" / "1.delta").write_text("rows")
    (place / "wheel.lease").write_text("")
    mark_exported(str(place), "e-1", folder)

    empty_for_import(str(place), "e-1", folder)

    assert sorted(each.name for each in place.iterdir()) == ["wheel-import.json", "wheel.lease"]
    assert is_emptied(str(place), "e-1")
    with pytest.raises(CheckpointError, match=r"being forgotten.*run the same wheel-udf forget again"):
        start(place)
    assert start(place, importing="e-1").shards == 4


def test_a_checkpoint_that_was_being_emptied_when_it_was_killed_refuses_every_start(tmp_path: Path) -> None:
    start(tmp_path)
    mark_exported(str(tmp_path), "e-1", "job-forgetting")
    mark_import(str(tmp_path), "e-1", "job-forgetting", done=False)

    assert not is_emptied(str(tmp_path), "e-1")
    for importing in (None, "e-1"):
        with pytest.raises(CheckpointError, match="run the same wheel-udf forget again"):
            start(tmp_path, importing=importing)


def test_a_damaged_mark_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "wheel-import.json").write_text("{")

    with pytest.raises(CheckpointError, match=r"mark of a move is damaged: .*wheel-import\.json"):
        start(tmp_path)


def test_another_format_names_the_release_and_the_way_out(tmp_path: Path) -> None:
    start(tmp_path)
    file = tmp_path / "wheel.json"
    file.write_text(
        file.read_text().replace('"format_version": 12', '"format_version": 4').replace("0.3.0", "0.2.9")
    )

    for refused in (lambda: start(tmp_path), lambda: identity_of(str(tmp_path))):
        with pytest.raises(
            GeometryChangedError,
            match=r"format version 4 there, 12 here.*wheel-udf export of release 0\.2\.9, then import",
        ):
            refused()


def test_other_settings_name_export_and_import(tmp_path: Path) -> None:
    start(tmp_path)

    with pytest.raises(
        GeometryChangedError,
        match=r"shards 4 there, 8 here.*move its content into a new checkpoint: export, then import",
    ):
        start(tmp_path, shards=8)


def test_a_folder_without_identity_has_nothing_to_export(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no checkpoint of this package"):
        identity_of(str(tmp_path))


def test_the_log_of_a_source_is_copied_without_hidden_files(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    (old / "sources" / "1").mkdir(parents=True)
    (old / "sources" / "1" / "9.compact").write_text("v1\n{}")
    (old / "sources" / "1" / ".9.compact.crc").write_bytes(b"crc\x00")

    write_source_log(str(new), 0, dict(source_log(str(old), 1)))

    assert [(file.name, file.read_text()) for file in (new / "sources" / "0").iterdir()] == [
        ("9.compact", "v1\n{}")
    ]
    assert dict(source_log(str(old), 7)) == {}
