"""The command line inside the test's own process."""

from __future__ import annotations

import io
from pathlib import Path
from typing import NamedTuple

from wheel_udf.job.cli import main


class Said(NamedTuple):
    """What a verb has said."""

    code: int
    out: str
    err: str


def say(config: Path, verb: str, *more: str) -> Said:
    """Executes a verb of the command line with a config file."""
    out, err = io.StringIO(), io.StringIO()
    code = main([verb, "--config", str(config), *more], out=out, err=err)
    return Said(code, out.getvalue(), err.getvalue())
