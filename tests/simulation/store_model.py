"""Delta's role under the slot store: a table of files in partitions, whose log the real :class:`SlotStore` reads and
writes.

::

    SlotStore.append, drop, rearrange, join_files, FileList, Head     real
    Transaction, commits_after, snapshots                             here: actions as Delta's log has them, in JSON's fields
    rows of a frame                                                   :class:`~tests.simulation.frames.Rows`, a list

A commit that another one was before is a conflict.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from tests.simulation.disk import Crash
from tests.simulation.frames import Rows
from wheel_udf.shard.rows import COMMAND
from wheel_udf.store.head import CURSOR
from wheel_udf.store.layout import StoreLayout
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.tables.delta_files import File
from wheel_udf.tables.delta_transaction import ConflictError, NewFiles

if TYPE_CHECKING:
    from tests.simulation.tier_rows import StoredRow
    from tests.simulation.tiered import TieredWorld

Action = dict[str, Any]

_ACT_AGAIN = "an act is taken again after a restart"
_HIDDEN = {"a batch of the intake is stored again": "-intake", _ACT_AGAIN: "-acts"}
"""Which transactions the store does not find in its log, by planted fault."""


_NUMBERS: Final = count()


@dataclass
class StoreTable:
    """The log and the files of one slot store.

    Attributes:
        world: The world.
        commits: The actions of each version.
        files: The rows of each file, those that were dropped too.
        place: Its path.
    """

    world: TieredWorld
    commits: list[list[Action]] = field(default_factory=lambda: [[]])
    files: dict[str, tuple[StoredRow, ...]] = field(default_factory=dict)
    place: str = field(default_factory=lambda: f"store-{next(_NUMBERS)}")

    @property
    def version(self) -> int:
        return len(self.commits) - 1

    def paths(self, version: int) -> list[str]:
        """The files of a version."""
        there: dict[str, None] = {}
        for actions in self.commits[: version + 1]:
            for action in actions:
                if "deletionTimestamp" in action:
                    there.pop(action["path"], None)
                elif "path" in action:
                    there[action["path"]] = None
        return list(there)

    def rows(self, paths: Iterable[str]) -> list[StoredRow]:
        """The rows of files."""
        return [row for path in paths for row in self.files[path]]

    def near_rows(self, after: int, to: int) -> list[StoredRow]:
        """What a stream of the near rows reads of the commits after one version and up to another."""
        found: list[StoredRow] = []
        for actions in self.commits[after + 1 : to + 1]:
            if any("deletionTimestamp" in action and action["dataChange"] for action in actions):
                continue  # skipChangeCommits
            added = [a["path"] for a in actions if "modificationTime" in a and a["dataChange"]]
            found += [row for row in self.rows(added) if row.level == 0]
            hands_over = any(action.get("appId", "").endswith("-cascade") for action in actions)
            if hands_over and self.world.fault == "an occurrence is lost at the hand-over":
                found = [row for row in found if row.repeat is None]
        return found

    def transactions(self, version: int) -> dict[str, int]:
        """The last transaction of each app id."""
        return {
            action["appId"]: action["version"]
            for actions in self.commits[: version + 1]
            for action in actions
            if "appId" in action
        }


@dataclass(frozen=True)
class Snapshot:
    """A version of the table, as :class:`wheel_udf.tables.table_state.TableState`."""

    table: StoreTable
    version: int
    hidden: str | None = None
    table_id: str = "store"

    def transactions(self) -> dict[str, int]:
        found = self.table.transactions(self.version)
        return {name: at for name, at in found.items() if not self.hidden or not name.endswith(self.hidden)}


_TABLES: Final[WeakValueDictionary[str, StoreTable]] = WeakValueDictionary()
"""By place."""


class Log:
    """The functions of :mod:`wheel_udf.tables.delta_log`."""

    @staticmethod
    def snapshot(place: str) -> Snapshot:
        table = _TABLES[place]
        return Snapshot(table, table.version, "-acts" if table.world.fault == _ACT_AGAIN else None)

    @staticmethod
    def snapshot_at(place: str, version: int) -> Snapshot:
        return Snapshot(_TABLES[place], version)

    @staticmethod
    def commits_after(place: str, version: int) -> list[tuple[int, list[Action]]]:
        return list(enumerate(_TABLES[place].commits))[version + 1 :]

    @staticmethod
    def files_of(place: str, to: int | None = None) -> tuple[int, list[Action]]:
        table = _TABLES[place]
        version = table.version if to is None else to
        there = table.paths(version)
        added = {a["path"]: a for commit in table.commits for a in commit if "modificationTime" in a}
        return version, [added[path] for path in there]


class Transaction:
    """A transaction, as :class:`wheel_udf.tables.delta_transaction.Transaction`."""

    def __init__(self, place: str, *, keeps_log: bool) -> None:  # noqa: ARG002  # the log keeps everything
        table = _TABLES[place]
        table.world.point("store begins")
        self.table, self.before = table, Snapshot(table, table.version, _HIDDEN.get(table.world.fault or ""))

    def commit_append(
        self,
        files: NewFiles,
        *,
        app_id: str,
        batch_id: int,
        marks: Mapping[str, int],
    ) -> int:
        marks = dict(marks)
        if self.table.world.fault == "hand-over without its cursor" and app_id.endswith("-cascade"):
            marks = {} if files else marks
        transactions = [_mark(name, value) for name, value in {app_id: batch_id, **marks}.items()]
        return self._commit([*files, *transactions])

    def commit_deletion(self, files: Sequence[tuple[str, File]], *, app_id: str) -> None:
        mark = _mark(app_id, self.before.version + 1)
        self._commit([*(_removal(path, file, changes=True) for path, file in files), mark])

    def commit_rewrite(self, removed: Sequence[tuple[str, File]], added: NewFiles) -> None:
        new = [{**action, "dataChange": False} for action in added]
        self._commit([*new, *(_removal(path, file, changes=False) for path, file in removed)])

    def _commit(self, actions: list[Action]) -> int:
        try:
            self.table.world.point("store commits")
        except Crash:
            # The process dies; its JVM may still do what it was told.
            self.table.world.in_flight.append(lambda: self._land(actions))
            raise
        return self._land(actions)

    def _land(self, actions: list[Action]) -> int:
        if self.table.version > self.before.version:
            raise ConflictError("another commit was first")
        self.table.commits.append(actions)
        return self.table.version


def _overlooks(fault: str | None, name: str) -> bool:
    """Whether a planted fault overlooks what the log says of the cursor."""
    return fault == "placed by an old cursor" and name == CURSOR


def _mark(app_id: str, version: int) -> Action:
    return {"appId": app_id, "version": version}


def _removal(path: str, file: File, *, changes: bool) -> Action:
    place = {"level": str(file.place[0]), "slot": str(file.place[1])}
    return {"path": path, "deletionTimestamp": 0, "dataChange": changes, "partitionValues": place}


class SimulatedStore(SlotStore):
    """The real store over a :class:`StoreTable`; only what makes and reads files is replaced."""

    spark: Any

    def __init__(self, table: StoreTable, layout: StoreLayout) -> None:
        _TABLES[table.place] = table
        super().__init__(table, table.place, layout)  # type: ignore[arg-type]

    def write_frame(self, _transaction: Any, frame: Any, *, in_one_place: bool = False) -> NewFiles:  # noqa: ARG002  # for Spark
        if frame is None:
            return []
        places: dict[tuple[int, int], list[StoredRow]] = {}
        for row in frame.rows:
            places.setdefault((row.level, row.slot), []).append(row)
        listed = []
        for (level, slot), rows in sorted(places.items()):
            path = self.spark.world.new_name(f"level={level}/slot={slot}/part")
            self.spark.files[path] = tuple(rows)
            listed.append(_addition(path, level, slot, rows))
        return listed

    def rows(self, *, version: int | None = None) -> Any:
        at = self.spark.version if version is None else version
        return Rows(self.spark.rows(self.spark.paths(at)))

    def rows_of_files(self, files: Mapping[str, File]) -> Any:
        return Rows(self.spark.rows(files))

    def require_marks(self, marks: Mapping[str, int], expected: Mapping[str, int | None]) -> None:
        fault = self.spark.world.fault
        super().require_marks(
            marks, {name: value for name, value in expected.items() if not _overlooks(fault, name)}
        )

    def append(self, frame: Any, *, app_id: str, cursor_ms: int | None = None, **more: Any) -> Any:
        """As the real one; a planted fault drops the reached slots before it."""
        if self.spark.world.fault == "drop before append" and cursor_ms is not None:
            gone = [
                (p.level, p.slot)
                for p in self.partitions()
                if self.layout.reached(p.level, p.slot, cursor_ms)
            ]
            self.drop(gone)
        return super().append(frame, app_id=app_id, cursor_ms=cursor_ms, **more)

    def late_files(self, wanted: Any, version: int | None, there: Any) -> set[str]:
        if self.spark.world.fault == "late files are dropped":
            return set()
        return super().late_files(wanted, version, there)


def _addition(path: str, level: int, slot: int, rows: Sequence[StoredRow]) -> Action:
    said = [row.said_ms for row in rows if row.said_ms is not None]
    stats = {
        "numRecords": len(rows),
        "maxValues": {"act": COMMAND, **({"event_time_ms": max(said)} if said else {})},  # no FIRE_NOW
        "nullCount": {"anchor_ms": len(rows)},  # no series
    }
    return {
        "path": path,
        "partitionValues": {"level": str(level), "slot": str(slot)},
        "size": 100 * len(rows),
        "modificationTime": 0,
        "dataChange": True,
        "stats": json.dumps(stats),
    }
