"""What outlives a process: the files of checkpoints, and the moments at which a process can die.

::

    process --point()--> dies here? --no--> one atomic effect on the disk --> goes on
                              |
                              yes: Crash, which nothing in a process catches; what is on the disk stays

The files are those that Spark and this package write, under the same names and with the same content. So the real
:mod:`wheel_udf.checkpoint.spark_logs`, ``identity`` and ``planned_settings`` read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Self
from unittest.mock import patch

from tests.simulation.core import light
from wheel_udf.common.errors import LeaseError

if TYPE_CHECKING:
    from tests.simulation.world import World


class Crash(BaseException):  # no error: an end that no handler may catch
    """The process ends at this moment."""


class ProcessFailed(Exception):  # noqa: N818  # named as Spark's own event
    """The process ends with an error, as a query does whose log another one has written."""


class Folder:
    """A folder in memory, as :class:`wheel_udf.spark.files.Folder`."""

    def __init__(self, world: World, path: str) -> None:
        self.world, self.path = world, path

    def name(self, name: str = "") -> str:
        return self._at(name)

    def names(self, folder: str = "") -> list[str]:
        at = self._at(folder)
        below = {other[len(at) + 1 :].partition("/")[0] for other in self.world.files if _is_below(other, at)}
        return [*self.world.files.get(at, ()), *below]

    def read(self, name: str) -> bytes | None:
        folder, _, file = self._at(name).rpartition("/")
        return self.world.files.get(folder, {}).get(file)

    def replace(self, name: str, content: bytes) -> None:
        self.world.point(f"write {name}")
        folder, _, file = self._at(name).rpartition("/")
        self.world.files.setdefault(folder, {})[file] = content

    def create(self, name: str, content: bytes, *, flush: bool = True) -> bool:  # noqa: ARG002  # nothing is on a disk
        if self.read(name) is not None:
            return False
        self.replace(name, content)
        return True

    def remove_files(self, folder: str, names: Sequence[str]) -> None:
        for name in names:
            self.remove(f"{folder}/{name}")

    def remove(self, name: str) -> None:
        at = self._at(name)
        folder, _, file = at.rpartition("/")
        self.world.files.get(folder, {}).pop(file, None)
        for other in [each for each in self.world.files if each == at or _is_below(each, at)]:
            del self.world.files[other]

    def create_log(self, name: str, content: bytes) -> None:
        """Writes a file that must not exist yet, as Spark writes its logs."""
        if self.read(name) is not None and self.world.fault != "zombie commit accepted":
            raise ProcessFailed(f"another query has written {name}")
        self.replace(name, content)

    def _at(self, name: str) -> str:
        return f"{self.path}/{name}" if name else self.path


def _is_below(folder: str, top: str) -> bool:
    return len(folder) > len(top) and folder.startswith(top) and folder[len(top)] == "/"


class Lease:
    """The lease of a folder, as :class:`wheel_udf.checkpoint.lease.Lease`; the kernel gives it back when its process ends."""

    def __init__(self, world: World, path: str) -> None:
        self.world, self.path = world, path

    def acquire(self) -> Self:
        self.world.point("lease")
        holder = self.world.leases.setdefault(self.path, self.world.process)
        if holder != self.world.process:
            raise LeaseError("the checkpoint is in use", field=self.path)
        return self

    def close(self) -> None:
        self.world.leases.pop(self.path, None)

    def check(self) -> None:
        """A zombie still believes that it has the lease, as after a pause between the check and the write."""

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.close()


_current: list[World] = []


def _folder(path: str) -> Folder:
    return Folder(_current[-1], path)


@contextmanager
def inside(world: World) -> Iterator[None]:
    """Inside, the real code reads the folders, leases and clocks of this world."""
    _current.append(world)
    try:
        yield
    finally:
        _current.pop()


@contextmanager
def installed() -> Iterator[None]:
    """Puts the world of :func:`inside` under the real code, in place of files, kernel locks and clocks."""
    from tests.simulation import tier_rows
    from tests.simulation.frames import Columns
    from tests.simulation.store_model import Log, Transaction
    from wheel_udf.tiered.keeper import FileBounds, Keeper

    rooms = ("identity", "spark_logs", "planned_settings", "act_files", "returned_files")
    clock = "wheel_udf.control.wall"
    with ExitStack() as stack:
        for room in rooms:
            stack.enter_context(patch(f"wheel_udf.checkpoint.{room}.open_folder", _folder))
        stack.enter_context(patch("wheel_udf.delivery.act_courier.open_folder", _folder))
        stack.enter_context(patch("wheel_udf.job.replay.Lease", lambda path: Lease(_current[-1], path)))
        stack.enter_context(patch(f"{clock}.wall_clock_ms", lambda: _current[-1].wall_ms))
        stack.enter_context(patch(f"{clock}.elapsed_ms", lambda: _current[-1].elapsed_ms))
        tiered, run = "wheel_udf.tiered", "wheel_udf.tiered.run"
        for name, other in {
            f"{run}.wall_clock_ms": lambda: _current[-1].wall_ms,
            f"{run}_clock.wall_clock_ms": lambda: _current[-1].wall_ms,
            f"{run}.ShardBoard": lambda: _current[-1].board,
            f"{tiered}.keeper.stored_rows": tier_rows.stored_rows,
            f"{tiered}.keeper.F": Columns,
            f"{run}.Keeper": partial(Keeper, bounds=FileBounds(inbox=2, near=2, joined=2)),
            f"{tiered}.hand_over.prepare": tier_rows.prepare,
            f"{tiered}.hand_over.news_since": tier_rows.news_since,
            f"{tiered}.hand_over.to_lower_levels": tier_rows.to_lower_levels,
            f"{tiered}.retirement.rows_of_marks": tier_rows.marks,
            f"{tiered}.keeper.open_folder": _folder,
            "wheel_udf.pending.acts_on_store.stored_rows": tier_rows.stored_rows,
            "wheel_udf.pending.acts_on_store.commands_of": lambda _spark, _path, rows: _current[
                -1
            ].commands_of_act(rows),
            "wheel_udf.store.slot_store.F": Columns,
            "wheel_udf.store.slot_store.Transaction": Transaction,
            "wheel_udf.store.slot_store.tables": Log,
            "wheel_udf.store.log.tables": Log,
            "wheel_udf.tables.delta_files.delta_log": Log,
        }.items():
            stack.enter_context(patch(name, other))
        stack.enter_context(light())
        yield
