"""What fault tests share."""

from __future__ import annotations

import pytest


@pytest.fixture
def _not_in_a_share(request: pytest.FixtureRequest) -> None:
    """Leaves a test to runs of the whole (``make faults``)."""
    if request.config.getoption("--share") < 1:
        pytest.skip("a share of the faults (--share) goes without it")
