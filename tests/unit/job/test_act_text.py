"""What the verbs that act on pending entries print."""

from __future__ import annotations

import pytest

from wheel_udf.job.verbs import act_text


@pytest.mark.parametrize(
    ("verb", "count", "noun", "dry_run", "text"),
    [
        ("cancel", 5, "entry", True, "would cancel 5 entries (dry run)"),
        ("cancel", 43, "entry", False, "cancelled 43 entries"),
        ("move", 1, "entry", True, "would move 1 entry (dry run)"),
        ("move", 1, "entry", False, "moved 1 entry"),
        ("reroute", 0, "entry", False, "rerouted 0 entries"),
        ("cancel", 2, "operation", False, "cancelled 2 operations"),
    ],
)
def test_an_act_says_what_it_did_or_would_do(
    verb: str, count: int, noun: str, dry_run: bool, text: str
) -> None:
    assert act_text(verb, count, noun, dry_run=dry_run) == text
