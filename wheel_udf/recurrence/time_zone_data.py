"""Which time zone data is in use: rules of zones change several times a year, and two machines may differ."""

from __future__ import annotations

import zoneinfo
from importlib import import_module
from pathlib import Path
from typing import Final

_UNKNOWN: Final = "unknown"
# A zone that all copies of the data have.
_SAMPLE: Final = "Europe/Paris"
_MARK: Final = "# version "


def time_zone_data_version() -> str:
    """The version of the time zone data that :mod:`zoneinfo` reads, such as ``2025b``; ``unknown`` where it does not
    say.

    It reads the system's, from the first folder of ``zoneinfo.TZPATH`` that has any; else those of the package tzdata.
    """
    for folder in map(Path, zoneinfo.TZPATH):
        if (folder / _SAMPLE).is_file():
            return _of_folder(folder)
    try:
        return str(import_module("tzdata").IANA_VERSION)
    except (ModuleNotFoundError, AttributeError):
        return _UNKNOWN


def _of_folder(folder: Path) -> str:
    try:
        with (folder / "tzdata.zi").open(encoding="utf-8") as lines:
            first = lines.readline(100).strip()
        if first.startswith(_MARK):
            return first.removeprefix(_MARK)
    except (OSError, UnicodeDecodeError):
        pass
    try:
        return (folder / "+VERSION").read_text(encoding="utf-8").strip() or _UNKNOWN
    except (OSError, UnicodeDecodeError):
        return _UNKNOWN
