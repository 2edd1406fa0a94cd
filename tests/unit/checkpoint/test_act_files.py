"""The files of acts in a checkpoint: created whole, numbered without a gap, read in order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from wheel_udf.checkpoint.act_files import (
    acts_made,
    acts_of,
    acts_taken,
    create_act,
    earlier_records,
    keep_records,
    require_acts,
)
from wheel_udf.common.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path


def plan(folder: Path, batch: int, acts: int, *, committed: bool) -> None:
    clock = json.dumps({"wheel_clock": batch} | ({"query": "q", "acts": acts} if acts else {}))
    for log, content in (("offsets", f'v1\n{{"batchTimestampMs":0}}\n{clock}\n-'), ("commits", "v1\n{}")):
        if log == "offsets" or committed:
            (folder / log).mkdir(exist_ok=True)
            (folder / log / str(batch)).write_text(content)


def test_of_two_acts_at_the_same_time_one_gets_the_number(tmp_path: Path) -> None:
    assert acts_made(str(tmp_path)) == 0
    assert create_act(str(tmp_path), 0, {"act": "cancel"}, {2: "rows"})
    assert not create_act(str(tmp_path), 0, {"act": "move"}, {1: "others"})
    assert acts_of(str(tmp_path)) == [({"act": "cancel"}, {"2": "rows"})]
    assert create_act(str(tmp_path), 1, {"act": "move"}, {1: "others"})
    assert acts_made(str(tmp_path)) == 2
    assert acts_of(str(tmp_path), 1) == [({"act": "move"}, {"1": "others"})]
    assert [file.name for file in (tmp_path / "acts").iterdir() if file.name.startswith(".")] == []


def test_what_was_taken_is_in_the_log_of_batches(tmp_path: Path) -> None:
    assert acts_taken(str(tmp_path)) == 0
    plan(tmp_path, 0, 0, committed=True)
    plan(tmp_path, 1, 2, committed=True)
    plan(tmp_path, 2, 3, committed=False)
    assert (acts_taken(str(tmp_path)), acts_taken(str(tmp_path), planned=True)) == (2, 3)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"record": 1, "rows": {}}', b"\xff", b"[" * 5_000])
def test_a_damaged_act_is_an_error_that_names_its_file(tmp_path: Path, content: bytes) -> None:
    create_act(str(tmp_path), 0, {}, {})
    (tmp_path / "acts" / "0.json").write_bytes(content)
    with pytest.raises(
        CheckpointError, match=r"the file of an act is damaged: .*/acts/0\.json; hint: restore it"
    ):
        acts_of(str(tmp_path))


def test_a_start_is_refused_if_the_planned_batch_has_taken_an_act_that_is_gone(tmp_path: Path) -> None:
    plan(tmp_path, 0, 1, committed=True)
    plan(tmp_path, 1, 2, committed=False)
    create_act(str(tmp_path), 1, {}, {})
    require_acts(str(tmp_path))
    (tmp_path / "acts" / "1.json").unlink()
    with pytest.raises(CheckpointError, match=r"the file of an act is missing.*/acts/1\.json"):
        require_acts(str(tmp_path))


def test_records_of_the_checkpoint_before_are_kept_apart(tmp_path: Path) -> None:
    keep_records(str(tmp_path), [{"batch": -1}])
    keep_records(str(tmp_path), [{"batch": -9}])  # said again by an import that was killed
    assert earlier_records(str(tmp_path)) == [{"batch": -1}]
    assert acts_made(str(tmp_path)) == 0
