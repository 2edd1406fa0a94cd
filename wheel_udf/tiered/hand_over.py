"""Hand-over: computes the rows that move from far slots to the near side when the cursor moves on.

A hand-over moves the *cursor* (everything due before it is on the near side) from one bound of a window to a later
one::

    1  set the new cursor for the intake   new commands due before it go to the near side; the inbox is emptied
                                           into slots
    2  read the reached slots              compare versions at one version of the table, while the intake goes on
    3  one commit: near rows, ended        if commands on the leaving ids came meanwhile, the slots are read again;
       entries, lower levels, cursor       no command or act can come between check and commit
    4  publish the new cursor              the wheel's clock, which never passes the cursor, may go on
    5  drop the reached slots              a crash before this step leaves rows that the cursor marks as handed over

Step 2 is this module; :class:`wheel_udf.tiered.keeper.Keeper` runs the steps. Example, windows of 20 s, cursor from
1:00:20 to 1:00:40: the slot [1:00:20, 1:00:40) of the lowest far level is reached. Its entry ``a`` becomes a near row
``MOVED``; its entry ``b``, which was cancelled meanwhile, becomes a near row ``GONE_CANCELLED`` that the wheel counts;
the slot is dropped.

Each entry is rewritten at most once per level (see :mod:`wheel_udf.store.layout`). A crash repeats nothing: the commit
of step 3 carries the cursor as its transaction, and a start drops whatever is still in slots that the cursor has
reached.

No command is lost between store and wheel: a CANCEL committed before step 3 is compared in step 2 or in the check; a
CANCEL committed after step 3 reaches the wheel after the entry. Both are in the log of the same table, which the wheel
reads in order.

Cost: one pass over the reached slots and over the id hashes of the store; if an id that leaves has several versions,
another one over the files that hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import DataFrame, functions as F

from wheel_udf.shard.rows import COMMAND, GONE_CANCELLED, MOVED, SCHEDULE
from wheel_udf.store.head import Contents, Head, Partition
from wheel_udf.store.layout import MARKS, NEAR, StoreLayout
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.store.table import STORE_SCHEMA
from wheel_udf.store.versions import FILE, verdicts, with_version
from wheel_udf.tables.delta_files import File
from wheel_udf.tiered.rows import name_of, named, version_rows

Files = Mapping[str, File]


@dataclass(frozen=True)
class HandedOver:
    """Result of a hand-over.

    Attributes:
        cursor_ms: The new cursor.
        slots: Number of far slots that were emptied.
        rows: Number of rows in these slots.
        by_level: The same by level.
    """

    cursor_ms: int
    slots: int
    rows: int
    by_level: Mapping[int, int] = field(default_factory=dict)


@dataclass
class Moving:
    """The rows that a hand-over writes.

    Attributes:
        leaving: The entries that leave the far slots for the near side; cached.
        rows: All rows to write, each in its place.
    """

    leaving: DataFrame
    rows: DataFrame

    def close(self) -> None:
        """Releases what is cached."""
        self.leaving.unpersist()


def prepare(store: SlotStore, now: Contents, reached: Sequence[Partition], cursor_ms: int) -> Moving | None:
    """Computes the rows of a hand-over from the store at one version; None if no partition is reached.

    Args:
        store: The store.
        now: The version to read.
        reached: The partitions that the new cursor reaches.
        cursor_ms: The new cursor.
    """
    if not reached:
        return None
    layout, places = store.layout, {(p.level, p.slot) for p in reached}
    here, elsewhere = _divided(now.files, lambda file: file.place in places)
    rows, near = store.rows_of_files(here, named=FILE), F.col("deliver_at_ms") < cursor_ms
    leaving = rows.where(near).drop(FILE).withColumn("uid", F.monotonically_increasing_id()).persist()
    staying = None
    if any((p.slot + 1) * layout.width_ms(p.level) > cursor_ms for p in reached):
        staying = rows.where(~near)
    far, near_side = _divided(elsewhere, lambda file: file.place[0] > NEAR)

    def others(names: AbstractSet[str] | None) -> DataFrame:
        assert names is None or names <= set(map(name_of, now.files)), "the log names files as Spark does"
        # Far rows apart, so that only the hashes are read of these many: all of them are entries, and have versions.
        parts = [named(store, far, names), with_version(named(store, near_side, names))]
        if staying is not None:
            # An entry that stays in a reached slot can be a higher version of one that leaves.
            parts.append(staying)
        return reduce(DataFrame.unionByName, parts)

    ended = verdicts(leaving, others)
    later = None if staying is None else to_lower_levels(layout, staying, cursor_ms)
    return Moving(leaving, _placed(layout, later, leaving, ended, cursor_ms))


def _divided(files: Files, chosen: Callable[[File], bool]) -> tuple[Files, Files]:
    """Returns the files that are chosen, and the others."""
    yes = {path: file for path, file in files.items() if chosen(file)}
    return yes, {path: file for path, file in files.items() if path not in yes}


def to_lower_levels(layout: StoreLayout, later: DataFrame, cursor_ms: int) -> DataFrame:
    """Places entries that are due at or after the cursor by that cursor."""
    due, level = F.col("deliver_at_ms"), layout.level_column(F.col("deliver_at_ms"), cursor_ms)
    return later.withColumns({"slot": layout.slot_column(level, due, cursor_ms), "level": level})


def news_since(store: SlotStore, head: Head, leaving: DataFrame) -> bool:
    """Whether commands on the leaving ids were committed after the version of `head`."""
    if store.head().version == head.version:
        return False
    new = with_version(store.added_since(head.version))
    ids = F.broadcast(leaving.select("id_hash").distinct())
    return not new.join(ids, "id_hash", "left_semi").isEmpty()


def _placed(
    layout: StoreLayout,
    later: DataFrame | None,
    leaving: DataFrame,
    ended: DataFrame | None,
    cursor_ms: int,
) -> DataFrame:
    """Returns all rows that a hand-over writes, each in its place."""
    due = F.col("deliver_at_ms")
    going = leaving if ended is None else leaving.join(F.broadcast(ended.select("uid")), "uid", "left_anti")
    going = going.withColumns(
        {
            "level": F.lit(NEAR),
            "slot": layout.slot_column(NEAR, due, cursor_ms),
            "act": F.lit(MOVED).cast("byte"),
            # An entry that moves is never a producer's retry, whatever has fired of its id.
            "seq_given": F.lit(True),
        }
    )
    names = STORE_SCHEMA.names
    rows = going.select(names)
    if later is not None:
        rows = later.select(names).unionByName(rows)
    return rows if ended is None else rows.unionByName(_ends(layout, ended, cursor_ms))


def _ends(layout: StoreLayout, ended: DataFrame, cursor_ms: int) -> DataFrame:
    """Returns the rows that report ended entries to the wheel, and the marks of the cancelled ones."""
    newest = layout.newest_near_slot(cursor_ms)
    gone = version_rows(ended, level=NEAR, slot=newest, act=F.col("act"))
    own = ended.where(F.col("act") == GONE_CANCELLED).select(
        *("schedule_id", "id_hash", F.col("own_seq").alias("seq"), F.col("own_amend").alias("amend")),
        F.lit(SCHEDULE).alias("op"),
    )
    return gone.unionByName(version_rows(own, level=MARKS, slot=newest, act=F.lit(COMMAND)))
