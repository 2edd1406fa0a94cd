"""Config files of tests, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheel_udf.common.errors import ConfigErrors
from wheel_udf.job import loader as config


def written(folder: Path, text: str) -> Path:
    """A file with this text."""
    path = folder / "job.yml"
    path.write_text(text)
    return path


def faults_of(file: Path, *overrides: str) -> list[str]:
    """All that is wrong with a config, a text each."""
    with pytest.raises(ConfigErrors) as caught:
        config.load(file, overrides)
    return [str(fault) for fault in caught.value.faults]
