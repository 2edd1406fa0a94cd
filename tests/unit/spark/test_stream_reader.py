"""A source knows where its next batch begins, whichever way its Spark asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from wheel_udf.spark.stream_reader import StreamReader

LAST = {"n": 5}


class Counting(StreamReader):
    """Offers one more than where it begins, up to the last."""

    def first_offset(self) -> dict[str, Any]:
        return {"n": 0}

    def next_offset(self, start: dict[str, Any]) -> dict[str, Any]:
        return start if start == LAST else {"n": start["n"] + 1}

    def parts(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition((start["n"], end["n"]))]

    def read(self, partition: InputPartition) -> Iterator[Any]:  # noqa: ARG002
        return iter(())


class NewSpark:
    """Asks as Spark 4.2 does, from a log of offsets."""

    def __init__(self, log: list[dict[str, Any]]) -> None:
        self.reader, self.log = Counting(), log

    def batch(self) -> tuple[int, int] | None:
        start = self.log[-1] if self.log else self.reader.initialOffset()
        end = self.reader.latestOffset(start, None)
        if end == start:
            return None
        self.log.append(end)
        (part,) = self.reader.partitions(start, end)
        return part.value  # type: ignore[no-any-return]


class OldSpark(NewSpark):
    """Asks as Spark 4.0 and 4.1 do: MicroBatchExecution, PythonMicroBatchStream.setLatestSeenOffset."""

    def __init__(self, log: list[dict[str, Any]]) -> None:
        super().__init__(log)
        if log:
            self.reader.partitions(log[-1], log[-1])

    def batch(self) -> tuple[int, int] | None:
        end = self.reader.latestOffset()
        start = self.log[-1] if self.log else self.reader.initialOffset()
        if end == start:
            return None
        self.log.append(end)
        (part,) = self.reader.partitions(start, end)
        return part.value  # type: ignore[no-any-return]


@pytest.mark.parametrize("way", [NewSpark, OldSpark])
def test_batch_follows_batch_over_starts_anew(way: type[NewSpark]) -> None:
    log: list[dict[str, Any]] = []
    first = way(log)
    assert [first.batch(), first.batch()] == [(0, 1), (1, 2)]
    second = way(log)
    assert [second.batch() for _ in range(4)] == [(2, 3), (3, 4), (4, 5), None]
    assert way(log).batch() is None


@pytest.mark.parametrize("way", [NewSpark, OldSpark])
def test_a_planned_batch_that_is_repeated_is_where_the_next_one_begins(way: type[NewSpark]) -> None:
    log = [{"n": 1}, {"n": 2}]
    started = way(log[:])
    assert [part.value for part in started.reader.partitions(*log)] == [(1, 2)]
    assert started.batch() == (2, 3)


def test_an_empty_range_has_no_parts() -> None:
    assert Counting().partitions({"n": 2}, {"n": 2}) == []
