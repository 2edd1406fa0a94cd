"""The board in memory: what shards and driver leave for each other, lost and wiped like files in a temporary folder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.simulation.disk import ProcessFailed
from wheel_udf.control.board import ACTS, RETURNED, STORES, StoreProgress


class Board:
    """As :class:`wheel_udf.control.board.ShardBoard`, without files."""

    def __init__(self, fault: str | None = None) -> None:
        self._fault = fault
        self._values: dict[tuple[str, str], Any] = {}

    def put(self, topic: Any, key: str, value: Any) -> None:
        if topic is STORES and self._fault == "the clock passes the cursor":
            assert isinstance(value, StoreProgress)
            value = replace(value, cursor_ms=2**60)
        self._values[topic.name, key] = value

    def get(self, topic: Any, key: str) -> Any:
        if topic in (ACTS, RETURNED) and (topic.name, key) not in self._values:
            raise ProcessFailed(f"{topic.name} {key}: not on the board")
        return self._values.get((topic.name, key))

    def has(self, topic: Any, key: str) -> bool:
        return (topic.name, key) in self._values

    def keys(self, topic: Any, under: str) -> list[str]:
        return [key for name, key in self._values if name == topic.name and key.startswith(f"{under}/")]

    def remove(self, topic: Any, key: str) -> None:
        for name, each in list(self._values):
            if name == topic.name and (each == key or each.startswith(f"{key}/")):
                del self._values[name, each]

    def wipe(self) -> None:
        """Loses everything, as a cleaner of temporary folders does."""
        self._values.clear()
