"""A query is stopped between two batches; how long that is waited for depends on whether somebody waits for the stop."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

from wheel_udf.spark import queries
from wheel_udf.spark.queries import stop_between_batches
from wheel_udf.tiered.queries import Position, planned_position

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class Query:
    """A query whose batches take some looks; a stop in the middle of one cuts it off.

    Args:
        looks: Looks until the batch in progress has ended.
        more: Looks from then until the next one has ended.
    """

    isActive = True  # noqa: N815  # Spark's name

    def __init__(self, looks: int, more: int = 0) -> None:
        self.left, self.more, self.stopped_with = looks, more, -1

    @property
    def lastProgress(self) -> str:  # noqa: N802  # Spark's name
        return "batch 7" if self.left > 0 else "batch 8"

    @property
    def status(self) -> dict[str, Any]:
        self.left -= 1
        return {"isTriggerActive": self.left > -self.more}

    def stop(self) -> None:
        self.stopped_with = self.left


def test_the_position_of_a_planned_batch_is_known_before_the_batch_has_ended(tmp_path: Path) -> None:
    assert planned_position(str(tmp_path)) is None
    log = tmp_path / "offsets"
    log.mkdir()
    (log / "0").write_text('v1\n{}\n{"wheel_clock": 1, "instant_ms": 50, "version": 3}\n-')
    (log / "1").write_text('v1\n{}\n{"wheel_clock": 2, "instant_ms": 70, "version": 5}\n{"index": -1}')
    assert planned_position(str(tmp_path)) == Position(5, 70)


stop = partial(stop_between_batches, poll_s=0.001, longest_wait_s=0.003)


def test_a_run_that_ends_by_itself_waits_for_its_batch_however_long_that_takes() -> None:
    query = Query(looks=20)
    stop(query, lambda: False)  # type: ignore[arg-type]  # all that it uses is there
    assert query.stopped_with == 0


def test_a_run_that_ends_by_itself_does_not_cut_off_a_batch_that_has_begun_meanwhile() -> None:
    # It stayed planned, so that the job could not be exported.
    query = Query(looks=20, more=5)
    stop(query, lambda: False)  # type: ignore[arg-type]
    assert query.stopped_with == -5


def test_a_stop_that_somebody_has_asked_for_waits_for_one_batch_only() -> None:
    query = Query(looks=2, more=5)
    stop(query)  # type: ignore[arg-type]
    assert query.stopped_with == 0


def test_a_stop_that_somebody_has_asked_for_cuts_a_long_batch_off() -> None:
    query = Query(looks=20)
    stop(query)  # type: ignore[arg-type]
    assert query.stopped_with == 17


def test_a_stop_that_is_asked_for_meanwhile_waits_no_longer_than_any_other() -> None:
    query = Query(looks=20)
    stop(query, lambda: query.left < 10)  # type: ignore[arg-type]
    assert query.stopped_with == 7


def test_the_end_of_the_input_is_awaited_again_after_an_error_that_did_not_end_the_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queries, "BOUNDS_SOURCES", False)
    query, writer, stopped = Mock(isActive=True, status={"isTriggerActive": False}), Mock(), threading.Event()
    query.processAllAvailable.side_effect = [ConnectionError("py4j: broken pipe"), None]
    query.stop.side_effect = stopped.set
    writer.trigger.return_value.start.return_value = query

    queries.start_with(writer, queries.AVAILABLE_NOW, python_source=True)

    assert stopped.wait(30)
    query.isActive = False
    assert query.processAllAvailable.call_count == 2
