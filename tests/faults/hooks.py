"""Puts a trap into the code of the driver and of the workers, at the points that files do not tell. Only a victim's
process does this.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from tests.faults.trap import Trap
from wheel_udf.pending import audit
from wheel_udf.shard.chunk_files import ChunkFiles
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import FIRED, Shape
from wheel_udf.sinks.kafka_sink import KafkaSink
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.stream import schedule_operator, watch_operator
from wheel_udf.stream.watch_worker import WatchWorker
from wheel_udf.stream.wheel_worker import WheelWorker
from wheel_udf.tables.delta_transaction import Transaction
from wheel_udf.tiered import run
from wheel_udf.tiered.keeper import Keeper
from wheel_udf.transfer import exporting, importing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from wheel_udf.delivery.report import BatchReport

_TRAP = Trap.of_environment()
_PATIENCE_S = 60


# ---- workers -------------------------------------------------------------------------------------


class _Trapped:
    """What both workers have: a trap before and behind the step of a shard."""

    def batch(self, shard: int, rows: Any, group: Any) -> pd.DataFrame:
        _trap_chunk_files()
        _TRAP.passes("in the function, before its step")
        done: pd.DataFrame = super().batch(shard, rows, group)  # type: ignore[misc]
        _TRAP.passes("in the function, after its step")
        return done


@cache
def _trap_chunk_files() -> None:
    """Of this worker process."""
    passed = lambda *_, **__: _TRAP.passes("in the function, files of chunks written, their note not")  # noqa: E731
    _before(ChunkFiles, "release_files", passed)


@dataclass(frozen=True)
class TrappedWheelWorker(_Trapped, WheelWorker):
    """A wheel's worker with a trap."""


@dataclass(frozen=True)
class TrappedWatchWorker(_Trapped, WatchWorker):
    """A purgatory's worker with a trap."""


def _read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        _TRAP.passes("in the source read")


def trapped_source(frame: DataFrame) -> DataFrame:
    """The same rows, read through a worker with a trap."""
    return frame.mapInArrow(_read, frame.schema) if _TRAP.point == "in the source read" else frame


# ---- sinks ---------------------------------------------------------------------------------------


class TrappedSink(DeltaSink):
    """A Delta sink with a trap before and behind each table."""

    def write(
        self, frame: DataFrame, destination: str | None, *, app_id: str, batch_id: int, shape: Shape = FIRED
    ) -> None:
        """As the sink does."""
        if destination is None:
            _TRAP.passes("after the Delta commits, before the rejects", batch_id)
        else:
            _TRAP.passes("before the Delta commits", batch_id)
            _in_turn("between Kafka and Delta", _SENT, batch_id)
        super().write(frame, destination, app_id=app_id, batch_id=batch_id, shape=shape)
        if destination is not None:
            _TRAP.passes("between two Delta commits", batch_id)
            _COMMITTED.set()


_SENT, _COMMITTED = threading.Event(), threading.Event()


def _in_turn(point: str, other: threading.Event, key: object = None) -> None:
    """The two sinks of a batch write at the same time: here the one waits for the other."""
    if _TRAP.point == point:
        assert other.wait(_PATIENCE_S), "every batch has rows for both"
        _TRAP.passes(point, key)
        other.clear()


def on_batch(report: BatchReport) -> None:
    """The rows of a batch are written; Spark is about to note that in its commit log."""
    _TRAP.passes("before the commit log", report.batch_id, within_s=0.03)


# ---- the driver ----------------------------------------------------------------------------------


def _before(owner: Any, name: str, step: Callable[..., None]) -> None:
    """Calls a function with the same arguments before each call of another."""
    kept = getattr(owner, name)

    def call(*given: Any, **named: Any) -> Any:
        step(*given, **named)
        return kept(*given, **named)

    setattr(owner, name, call)


def _after(owner: Any, name: str, step: Callable[..., None]) -> None:
    """Calls a function with the result and the same named arguments after each call of another."""
    kept = getattr(owner, name)

    def call(*given: Any, **named: Any) -> Any:
        done = kept(*given, **named)
        step(done, **named)
        return done

    setattr(owner, name, call)


def _about_to_commit(_transaction: Transaction, _files: Any, **named: Any) -> None:
    """All of a commit's files are written."""
    writer = str(named["app_id"]).rpartition("-")[2]
    points = {"intake": "before the commit of the intake", "cascade": "in a hand-over, before its commit"}
    if writer in points:
        _TRAP.passes(points[writer], named["batch_id"])
    elif writer not in ("acts", "retire", "import"):
        _TRAP.passes("in a Delta commit, its files written", named["batch_id"])


def _appended(done: Any, **named: Any) -> None:
    if done.written and str(named["app_id"]).endswith("-intake"):
        _TRAP.passes("after the commit of the intake")


def _about_to_drop(_keeper: Keeper, partitions: Any, _version: int) -> None:
    if partitions:
        _TRAP.passes("in a hand-over, between append and drop")


def _retire(keeper: Keeper, *given: Any, **named: Any) -> None:
    """The next drop of this store is that of a retirement."""
    _RETIRING.append(keeper)


def _drop(_store: SlotStore, *_: Any, **__: Any) -> None:
    if _RETIRING:
        _TRAP.passes("in a retirement, between append and drop")


_RETIRING: list[Keeper] = []


def _about_to_mark_import(*_: Any, done: bool, **__: Any) -> None:
    if done:
        _TRAP.passes("in an import, before it is done")


def put_traps() -> None:
    """Replaces the functions of this process by such with a trap."""
    schedule_operator.WheelWorker = TrappedWheelWorker  # type: ignore[misc]
    watch_operator.WatchWorker = TrappedWatchWorker  # type: ignore[misc]
    _before(Transaction, "commit_append", _about_to_commit)
    _after(SlotStore, "append", _appended)
    _before(Keeper, "drop_partitions", _about_to_drop)
    _before(Keeper, "retire", _retire)
    _after(Keeper, "retire", lambda _, **__: _RETIRING.clear())
    _before(SlotStore, "drop", _drop)
    _before(audit, "create_act", lambda *_: _TRAP.passes("in an act, before its commit"))
    _after(audit, "create_act", lambda _: _TRAP.passes("in an act, after its commit"))
    _after(exporting, "write_rows", lambda _: _TRAP.passes("in an export, between two tables"))
    _before(exporting, "write_manifest", lambda *_: _TRAP.passes("in an export, before its manifest"))
    _before(exporting, "mark_exported", lambda *_: _TRAP.passes("in an export, before the mark"))
    _before(importing, "mark_import", _about_to_mark_import)
    _before(KafkaSink, "write_all", lambda *_, **__: _in_turn("between Delta and Kafka", _COMMITTED))
    _after(KafkaSink, "write_all", lambda *_, **__: _SENT.set())
    run.TEND_EVERY_POLLS = 5  # type: ignore[misc]  # retires every half second
