"""The pictures of a terminal in the docs are those of today's program."""

from __future__ import annotations

from tests.terminal import session, top


def test_the_picture_of_top_shows_the_screen_as_it_is() -> None:
    # The same words; the drawing itself is of the library's version.
    hint = "python -m tests.terminal.top draws it again"
    assert top.words_of(top.PICTURE.read_text("utf-8")) == top.words_of(top.svg()), hint


def test_the_picture_of_the_session_shows_its_text() -> None:
    lines = session.TEXT.read_text("utf-8").splitlines()
    drawn = top.words_of(session.PICTURE.read_text("utf-8"))
    assert drawn == top.words_of(session.svg_of(lines)), "python -m tests.terminal.session records it again"
    assert "$ wheel-udf init reminders" in drawn


def test_two_runs_of_a_session_are_the_same_but_for_their_times_and_what_comes_between() -> None:
    job = [
        "batch     0 | in        4 | pending         4 | lateness p50       - p99       -",
        "4 pending, the next one is due at 2026-11-29T22:16:34Z, in 5.2 s",
    ]
    later = [
        "batch     0 | in       12 | pending        11 | lateness p50  331 ms p99   1.2 s",
        "11 pending, the next one is due at 2027-01-02T03:04:05Z, in 1.3 min",
    ]
    row, cancelled = '{"schedule_id":"a","seq":1}', "cancelled 1 entry"
    command, question = "$ wheel-udf run &", "$ wheel-udf cancel"
    assert session.shapes([command, *job, question, row, cancelled]) == session.shapes(
        [command, later[0], question, row, later[1], cancelled]
    )
    assert session.shapes([command, *job]) != session.shapes([command, *job, "error: in use"])
