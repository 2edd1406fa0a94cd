"""What the verbs that act on pending entries print."""

from __future__ import annotations

import pytest

from wheel_udf.job.verbs import _act_text


@pytest.mark.parametrize(
    ("verb", "count", "dry_run", "text"),
    [
        ("cancel", 5, True, "would cancel 5 entries (dry run)"),
        ("cancel", 43, False, "cancelled 43 entries"),
        ("move", 1, True, "would move 1 entry (dry run)"),
        ("move", 1, False, "moved 1 entry"),
        ("reroute", 0, False, "rerouted 0 entries"),
    ],
)
def test_an_act_says_what_it_did_or_would_do(verb: str, count: int, dry_run: bool, text: str) -> None:
    assert _act_text(verb, count, dry_run=dry_run) == text
