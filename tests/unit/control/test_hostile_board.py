"""Files of the board with damage in them count as missing: the clock ticks, and nothing fails."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given

from tests.hostile import mangled
from wheel_udf.control.board import STORES, ShardBoard, ShardReport, StoreProgress
from wheel_udf.control.clocks import ProcessingClock, StoreClock
from wheel_udf.control.reports import post_reports, reports_of
from wheel_udf.control.source import ClockReader

ANSWER = ShardReport(batch_id=1, next_due_ms=2**62, clock_ms=4, watermark_ms=None, held_input=True)
PUBLISHED = StoreProgress(cursor_ms=9, clock_ms=5, version=3, until_ms=None)
DEEP = b"[" * 100_000


def text(record: object, **changes: object) -> bytes:
    return json.dumps(asdict(record) | changes).encode()  # type: ignore[call-overload]


def asked(folder: Path, link: bytes, answer: bytes, published: bytes) -> tuple[Any, ...]:
    board = ShardBoard(str(folder / "board"))
    post_reports(board, "query", "run", {0: ANSWER})
    board.put(STORES, "token", PUBLISHED)
    (board.folder / "runs" / "run.json").write_bytes(link)
    (board.folder / "reports" / "query" / "0.json").write_bytes(answer)
    (board.folder / "stores" / "token.json").write_bytes(published)
    clock, store = ClockReader(ProcessingClock(), 1, board), ClockReader(StoreClock(token="token"), 1, board)
    for reader in (clock, store):
        reader.run, reader.ticked = "run", True
        reader.latestOffset(reader.initialOffset())
    found = reports_of(board, "run"), board.get(STORES, "token")
    clock.stop()
    return found


@given(mangled(b'{"query_id": "query"}'), mangled(text(ANSWER)), mangled(text(PUBLISHED)))
@example(DEEP, DEEP, DEEP)
@example(b'{"query_id": "../outside"}', text(ANSWER), text(PUBLISHED))
@example(b'{"query_id": "' + b"9" * 5_000 + b'"}', text(ANSWER), text(PUBLISHED))
def test_any_bytes_in_the_files_of_the_board_are_an_answer_or_none(
    link: bytes, answer: bytes, published: bytes
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        outside = Path(folder) / "outside" / "0.json"
        outside.parent.mkdir()
        outside.write_bytes(text(ANSWER))
        answers, story = asked(Path(folder), link, answer, published)

        assert answers.keys() <= {0}
        assert all(type(each.clock_ms) is int for each in answers.values())
        assert story is None or type(story.cursor_ms) is int
        assert outside.exists()


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        text(ANSWER)[:-5],
        text(ANSWER, clock_ms="4"),
        text(ANSWER, clock_ms=None),
        text(ANSWER, clock_ms=True),
        text(ANSWER, held_input=1),
        text(ANSWER, next_due_ms=2**63),
        text(ANSWER, next_due_ms=1.5),
        text(ANSWER, more=1),
        DEEP,
    ],
)
def test_a_damaged_answer_is_due_now(tmp_path: Path, damaged: bytes) -> None:
    answers, story = asked(tmp_path, b'{"query_id": "query"}', damaged, text(PUBLISHED))

    assert answers == {}
    assert story == PUBLISHED


def test_a_whole_answer_is_read_and_a_file_of_another_name_is_not(tmp_path: Path) -> None:
    board = ShardBoard(str(tmp_path / "board"))
    post_reports(board, "query", "run", {0: ANSWER, 12: ANSWER})
    for name in ("copy of 0", "-1", "\u0663", "9" * 40):
        (board.folder / "reports" / "query" / f"{name}.json").write_bytes(text(ANSWER))

    assert reports_of(board, "run") == {0: ANSWER, 12: ANSWER}
