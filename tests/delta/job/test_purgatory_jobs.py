"""The use cases of the purgatory as jobs: their configs as they stand in conf/, on files of JSON, into Delta tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.command_line import say
from wheel_udf.metrics.batch_log import read_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONF = Path(__file__).parents[3] / "conf"


def at(clock: str) -> str:
    return f"2026-01-01T{clock}Z"


class Case:
    """One of the configs, on a folder of its own, on the time of the rows themselves."""

    def __init__(self, spark: SparkSession, folder: Path, name: str) -> None:
        self.spark, self.folder, self.out, self.err = spark, folder, "", ""
        text = (CONF / f"{name}.yml").read_text().replace("data/", f"{folder}/")
        (folder / "job.yml").write_text(text)

    def write(self, kind: str, *rows: dict[str, Any]) -> None:
        """A file of JSON lines."""
        place = self.folder / kind
        place.mkdir(exist_ok=True)
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (place / f"{len(list(place.iterdir())):04}.json").write_text(text)

    def run(self, until: str, verb: str = "run", *more: str) -> int:
        """The job over what is there, until an instant."""
        return self.say(verb, "--trigger", "available-now", "--until", at(until), *more)

    def say(self, verb: str, *more: str) -> int:
        """A verb of the command line, on the time of the rows."""
        argv = [*more]
        for setting in ("clock.kind=event", "clock.max_ahead=none", "wheel.shards=2"):
            argv += ["--set", setting]
        code, self.out, self.err = say(self.folder / "job.yml", verb, *argv)
        return code

    def table(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """Rows of a table in the order of their instants."""
        rows = self.spark.read.format("delta").load(f"{self.folder}/tables/{name}")
        return [tuple(row) for row in rows.orderBy("at", "op_id").select(*columns).collect()]


def test_only_an_order_that_is_neither_paid_nor_cancelled_in_time_is_to_be_closed(
    spark: SparkSession, tmp_path: Path
) -> None:
    case = Case(spark, tmp_path, "unpaid_orders")
    case.write(
        "orders",
        {"order": "paid", "placed_at": at("10:00:00"), "total": 1.5},
        {"order": "late", "placed_at": at("10:00:00"), "total": 2.5},
        {"order": "gone", "placed_at": at("10:05:00"), "total": 3.5},
        {"order": "forgotten", "placed_at": at("10:06:00"), "total": 4.5},
        {"order": None, "placed_at": at("10:06:00"), "total": 0},
    )
    (tmp_path / "orders" / "9999.json").write_text("no order at all")
    case.write(
        "payments",
        {"order": "paid", "what": "paid", "at": at("10:30:00")},
        {"order": "late", "what": "paid", "at": at("10:30:01")},
        {"order": "gone", "what": "cancelled", "at": at("10:20:00")},
        {"order": "nobodys", "what": "paid", "at": at("10:20:00")},
    )
    assert case.run("11:00:00", "run", "--set", "metrics.observed=true", "--set", "log=json") == 0, case.err
    printed = [json.loads(line) for line in case.out.splitlines() if line.startswith("{")]
    assert [sum(line[name] for line in printed) for name in ("received", "fired", "ended", "rejected")] == [
        10,
        2,
        4,
        2,
    ]
    assert read_batches(f"{tmp_path}/checkpoints/unpaid_orders", 0) == printed
    assert case.table("orders_to_close", "op_id", "outcome", "value") == [
        ("late", "expired", bytearray(b'{"order":"late","total":2.5}')),
        ("forgotten", "expired", bytearray(b'{"order":"forgotten","total":4.5}')),
    ]
    assert (
        "operations  6 = 0 pending + 1 completed + 2 expired + 1 cancelled + 0 duplicate + 2 rejected"
        in case.out
    )
    assert "every row accounted for: yes" in case.out
    rejects = spark.read.format("delta").load(f"{tmp_path}/rejects")
    assert {row.error_code for row in rejects.collect()} == {"no_op_id", "unreadable"}

    # The next run goes on where this one stopped: what it has read is not read again.
    case.write("orders", {"order": "new", "placed_at": at("11:00:00"), "total": 1})
    assert case.run("12:00:00") == 0, case.err
    assert [row[0] for row in case.table("orders_to_close", "op_id")] == ["late", "forgotten", "new"]


def test_a_produce_is_complete_when_all_replicas_have_it_and_a_fetch_when_there_are_bytes_enough(
    spark: SparkSession, tmp_path: Path
) -> None:
    case = Case(spark, tmp_path, "produce_acks")
    replicas = ["b1", "b2", "b3"]
    case.write(
        "produces",
        {"id": "p1", "partition": "t0", "replicas": replicas, "timeout": "30 s", "at": at("10:00:00")},
        {"id": "p2", "partition": "t0", "replicas": replicas, "timeout": "5 s", "at": at("10:00:00")},
    )
    acks = [
        ("p1", "b1", "09:59:58"),
        ("p1", "b3", "10:00:04"),
        ("p2", "b2", "10:00:01"),
        ("p1", "b2", "10:00:09"),
    ]
    case.write(
        "acks",
        *({"partition": "t0", "produce": p, "replica": b, "at": at(clock)} for p, b, clock in acks),
    )
    assert case.run("10:01:00") == 0, case.err
    assert case.table("produce_results", "op_id", "outcome", "by_key", "missing") == [
        ("p2", "expired", None, ["p2@b1", "p2@b3"]),
        ("p1", "completed", "p1@b2", []),
    ]

    (tmp_path / "fetch").mkdir()
    case = Case(spark, tmp_path / "fetch", "fetch")
    fetch = {"topic": "t", "partitions": ["0", "1"], "min_bytes": 4000, "at": at("10:00:00")}
    case.write(
        "fetches",
        fetch | {"id": "f1", "max_wait": "5 s"},
        fetch | {"id": "f2", "max_wait": "2 s"},
        fetch | {"id": "f3", "max_wait": "2 s", "min_bytes": None},
    )
    appends = [
        ("0", 1500, "10:00:01"),
        ("1", 1500, "10:00:02"),
        ("2", 9000, "10:00:02"),
        ("1", 1000, "10:00:03"),
    ]
    case.write(
        "appends", *({"topic": "t", "partition": p, "bytes": n, "at": at(clock)} for p, n, clock in appends)
    )
    assert case.run("10:01:00") == 0, case.err
    assert case.table("fetch_results", "op_id", "outcome", "by_key") == [
        ("f2", "expired", None),
        ("f1", "completed", "1"),
    ]
    # A reject tells of the row of the source, and not of what SQL has made of it.
    (reject,) = spark.read.format("delta").load(f"{tmp_path}/fetch/rejects").collect()
    assert (reject.error_code, reject.schedule_id) == ("bad_rule", "f3")
    assert json.loads(reject.record)["max_wait"] == "2 s"


def test_a_join_waits_for_its_members_and_a_member_that_misses_a_beat_is_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    case = Case(spark, tmp_path, "members")
    case.write(
        "groups",
        {"group": "g", "id": "join", "members": ["a", "b", "c"], "joined_at": at("10:00:00")},
        {"group": "g", "id": "a", "session": "10 s", "joined_at": at("10:00:00")},
        {"group": "g", "id": "b", "session": "10 s", "joined_at": at("10:00:00")},
    )
    signs = [
        *(("a", "join", "10:00:01"), ("b", "join", "10:00:04"), ("c", "join", "10:00:15")),
        *(
            ("a", "beat", "10:00:08"),
            ("a", "beat", "10:00:18"),
            ("b", "beat", "10:00:05"),
            ("b", "leave", "10:00:12"),
        ),
    ]
    case.write("signs", *({"group": "g", "member": m, "what": w, "at": at(clock)} for m, w, clock in signs))
    assert case.run("10:00:21") == 0, case.err
    assert case.say("pending") == 0, case.err
    shown = [json.loads(line) for line in case.out.splitlines()]
    assert [
        (row["op_id"], row["rule"], row["generation"], row["present"], row["place"]) for row in shown
    ] == [
        ("join", "all", 2, ["join c"], "open"),
        ("a", "beat", 1, [], "open"),
    ]
    assert (shown[0]["deadline"], shown[0]["limit"]) == (
        "2026-01-01T10:00:21.000Z",
        "2026-01-01T10:00:25.000Z",
    )
    assert case.say("pending", "--count", "--where", "rule = 'beat'") == 0
    assert case.out == "pending 1\n"
    assert case.say("pending", "--id", "nobody") == 0
    assert case.out == "0 pending operations match\n"
    # The group's state survives the restart: the second generation of the join is still open.
    case.write("signs", *({"group": "g", "member": m, "what": "join", "at": at("10:00:22")} for m in "ab"))
    assert case.run("10:01:00") == 0, case.err
    assert case.table("generations", "generation", "outcome", "present", "missing") == [
        (1, "expired", ["join a", "join b"], ["join c"]),
        (2, "expired", ["join c"], ["join a", "join b"]),
        (3, "expired", ["join a", "join b"], ["join c"]),
    ]
    assert case.table("lost_members", "op_id", "outcome") == [("b", "cancelled"), ("a", "expired")]
    assert case.run("10:02:00", "dry-run") == 0, case.err
    assert "purgatory: operations wait for events in Spark state" in case.out
