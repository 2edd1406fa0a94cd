"""The verbs of the command line over a tiered wheel in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.command_line import say


def ask(
    folder: Path, verb: str, *arguments: str, without: tuple[str, ...] = (), **more: Any
) -> tuple[int, list[str], list[str]]:
    """What a verb says of the wheel whose input, tables, rejects, store and checkpoint are in a folder.

    Args:
        folder: Theirs.
        verb: Of the command line.
        arguments: Of the verb.
        without: Sections that the config lacks.
        more: Further sections of the config.

    Returns:
        The exit code, and the lines on both outputs.
    """
    place = {name: str(folder / name) for name in ("in", "tables", "rejects", "store", "checkpoint")}
    settings = {
        "name": "desk",
        "mode": "tiered",
        "wheel": {"tick": "1 second", "size": 20, "levels": 4, "shards": 2, "state_levels": 1},
        "clock": {"kind": "event", "max_ahead": "none"},
        "source": {"format": "parquet", "path": place["in"], "schema": "schedule_id string"},
        "destinations": {"*": {"sink": "delta", "path": place["tables"], "create": True}},
        "rejects": {"sink": "delta", "path": place["rejects"]},
        "store": {"path": place["store"]},
        "checkpoint": place["checkpoint"],
    }
    file = folder / "job.yml"
    settings = {name: value for name, value in (settings | more).items() if name not in without}
    file.write_text(json.dumps(settings), encoding="utf-8")
    code, out, err = say(file, verb, *arguments)
    return code, out.splitlines(), err.splitlines()
