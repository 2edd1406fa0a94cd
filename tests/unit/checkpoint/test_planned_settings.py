"""The journal of planned settings: each batch finds the settings that it was planned with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wheel_udf.checkpoint.planned_settings import PlannedSettings
from wheel_udf.common.errors import CheckpointError


def test_a_planned_batch_finds_its_own_settings_and_the_next_the_new_ones(tmp_path: Path) -> None:
    journal = PlannedSettings(str(tmp_path))
    journal.record({"limit": 100}, from_batch=0)
    PlannedSettings(str(tmp_path)).record({"limit": 7}, from_batch=5)
    assert [journal.settings_of(batch_id) for batch_id in (0, 4, 5, 99)] == [
        {"limit": 100},
        {"limit": 100},
        {"limit": 7},
        {"limit": 7},
    ]


def test_settings_that_never_planned_a_batch_are_forgotten(tmp_path: Path) -> None:
    journal = PlannedSettings(str(tmp_path))
    journal.record({"limit": 1}, from_batch=0)
    journal.record({"limit": 2}, from_batch=3)
    journal.record({"limit": 3}, from_batch=3)
    assert (journal.settings_of(2), journal.settings_of(3)) == ({"limit": 1}, {"limit": 3})


def test_the_journal_does_not_grow(tmp_path: Path) -> None:
    journal = PlannedSettings(str(tmp_path))
    for batch_id in range(50):
        journal.record({"limit": batch_id}, from_batch=batch_id)
    assert len(json.loads((tmp_path / "wheel-settings.json").read_text())) == 2
    assert (journal.settings_of(48), journal.settings_of(49)) == ({"limit": 48}, {"limit": 49})
    assert journal.settings_of(40) is None


def test_unchanged_settings_write_nothing(tmp_path: Path) -> None:
    journal = PlannedSettings(str(tmp_path))
    journal.record({"allow": ("a", "b")}, from_batch=0)
    written = (tmp_path / "wheel-settings.json").stat().st_ino
    journal.record({"allow": ("a", "b")}, from_batch=9)
    assert (tmp_path / "wheel-settings.json").stat().st_ino == written
    assert journal.settings_of(9) == {"allow": ["a", "b"]}


def test_a_batch_from_before_the_journal_has_no_settings(tmp_path: Path) -> None:
    journal = PlannedSettings(str(tmp_path))
    assert journal.settings_of(0) is None
    journal.record({"limit": 1}, from_batch=4)
    assert journal.settings_of(3) is None


@pytest.mark.parametrize("content", ["", "[{]", "{}", '[{"from_batch": "0", "settings": {}}]'])
def test_a_damaged_journal_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "wheel-settings.json").write_text(content)
    with pytest.raises(CheckpointError, match="journal of settings is damaged"):
        PlannedSettings(str(tmp_path)).settings_of(0)
