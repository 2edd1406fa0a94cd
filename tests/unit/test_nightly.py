"""``make nightly`` runs each stage as the Makefile has it, whatever it was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import nightly


def test_the_choice_of_stages_is_not_handed_to_the_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `make nightly ARGS='jobs page'` ran `make test-jobs` with these ARGS: pytest then looked for files of these names.
    (tmp_path / "Makefile").write_text('test-jobs:\n\t@echo "3 passed with $(or $(ARGS),nothing more)"\n')
    monkeypatch.setattr(nightly, "ROOT", tmp_path)
    monkeypatch.setattr(nightly, "OUT", tmp_path)
    monkeypatch.setenv("MAKEFLAGS", " -- ARGS=jobs\\ page")
    monkeypatch.setenv("ARGS", "jobs page")

    assert nightly.run_stage("jobs", "test-jobs")[0] == "3 passed with nothing more"
