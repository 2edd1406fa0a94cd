"""The purgatory of the guide on a real broker: orders and payments in, what is to be closed out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.documents import configs
from wheel_udf.job.cli import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.kafka.client import KafkaWorld


def run(file: Path, until: str) -> int:
    return main(["run", "--config", str(file), "--trigger", "available-now", "--until", until])


@pytest.mark.sentinel
def test_the_orders_that_are_not_paid_in_time_come_out_as_records_over_a_restart(
    spark: SparkSession, kafka: KafkaWorld, tmp_path: Path
) -> None:
    (config,) = configs("docs/purgatory.md")
    orders, payments = kafka.topic(partitions=2), kafka.topic()
    for section, topic in (("operations", orders), ("events", payments)):
        config[section] |= {"topics": [topic], "options": {"kafka.bootstrap.servers": kafka.bootstrap}}
    closed = kafka.topic()
    config["destinations"] = {
        closed: {"sink": "kafka", "options": {"kafka.bootstrap.servers": kafka.bootstrap}}
    }
    config["contract"]["default_destination"] = closed
    config["clock"] = {"kind": "event", "max_ahead": "none"}
    config["rejects"]["path"] = str(tmp_path / "rejects")
    config["checkpoint"] = str(tmp_path / "checkpoint")
    config["wheel"] = {"shards": 2}
    file = tmp_path / "job.yml"
    file.write_text(json.dumps(config))

    kafka.produce(orders, [(b"o-1", b"12.50"), (b"o-2", b"7"), (None, b"whose?"), (b"o-3", b"9")])
    kafka.produce(payments, [(b"o-2", b"")])
    assert run(file, "2020-01-01") == 0  # the clock is that of the records, so nothing has ended yet
    assert kafka.count(closed) == 0
    kafka.produce(payments, [(b"o-3", b"")])
    assert run(file, "2100-01-01") == 0

    (record,) = kafka.everything(closed)
    headers = {name: (value or b"").decode() for name, value in record.headers}
    assert record.value == b"12.50"
    assert (headers["wheel-id"], headers["wheel-group"], headers["wheel-outcome"]) == (
        "o-1",
        "o-1",
        "expired",
    )
    assert (headers["wheel-generation"], headers["wheel-present"], headers["wheel-missing"]) == (
        "1",
        "[]",
        '["paid"]',
    )
    (reject,) = spark.read.format("delta").load(str(tmp_path / "rejects")).collect()
    assert (reject.error_code, reject.source.split("/")[0]) == ("no_op_id", orders)
