"""What hand-over, retirement and FIRE_NOW share: reads and expressions over rows of the slot store."""

from __future__ import annotations

from collections.abc import Mapping, Set as AbstractSet

from pyspark.sql import Column, DataFrame, functions as F

from wheel_udf.store.slot_store import SlotStore
from wheel_udf.store.table import STORE_SCHEMA
from wheel_udf.store.versions import FILE
from wheel_udf.tables.delta_files import File


def version_rows(versions: DataFrame, *, level: int, slot: int, act: Column) -> DataFrame:
    """Returns rows of the store that hold an id and a version and no payload.

    Args:
        versions: One row for each result: ``schedule_id``, ``id_hash``, ``seq``, ``amend``, ``op``.
        level: Level of the new rows.
        slot: Slot of the new rows.
        act: The act of the new rows for the wheel.
    """
    own = ("schedule_id", "id_hash", "seq", "amend", "op")
    columns = {
        "level": F.lit(level),
        "slot": F.lit(slot),
        "act": act,
        "seq_given": F.lit(True),
        "arrived": F.lit(0),
        **{name: F.col(name) for name in own},
    }
    return versions.select(
        *(
            columns.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name)
            for field in STORE_SCHEMA
        )
    )


def name_of(path: str) -> str:
    """The name of a data file, by its path in the log."""
    return path.rpartition("/")[2]


def named(store: SlotStore, files: Mapping[str, File], names: AbstractSet[str] | None) -> DataFrame:
    """Returns the rows of files with the names of their files; only those with these names, if given."""
    if names is not None:
        files = {path: file for path, file in files.items() if name_of(path) in names}
    return store.rows_of_files(files, named=FILE)
