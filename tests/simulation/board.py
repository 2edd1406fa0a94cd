"""The hint board in memory: the shards' answers for the clock source, lost and wiped like files in a temporary folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.simulation.disk import ProcessFailed
from wheel_udf.clock import Answer, Published


class Board:
    """As :class:`wheel_udf.clock.HintBoard`, without files."""

    def __init__(self, fault: str | None = None) -> None:
        self._fault = fault
        self._answers: dict[str, dict[int, Answer]] = {}
        self._runs: dict[str, str] = {}
        self._stores: dict[str, Published] = {}
        self._frames: dict[str, str] = {}
        self._acts: dict[tuple[str, int], Mapping[str, str]] = {}

    def post(self, query_id: str, run: str | None, answers: Mapping[int, Answer]) -> None:
        self._answers.setdefault(query_id, {}).update(answers)
        if run:
            self._runs.setdefault(run, query_id)

    def answers(self, run: str) -> dict[int, Answer]:
        return dict(self._answers.get(self._runs.get(run, ""), {}))

    def expect(self, frame: str, query_id: str) -> None:
        self._frames[frame] = query_id

    def query_of(self, run: str, frame: str) -> str | None:
        return self._runs.get(run) or self._frames.get(frame)

    def post_act(self, query_id: str, number: int, rows: Mapping[str, str]) -> None:
        self._acts.setdefault((query_id, number), rows)

    def acts(self, query_id: str, first: int) -> int:
        while (query_id, first) in self._acts:
            first += 1
        return first

    def act(self, query_id: str, number: int) -> Mapping[str, str]:
        if (query_id, number) not in self._acts:
            raise ProcessFailed(f"act {number} is not on the board")
        return self._acts[query_id, number]

    def publish(self, token: str, published: Published) -> None:
        if self._fault == "the clock passes the cursor":
            published = replace(published, cursor_ms=2**60)
        self._stores[token] = published

    def published(self, token: str) -> Published | None:
        return self._stores.get(token)

    def withdraw(self, token: str) -> None:
        self._stores.pop(token, None)

    def wipe(self) -> None:
        """Loses everything, as a cleaner of temporary folders does."""
        self.__init__(self._fault)  # type: ignore[misc]
