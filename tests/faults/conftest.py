"""What fault tests share, and their order: the longest first."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

_LONG: Final = (
    "test_matrix",
    "test_damage",
    "test_disk_full",
    "test_damaged_checkpoint",
    "test_punctual",
    "test_wall_clock",
)
"""The longest files, in the order in which they begin. With those at the end, one of two processes would wait for the
other for minutes.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The chains of the matrix first, those of the tiered mode before the others."""
    items.sort(key=_place)


def _is_here(item: pytest.Item) -> bool:
    return Path(__file__).parent in item.path.parents


def _place(item: pytest.Item) -> tuple[bool, int, bool]:
    name = item.path.stem
    return not _is_here(item), _LONG.index(name) if name in _LONG else len(_LONG), "[tiered" not in item.name


@pytest.fixture
def _not_in_a_share(request: pytest.FixtureRequest) -> None:
    """Leaves a test to runs of the whole (``make faults``)."""
    if request.config.getoption("--share") < 1:
        pytest.skip("a share of the faults (--share) goes without it")
