"""What ``play`` refuses before it starts Spark; what it does is in the guide, which is run as a test."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from wheel_udf.common.errors import ConfigError
from wheel_udf.testing.stage import play

TEN = "2026-01-01T10:00:00Z"


@pytest.mark.parametrize(
    ("instants", "said"),
    [
        ([], "nothing to play: batches; rule: at least one batch"),
        (["soon"], "not an instant: batches = 'soon'"),
        ([TEN, "2026-01-01T09:59:59Z"], "a batch before the one before it"),
        ([datetime(2026, 1, 1)], "an instant without a time zone"),  # noqa: DTZ001
        ([TEN, datetime(2026, 1, 1, 9, tzinfo=UTC)], "a batch before the one before it"),
    ],
)
def test_instants_are_in_order_and_have_a_zone(instants: list[Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        play(None, [(at, []) for at in instants], "id string", lambda rows, _: rows)  # type: ignore[arg-type]
