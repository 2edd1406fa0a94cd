"""The board: only its user can write answers, and a forged answer deletes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wheel_udf.control.board import ShardBoard, ShardReport
from wheel_udf.control.reports import forget_run, post_reports

ANSWER = ShardReport(batch_id=1, next_due_ms=5, clock_ms=4, watermark_ms=None, held_input=True)


def test_a_process_has_one_folder_of_a_random_name_that_only_its_user_can_enter() -> None:
    first = ShardBoard()
    assert ShardBoard().folder == first.folder
    assert first.folder.name != f"wheel-clock-{os.getuid()}"
    assert first.folder.stat().st_mode & 0o777 == 0o700


def test_the_folder_of_a_process_is_gone_when_it_ends() -> None:
    said = subprocess.run(
        [sys.executable, "-c", "from wheel_udf.control.board import ShardBoard; print(ShardBoard().folder)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.startswith("/")
    assert not Path(said.stdout.strip()).exists()


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o720])
def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "board"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(PermissionError, match=r"not private: .*board; rule: a folder of this user"):
        post_reports(ShardBoard(str(folder)), "query", "run", {0: ANSWER})
    assert list(folder.iterdir()) == []


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "board").symlink_to(tmp_path / "theirs")
    with pytest.raises(PermissionError, match="not private"):
        post_reports(ShardBoard(str(tmp_path / "board")), "query", "run", {0: ANSWER})


@pytest.mark.parametrize("forged", ["../precious", "/precious", "", ".."])
def test_the_end_of_a_run_deletes_nothing_outside_the_board_whatever_the_link_says(
    tmp_path: Path, forged: str
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    board = ShardBoard(str(tmp_path / "board"))
    post_reports(board, "query", "run", {0: ANSWER})
    target = str(precious) if forged == "/precious" else forged
    (board.folder / "runs" / "run.json").write_text(json.dumps({"query_id": target}))
    forget_run(board, "run")
    assert precious.is_dir()
    assert (board.folder / "reports" / "query" / "0.json").is_file()
    assert not (board.folder / "runs" / "run.json").exists()
