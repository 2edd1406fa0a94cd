"""What is pending as a table, and acts on it: in the direct mode from Spark's state, in the tiered mode from store and state together."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.delta.test_tiered import LAYOUT
from tests.delta.test_tiered import World as TieredWorld
from tests.spark.streams import T0_MS, add_files, at, at_ms, cancel, due, read_files
from wheel_udf import acts
from wheel_udf.acts import Picked
from wheel_udf.cli import main
from wheel_udf.clock import EventClock
from wheel_udf.delivery import deliver
from wheel_udf.errors import ActError
from wheel_udf.operator import schedule
from wheel_udf.pending import Wheel, forecast, in_state, pending, stored
from wheel_udf.sinks import DeltaSink, Destinations
from wheel_udf.slot_store import SlotStore

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def found(spark: SparkSession, wheel: Wheel) -> list[tuple[str, int, int, str]]:
    """(id, seq, due in seconds, place), by due time."""
    rows = pending(spark, wheel).orderBy("deliver_at", "schedule_id").collect()
    return [
        (row.schedule_id, row.seq, int(row.deliver_at.timestamp() - T0_MS / 1_000), row.place) for row in rows
    ]


def test_the_state_of_a_direct_wheel_is_a_table(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    assert in_state_is_empty(spark, tmp_path)
    add_files(
        tmp_path / "in",
        [
            due("soon", 5, 0),
            due("a", 60, 0, value=b"12345"),
            due("b", 100_000, 0, destination="other"),
            due("c", 70, 0),
        ],
        [cancel("c", 20, seq=2), due("d", 61, 20)],
    )
    query = deliver(
        schedule(read_files(spark, tmp_path / "in"), wheel=LAYOUT.wheel, clock=EventClock(), shards=2),
        destinations=Destinations({"*": DeltaSink(str(tmp_path / "tables"), create=True)}),
        rejects=DeltaSink(str(tmp_path / "rejects")),
        checkpoint=checkpoint,
        trigger="available-now",
    )
    query.awaitTermination()
    wheel = Wheel(checkpoint)
    assert found(spark, wheel) == [("a", 1, 60, "state"), ("d", 1, 61, "state"), ("b", 1, 100_000, "state")]
    load = [tuple(row) for row in forecast(pending(spark, wheel)).collect()]
    assert load == [(naive(60), "out", 2, 5), (naive(99_960), "other", 1, 0)]
    with pytest.raises(ActError, match="direct mode has no table"):
        acts.cancel(spark, wheel, Picked(ids=["a"]))


def in_state_is_empty(spark: SparkSession, folder: Path) -> bool:
    return in_state(spark, str(folder / "no checkpoint yet")).isEmpty()


def naive(seconds: float) -> Any:
    """Collected timestamps have no zone; the tests' zone is UTC."""
    return at(seconds).replace(tzinfo=None)


def test_pending_entries_of_a_tiered_wheel_are_counted_exactly_and_acted_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = TieredWorld(spark, tmp_path)
    add_files(
        tmp_path / "in",
        [
            due("fired", 3, 0),
            due("near", 15, 0),
            due("replaced", 30, 0),
            due("far", 500, 0),
            due("gone", 3_000, 0),
            due("moved", 400, 0),
            due("hurried", 700, 0),
            due("rerouted", 800, 0),
        ],
        [due("replaced", 9_000, 5, seq=2), cancel("gone", 5, seq=2)],
    )
    world.start().awaitTermination()
    store = SlotStore.open(spark, str(tmp_path / "store"), LAYOUT, create=False)
    wheel = Wheel(str(tmp_path / "checkpoint"), store)
    before = [
        ("near", 1, 15, "state"),
        ("moved", 1, 400, "store"),
        ("far", 1, 500, "store"),
        ("hurried", 1, 700, "store"),
        ("rerouted", 1, 800, "store"),
        ("replaced", 2, 9_000, "store"),
    ]
    assert found(spark, wheel) == before
    assert stored(store) == 7, "the cheap count has what is beaten, too"

    assert acts.cancel(spark, wheel, Picked(where="destination = 'out'"), dry_run=True) == 6
    assert found(spark, wheel) == before
    assert acts.cancel(spark, wheel, Picked(ids=["far", "fired", "nobody"])) == 1
    assert acts.move(spark, wheel, Picked(ids=["moved"]), to="deliver_at + interval 100 seconds") == 1
    soon = "timestamp'2024-01-01 00:00:12'"
    assert acts.move(spark, wheel, Picked(where="schedule_id LIKE 'hurr%'"), to=soon) == 1
    assert acts.reroute(spark, wheel, Picked(ids=["rerouted"]), to="elsewhere") == 1
    assert found(spark, wheel) == [
        ("hurried", 1, 12, "state"),
        ("near", 1, 15, "state"),
        ("moved", 1, 500, "store"),
        ("rerouted", 1, 800, "store"),
        ("replaced", 2, 9_000, "store"),
    ]
    told = [(row.act, row.rows) for row in acts.audit(spark, store).orderBy("at").collect()]
    assert told == [("cancel", 1), ("move", 1), ("move", 1), ("reroute", 1)]

    world.start(until_s=10_000).awaitTermination()
    assert [(name, int(due_at - at_ms(0) / 1_000)) for name, _, due_at in world.fired()] == [
        ("fired", 3),
        ("hurried", 12),
        ("moved", 500),
        ("near", 15),
        ("replaced", 9_000),
    ]
    elsewhere = spark.read.format("delta").load(str(tmp_path / "tables" / "elsewhere"))
    assert [row.schedule_id for row in elsewhere.collect()] == ["rerouted"]
    assert found(spark, wheel) == []
    counts = {name: count for name, count in world.reports[-1].counts.items() if count}
    assert counts == {"fired": 6, "superseded": 4, "cancelled": 2, "applied": 2}


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("nobody = 1", "nobody"),
        ("schedule_id", "where"),
        ("count(*) > 1", "where"),
        ("1 = 1; DROP TABLE x", "where"),
        ("", "where"),
    ],
)
def test_a_predicate_that_is_none_is_an_error_that_quotes_it(
    spark: SparkSession, where: str, said: str
) -> None:
    rows = spark.createDataFrame([("a", 1)], "schedule_id string, seq long")
    with pytest.raises(ActError, match="predicate") as fault:
        Picked(where=where).of(rows)
    assert said in str(fault.value)


