"""The configs of ``init`` with their sample input, from Kafka: what a new user sees after the commands that it prints."""

from __future__ import annotations

import io
import runpy
import time
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from tests.command_line import say
from wheel_udf.job.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.kafka.client import KafkaWorld


def started(use: str, folder: Path, kafka: KafkaWorld, names: dict[str, str]) -> None:
    """Runs the sample input of a use to the end of time, with topics of its own at the broker of the tests."""
    assert main(["init", use, "--into", str(folder)], out=io.StringIO()) == 0
    for file in (folder / f"{use}.yml", folder / f"{use}_sample.py"):
        text = file.read_text().replace("127.0.0.1:9092", kafka.bootstrap).replace("data/", f"{folder}/data/")
        for name, own in names.items():
            text = (
                text.replace(f'"{name}"', f'"{own}"')
                .replace(f"[{name}]", f"[{own}]")
                .replace(f"  {name}:", f"  {own}:")
            )
        file.write_text(text)
    with redirect_stdout(io.StringIO()):
        runpy.run_path(str(folder / f"{use}_sample.py"))
    more = ("--trigger", "available-now", "--until", "2100-01-01", "--set", "wheel.shards=2")
    code, _, err = say(folder / f"{use}.yml", "run", *more)
    assert (code, err) == (0, ""), err


def test_a_payment_that_failed_comes_back_to_its_topic(
    spark: SparkSession, kafka: KafkaWorld, tmp_path: Path
) -> None:
    names = {name: kafka.topic(prefix=name) for name in ("retries", "payments")}
    started("retries", tmp_path, kafka, names)
    found = kafka.everything(names["payments"])
    assert sorted(record.key for record in found) == [b"payment-1", b"payment-2", b"payment-3"]
    assert {dict(record.headers)["attempt"] for record in found} == {b"2"}


def test_the_latest_schedule_of_a_key_is_sent_and_a_tombstone_cancels(
    spark: SparkSession, kafka: KafkaWorld, tmp_path: Path
) -> None:
    names = {name: kafka.topic(prefix=name) for name in ("schedules", "notices")}
    began_s = int(time.time())
    started("schedules", tmp_path, kafka, names)
    found = sorted((record.key, record.value) for record in kafka.everything(names["notices"]))
    asked = [dict(record.headers or ()) for record in kafka.everything(names["schedules"])]
    first_s = min(int(each["scheduler-epoch"]) for each in asked if each)
    assert first_s >= began_s + 120  # after the first start of a user
    assert found == [(b"notice-1", b"second text 1"), (b"notice-3", b"first text 3")]
