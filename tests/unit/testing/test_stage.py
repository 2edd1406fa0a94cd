"""What ``play`` refuses before it starts Spark; what it does is in the guide, which is run as a test."""

from __future__ import annotations

from typing import Any

import pytest

from wheel_udf.common.errors import ConfigError
from wheel_udf.testing.stage import play


@pytest.mark.parametrize(
    ("instants", "said"), [([], "or a list of instants"), (["soon"], "Invalid isoformat string: 'soon'")]
)
def test_batches_need_instants(instants: list[Any], said: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=said):
        play(None, [(at, []) for at in instants], "id string", lambda rows, _: rows)  # type: ignore[arg-type]