def test_an_act_on_everything_has_to_be_said() -> None:
    with pytest.raises(ActError, match="without ids and without a predicate"):
        Picked()


def test_the_verbs_of_the_command_line(spark: SparkSession, tmp_path: Path) -> None:
    config = {
        "name": "desk",
        "mode": "tiered",
        "wheel": {"tick": "1 second", "size": 20, "levels": 4, "shards": 2, "state_levels": 1},
        "clock": {"kind": "event", "max_ahead": "none"},
        "source": {
            "format": "parquet",
            "path": str(tmp_path / "in"),
            "schema": "schedule_id string, op string, seq long, deliver_at timestamp, event_time timestamp, destination string, value binary, max_lateness string",
        },
        "destinations": {"*": {"sink": "delta", "path": str(tmp_path / "out"), "create": True}},
        "rejects": {"sink": "delta", "path": str(tmp_path / "rejects")},
        "store": {"path": str(tmp_path / "store")},
        "checkpoint": str(tmp_path / "checkpoint"),
        "trigger": "available-now",
    }
    file = tmp_path / "job.yml"
    file.write_text(json.dumps(config), encoding="utf-8")

    def said(*argv: str) -> list[str]:
        out, err = io.StringIO(), io.StringIO()
        code = main([argv[0], "--config", str(file), *argv[1:]], out=out, err=err)
        return [str(code), *out.getvalue().splitlines(), *err.getvalue().splitlines()]

    add_files(tmp_path / "in", [due("a", 100, 0, value=b"v"), due("b", 200, 0), due("c", 3_000, 0)])
    assert said("run")[0] == "0"
    assert said("pending", "--count") == ["0", "pending 3", "stored 3"]
    code, *lines = said("pending", "--id", "a", "--payload")
    assert (code, len(lines)) == ("0", 1), lines
    (line,) = lines
    shown = json.loads(line)
    assert (shown["schedule_id"], shown["place"], shown["value"]) == ("a", "store", "v")
    assert said("cancel", "--where", "deliver_at < timestamp'2024-01-01 00:10:00'", "--dry-run") == [
        "0",
        "cancel: 2 pending would be meant, nothing was changed",
    ]
    assert said("reroute", "--id", "b", "--to", "x") == ["0", "reroute: 1 pending are meant"]
    assert said("cancel", "--id", "a") == ["0", "cancel: 1 pending are meant"]
    assert said("pending", "--count") == ["0", "pending 2", "stored 4"]
    assert [json.loads(line)["act"] for line in said("acts")[1:]] == ["reroute", "cancel"]
    picture = tmp_path / "pictures" / "coming.png"
    lines = said("forecast", "--every", "1 hour", "--png", str(picture))
    assert [json.loads(line)["rows"] for line in lines[1:-1]] == [1, 1]
    assert picture.stat().st_size > 5_000
    assert said("cancel")[1].startswith("error: an act without ids and without a predicate")
    assert said("move", "--id", "b", "--to", "banana")[:1] == ["2"]
