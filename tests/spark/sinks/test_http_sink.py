"""Batches go to real webhooks and tables: what an endpoint does not take is a reject, and no other destination waits
for it or misses a row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.own_sinks import Lines
from tests.receiver import HANG, Receiver, Says, receiver
from tests.spark.sinks.batches import Batches
from wheel_udf import Destinations, FileSink, HttpSink
from wheel_udf.common.errors import LeaseError
from wheel_udf.job import cli
from wheel_udf.sinks.destinations import OUTCOME, LeftOut, Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0 = datetime(2026, 1, 1, 10, tzinfo=UTC)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with receiver() as running:
        yield running


def fired_row(name: str, destination: str, due_s: int = 0, **changes: Any) -> tuple[Any, ...]:
    row = {
        "schedule_id": name,
        "seq": 1,
        "fire_id": f"f-{name}",
        "destination": destination,
        "key": b"k",
        "value": b'{"close": 7}',
        "headers": [("trace", b"\x01")],
        "deliver_at": T0 + timedelta(seconds=due_s),
        "fired_at": T0 + timedelta(seconds=due_s, milliseconds=250),
        "lateness_ms": 250,
        "source": "commands/0/7",
    }
    return tuple((row | changes).values())


class HookBatches(Batches):
    """Writes batches as the query does: webhooks for ``hook*``, lines for ``line*``, tables for the others."""

    def __init__(self, spark: SparkSession, folder: Path, hooks: Sink) -> None:
        tables = FileSink(str(folder / "tables"))
        super().__init__(
            spark, folder, Destinations({"hook*": hooks, "line*": Lines(str(folder)), "*": tables})
        )


def test_rows_are_posted_as_json_with_the_fire_id_as_the_key(
    spark: SparkSession, tmp_path: Path, server: Receiver
) -> None:
    batches = HookBatches(spark, tmp_path, HttpSink(f"{server.url}/{{destination}}"))
    raw = fired_row("b", "hook_2", 1, key=None, value=b"\xff", headers=None)
    assert batches.write(0, fired_row("a", "hook_1"), raw, fired_row("c", "orders")) == 0

    first, second = sorted(server.came, key=lambda each: each.key)
    assert (first.path, first.key, first.headers["content-type"]) == ("/hook_1", "f-a", "application/json")
    assert json.loads(first.body) == {
        "schedule_id": "a",
        "seq": 1,
        "fire_id": "f-a",
        "destination": "hook_1",
        "key": "k",
        "value": '{"close": 7}',
        "headers": [{"key": "trace", "value": "\x01"}],
        "deliver_at": "2026-01-01T10:00:00.000Z",
        "fired_at": "2026-01-01T10:00:00.250Z",
        "lateness_ms": 250,
    }
    assert json.loads(second.body)["value_base64"] == "/w=="
    assert not {"key", "value", "headers"} & json.loads(second.body).keys()
    assert [row.schedule_id for row in batches.table("tables/orders")] == ["c"]
    assert not (tmp_path / "rejects").exists()


@pytest.mark.parametrize(("after_checks", "posted"), [(0, 0), (1, 1)])
def test_a_driver_that_has_lost_its_lease_begins_no_write(
    spark: SparkSession, tmp_path: Path, server: Receiver, after_checks: int, posted: int
) -> None:
    batches = HookBatches(spark, tmp_path, HttpSink(f"{server.url}/{{destination}}"))
    with pytest.raises(LeaseError, match="lost the lease"):
        batches.write_without_a_lease(
            0, fired_row("a", "hook_1"), fired_row("b", "orders"), after_checks=after_checks
        )
    assert len(server.came) + (tmp_path / "tables" / "orders").exists() == posted


def test_a_driver_that_has_lost_its_lease_while_it_wrote_reports_nothing_that_comes_back(
    spark: SparkSession, tmp_path: Path, server: Receiver
) -> None:
    kept: list[int] = []

    class Noted:
        def takes(self, destination: str) -> bool:
            return destination == "hook_1"

        def keep(
            self, left_out: Sequence[LeftOut], rows_to: Mapping[str, int], batch_id: int
        ) -> tuple[list[LeftOut], int]:
            kept.append(batch_id)
            assert (len(left_out), dict(rows_to)) == (1, {"hook_1": 1})
            return [], 0

        def keep_again(self, batch_id: int) -> None:
            raise AssertionError(batch_id)

    server.at("/hook_1", Says(503))
    batches = HookBatches(
        spark, tmp_path, HttpSink(f"{server.url}/{{destination}}", retries=0, cooldown_ms=0)
    )
    row = fired_row("a", "hook_1")
    with pytest.raises(LeaseError, match="lost the lease"):
        batches.write_without_a_lease(0, row, after_checks=1, returns=Noted())
    assert (len(server.came), kept) == (1, [])
    batches.write(1, row, returns=Noted())
    assert (len(server.came), kept) == (2, [1])


def test_the_value_is_posted_as_it_is_with_the_other_columns_as_headers(
    spark: SparkSession, tmp_path: Path, server: Receiver
) -> None:
    hooks = HttpSink(f"{server.url}/all", {"Content-Type": "text/plain"}, body="value", id_header="X-Id")
    outcome = ("op", "g", "expired", None, T0, T0, ["a"], ["b"], 0, "hook", b"k", None, None, "f-op", None)
    batches = HookBatches(spark, tmp_path, hooks)
    assert batches.write(0, fired_row("ä", "hook", value=b"\x00\xff")) == 0
    assert batches.write(1, outcome, shape=OUTCOME) == 0

    fired, ended = server.came
    names = ("x-id", "content-type", "wheel-id", "wheel-deliver-at", "wheel-source", "trace")
    assert [fired.headers[name] for name in names] == [
        *("f-%C3%A4", "text/plain", "%C3%A4", "2026-01-01T10:00:00.000Z", "commands/0/7", "%01")
    ]
    assert (fired.body, ended.body) == (b"\x00\xff", b"")
    assert (ended.headers["x-id"], ended.headers["wheel-outcome"]) == ("f-op", "expired")


def test_rows_that_an_endpoint_does_not_take_are_rejects_and_the_others_go_on(
    spark: SparkSession, tmp_path: Path, server: Receiver
) -> None:
    server.at("/hook_bad", Says(422, text="no such order, token abc-s3cr3t"))
    server.at("/hook_hangs", HANG)
    hooks = HttpSink(
        f"{server.url}/{{destination}}",
        {"X-Token": "abc-s3cr3t"},
        timeout_ms=1_000,
        retries=2,
        backoff_ms=10,
        cooldown_ms=600_000,
    )
    batches = HookBatches(spark, tmp_path, hooks)
    rows = [fired_row(f"{kind}{i}", f"hook_{kind}") for kind in ("bad", "hangs", "good") for i in range(9)]
    assert batches.write(0, *rows, fired_row("x", "lines"), fired_row("y", "orders")) == 18

    assert len(set(server.keys("/hook_good"))) == 9
    assert (tmp_path / "lines-0").read_text() == "x\n"
    rejects = batches.table("rejects")
    assert [(row.error_code, row.schedule_id, row.value, row.source) for row in rejects[:1]] == [
        ("undeliverable", "bad0", b'{"close": 7}', "commands/0/7")
    ]
    assert {row.error_message for row in rejects[:9]} == {"HTTP 422: no such order, token ***"}
    assert all("no answer within 1 s" in row.error_message for row in rejects[9:])

    # The endpoint that hangs rests; the one that refuses rows answers, and is asked again.
    server.came.clear()
    assert batches.write(1, fired_row("later", "hook_hangs"), fired_row("next", "hook_bad")) == 2
    assert [each.path for each in server.came] == ["/hook_bad"]
    (rested,) = [row for row in batches.table("rejects") if row.schedule_id == "later"]
    assert rested.error_message.startswith("not tried for 600 s after the endpoint failed: ")


def test_after_its_rest_an_endpoint_is_tried_with_one_row(
    spark: SparkSession, tmp_path: Path, server: Receiver
) -> None:
    hooks = HttpSink(f"{server.url}/{{destination}}", retries=0, concurrency=1, cooldown_ms=0)
    batches = HookBatches(spark, tmp_path, hooks)
    rows = [fired_row(f"a{i}", "hook", i) for i in range(8)]
    server.at("/hook", Says(500))
    assert batches.write(0, *rows) == 8
    tries = len(server.came)
    assert batches.write(1, *rows) == 8
    assert len(server.came) - tries <= 2  # one for each task
    server.at("/hook", Says())
    assert batches.write(2, *rows) == 0
    assert set(server.keys("/hook")) == {f"f-a{i}" for i in range(8)}


def test_a_batch_that_is_repeated_posts_the_same_keys_again(
    spark: SparkSession, tmp_path: Path, server: Receiver
) -> None:
    batches = HookBatches(spark, tmp_path, HttpSink(f"{server.url}/hook"))
    for _ in range(2):
        assert batches.write(0, fired_row("a", "hook"), fired_row("b", "orders")) == 0
    assert server.keys("/hook") == ["f-a", "f-a"]
    assert [row.schedule_id for row in batches.table("tables/orders")] == ["b"]


def test_a_dry_run_shows_the_sinks_and_sends_nothing(
    spark: SparkSession, tmp_path: Path, server: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    config = tmp_path / "job.yml"
    config.write_text(f"""
clock: {{kind: processing}}
source: {{format: json, path: {tmp_path}/in, schema: "schedule_id STRING, delay STRING, destination STRING"}}
destinations:
  hook: {{sink: http, url: {server.url}/hook}}
  lines: {{sink: "tests.own_sinks:Lines", options: {{folder: {tmp_path}}}}}
rejects: {{sink: delta, path: {tmp_path}/bad}}
checkpoint: {tmp_path}/state
""")
    assert cli.main(["dry-run", "--config", str(config)]) == 0
    shown = capsys.readouterr().out
    assert f"destination   hook -> http {server.url}/hook\n" in shown
    assert "destination   lines -> tests.own_sinks:Lines destination of the same name\n" in shown
    assert server.came == []
