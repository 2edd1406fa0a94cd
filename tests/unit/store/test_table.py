"""A table that can no longer be trusted as a slot store is refused before anything is read of it. No JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wheel_udf.common.errors import StoreError
from wheel_udf.common.geometry import Wheel
from wheel_udf.store.layout import StoreLayout
from wheel_udf.store.table import PARTITIONED_BY, STORE_SCHEMA, is_made, table_properties
from wheel_udf.tables.delta_transaction import Transaction

LAYOUT = StoreLayout(Wheel(tick_ms=1_000, size=20, levels=4), state_levels=1)
NO_SPARK: Any = None


def made(folder: Path, **properties: str) -> str:
    place = str(folder / "store")
    given = table_properties(LAYOUT, 1_000) | {f"delta.{name}": value for name, value in properties.items()}
    Transaction(place).commit_creation(STORE_SCHEMA, PARTITIONED_BY, given)
    return place


def test_a_store_as_it_is_made_is_taken(tmp_path: Path) -> None:
    assert is_made(NO_SPARK, made(tmp_path), LAYOUT)


@pytest.mark.parametrize(
    ("name", "value"),
    [("enableDeletionVectors", "true"), ("setTransactionRetentionDuration", "interval 7 days")],
)
def test_a_store_whose_files_or_marks_are_not_whole_is_refused(tmp_path: Path, name: str, value: str) -> None:
    place = made(tmp_path, **{name: value})
    with pytest.raises(
        StoreError, match=rf"cannot be trusted: .*store: delta\.{name} = '{value}'; rule: not set"
    ):
        is_made(NO_SPARK, place, LAYOUT)
