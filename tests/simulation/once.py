"""Each version of an id is delivered at most once, whichever destination; decided from what the sinks got, without a
model of the wheel.

::

    batch         1              2                     5
    read          a 1 (due 10)   -                     a 1 (due 40), said again
    delivered                    a 1, at 10            a 1, at 40      only if the wheel had forgotten the first: read at 10 + memory or later

An act (move, reroute) says nothing anew: it changes a version that the producer has said. A repeated batch is the same
delivery.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.simulation.core import Command

_Name = tuple[Any, ...]
"""Id and seq; of an occurrence of a series, its nominal time, too."""


class Deliveries:
    """What was said and what was delivered, by id and ``seq``.

    Args:
        memory_ms: How long ended ids are remembered.
    """

    def __init__(self, memory_ms: int | None) -> None:
        self.memory_ms = memory_ms
        self._said: dict[_Name, list[tuple[int, int]]] = {}
        self._delivered: dict[_Name, dict[int, int]] = {}

    def read(self, batch_id: int, commands: Iterable[Command], now_ms: int) -> None:
        """A batch reads commands at an instant of the wheel's clock."""
        for each in commands:
            if not each.op and not each.bad and not getattr(each, "amend", 0):
                self._said.setdefault((each.id, each.seq), []).append((batch_id, now_ms))

    def repeated(self, batch_id: int, name: _Name, at_ms: int) -> bool:
        """Notes that a batch delivers a version; whether it was delivered before and not said anew since it was
        forgotten.
        """
        batches = self._delivered.setdefault(name, {})
        batches[batch_id] = at_ms
        before = max((each for each in batches if each < batch_id), default=None)
        if before is None:
            return False
        if self.memory_ms is None:
            return True
        forgotten_ms = batches[before] + self.memory_ms
        return not any(
            before < read_in <= batch_id and read_ms >= forgotten_ms
            for read_in, read_ms in self._said.get(name, ())
        )
