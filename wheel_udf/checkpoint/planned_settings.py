"""The journal of planned settings: a batch is replayed with the settings that it was planned with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from wheel_udf.common.errors import REPAIR, CheckpointError
from wheel_udf.spark.files import json_bytes, open_folder, parsed_json

_SETTINGS: Final = "wheel-settings.json"


class PlannedSettings:
    """The settings that change the rows of a batch, each with the first batch that it applies to.

    At a start: ``record(settings, last_planned + 1)``; in each batch: ``settings_of(batch_id)``. A batch that was
    planned under earlier settings gets them again; later batches get the new ones. Only settings that a replay can
    need are kept.

    Args:
        path: The checkpoint folder.
    """

    def __init__(self, path: str) -> None:
        self._files = open_folder(path)

    def record(self, settings: Mapping[str, Any], from_batch: int) -> None:
        """Records that `settings` (any JSON values) apply from a batch on that is not planned yet.

        Raises:
            CheckpointError: The journal is damaged.
        """
        wanted = json.loads(json.dumps(dict(settings)))  # as it will be read back: tuples become lists
        entries = self._entries()
        earlier = [entry for entry in entries if entry["from_batch"] < from_batch][-1:]
        if not earlier or earlier[0]["settings"] != wanted:
            earlier.append({"from_batch": from_batch, "settings": wanted})
        if earlier != entries:
            self._files.replace(_SETTINGS, json_bytes(earlier))

    def settings_of(self, batch_id: int) -> dict[str, Any] | None:
        """The settings of a batch; None if none were recorded for it.

        Raises:
            CheckpointError: The journal is damaged.
        """
        found: dict[str, Any] | None = None
        for entry in self._entries():
            if entry["from_batch"] <= batch_id:
                found = entry["settings"]
        return found

    def _entries(self) -> list[dict[str, Any]]:
        content = self._files.read(_SETTINGS)
        entries = parsed_json(content) if content is not None else []
        if not isinstance(entries, list) or not all(_is_entry(entry) for entry in entries):
            raise CheckpointError(
                "the journal of settings is damaged", field=self._files.name(_SETTINGS), hint=REPAIR
            )
        return entries


def _is_entry(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and type(entry.get("from_batch")) is int
        and isinstance(entry.get("settings"), dict)
    )
