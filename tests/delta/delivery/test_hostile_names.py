"""A hundred hostile names, as destinations and as ids, through a whole run into real tables: all that went in came out
or was rejected, below the root.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.delta.delivery.test_deliver import END, World
from tests.hostile import BAD_NAMES, RESERVED_NAMES, is_id
from tests.spark.streams import add_files, due

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

GOOD = ("out", "..a", "-rf")


def names_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_hostile_names_are_delivered_as_ids_and_rejected_as_destinations(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(spark, tmp_path / "world")
    as_ids = [due(name, 50, 0) for name in BAD_NAMES]
    as_destinations = [
        due(f"to {number}", 50, 0, destination=name)
        for number, name in enumerate((*BAD_NAMES, *RESERVED_NAMES, *GOOD[1:]))
    ]
    add_files(world.folder / "in", as_ids + as_destinations)
    world.run(END, shards=3)

    fired = {name: [row[0] for row in world.table(name)] for name in GOOD}
    good_ids, sent = sorted(filter(is_id, BAD_NAMES)), len(as_ids) + len(as_destinations)
    assert sorted(fired.pop("out")) == good_ids
    assert [len(ids) for ids in fired.values()] == [1, 1]
    assert {code: world.rejected().count(code) for code in set(world.rejected())} == {
        "no_schedule_id": 1,
        "bad_schedule_id": len(BAD_NAMES) - len(good_ids) - 1,
        "bad_destination": len(BAD_NAMES),
        "undeliverable": len(RESERVED_NAMES),
    }
    counts = world.reports[-1].counts
    assert counts["fired"] + counts["rejected"] == sent
    assert counts["fired"] == len(good_ids) + len(GOOD[1:]) + len(RESERVED_NAMES)

    assert names_in(tmp_path) == ["world"]
    assert names_in(world.folder) == ["checkpoint", "in", "rejects", "tables"]
    assert names_in(world.folder / "tables") == sorted(GOOD)
