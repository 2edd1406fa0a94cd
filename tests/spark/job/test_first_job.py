"""A first job, as a new user types it, prints what the picture in the README shows."""

from __future__ import annotations

from tests.terminal import session


def test_the_recorded_session_is_what_a_terminal_shows_today() -> None:
    recorded = session.TEXT.read_text("utf-8").splitlines()
    assert session.shapes(session.recorded()) == session.shapes(recorded), (
        "python -m tests.terminal.session records it again"
    )
