"""What became of an id that went to topics: found there as it is found in tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kafka.sinks.test_sink import T0, Batches, fired_row, reject_row
from wheel_udf import Destinations, KafkaSink
from wheel_udf.common.geometry import Wheel
from wheel_udf.pending.entries import PendingWork
from wheel_udf.pending.history import history_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.kafka.client import KafkaWorld

T0_MS = int(T0.timestamp() * 1_000)


def test_history_finds_deliveries_and_rejects_in_topics(
    spark: SparkSession, kafka: KafkaWorld, tmp_path: Path
) -> None:
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "kafka.acks": "all"}
    mine, other, refused = kafka.topic(), kafka.topic(), kafka.topic()
    rejects = KafkaSink(options, topic=refused)
    batches = Batches(spark, {mine: KafkaSink(options), other: KafkaSink(options)}, rejects)
    batches.write(
        0,
        fired_row("a", mine, 5, seq=7),
        fired_row("b", mine, 6),
        rejected=(reject_row("bad_delay", "a", destination=mine), reject_row("bad_delay", "b")),
    )
    batches.write(1, fired_row("a", other, 9, seq=8))
    told = history_of(
        spark,
        PendingWork(str(tmp_path / "checkpoint")),
        "a",
        geometry=Wheel(tick_ms=1_000, size=20, levels=4),
        destinations=Destinations({mine: KafkaSink(options), other: KafkaSink(options)}),
        rejects=rejects,
    )
    assert [(event.at_ms, event.what, event.seq, event.destination) for event in told[:2]] == [
        (T0_MS + 5_250, "fired", 7, mine),
        (T0_MS + 9_250, "fired", 8, other),
    ]
    assert told[0].deliver_at_ms == T0_MS + 5_000
    assert told[0].detail is not None
    assert told[0].detail.startswith("250 ms after due, fire_id f-a, record ")
    (reject,) = told[2:]
    assert (reject.what, reject.destination) == ("rejected: bad_delay", mine)
    assert reject.detail == f"why, record {refused}/0/0"
