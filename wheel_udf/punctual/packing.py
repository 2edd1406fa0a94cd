"""Packs the rows of kind ``ahead`` of a batch, checked as for any topic, for the sender's producers.

::

    rows of kind `ahead` --by destination--> KafkaSink.sendable --> records --> one TimedRecords for each producer
                              |                    '-- too large, no key, topic missing: left out, with the reason
                              '-- destination no longer on the allow-list: left out
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame

from wheel_udf.punctual.producers import Producer, producer_of
from wheel_udf.punctual.timed_records import TimedRecords
from wheel_udf.sinks.destinations import Destinations, LeftOut, shape_of
from wheel_udf.sinks.kafka_record import timed_records
from wheel_udf.sinks.kafka_sink import KafkaSink
from wheel_udf.stream.frame_facts import FrameFacts
from wheel_udf.stream.outputs import columns_leaving, leaving

_LARGEST_BATCH = 262_144


@dataclass
class Packer:
    """Packs the batches of one query."""

    facts: FrameFacts
    destinations: Destinations
    _producers: dict[tuple[KafkaSink, int], Producer] = field(default_factory=dict)

    @cached_property
    def _leaving(self) -> list[Column]:
        return columns_leaving(self.facts)

    def pack(
        self, frame: DataFrame, rows_to: Mapping[str, int], largest_to: Mapping[str, int]
    ) -> tuple[list[tuple[Producer, TimedRecords]], list[LeftOut]]:
        """Packs a batch; returns the records, and the rows that cannot be sent, with their reasons.

        Args:
            frame: The batch, cached.
            rows_to: How many rows it hands over for each destination.
            largest_to: About how large the largest of them is.

        Raises:
            SinkError: A cluster does not answer.
        """
        if not rows_to:
            return [], []
        by_sink: dict[KafkaSink, dict[str, int]] = {}
        unknown: dict[str, str] = {}
        for name, rows in rows_to.items():
            sink = self.destinations.resolve(name)
            if isinstance(sink, KafkaSink):
                by_sink.setdefault(sink, {})[name] = rows
            else:
                unknown[name] = "no destination of the allow-list matches"
        ahead = leaving(frame, self._leaving, "ahead")
        packed: list[tuple[Producer, TimedRecords]] = []
        left_out = [LeftOut.whole(ahead, unknown, rows_to)]
        for kafka_sink, part in by_sink.items():
            packed += self._packed(ahead, kafka_sink, part, largest_to, left_out)
        return packed, left_out

    def _packed(
        self,
        ahead: DataFrame,
        sink: KafkaSink,
        rows_to: Mapping[str, int],
        largest_to: Mapping[str, int],
        left_out: list[LeftOut],
    ) -> Iterable[tuple[Producer, TimedRecords]]:
        shape = shape_of(self.facts)
        rows, limits, refused = sink.sendable(ahead, rows_to, largest_to=largest_to, shape=shape)
        left_out += [LeftOut.whole(ahead, refused.reasons, rows_to), replace(refused, reasons={})]
        if not limits:
            return []
        table = timed_records(rows, shape).toArrow()
        topics_of: dict[Producer, list[str]] = {}
        for name, limit in limits.items():
            key = (
                sink,
                min(_LARGEST_BATCH, max(1, limit // 2)),
            )  # one for each cluster, and for topics of small limits
            if key not in self._producers:
                self._producers[key] = producer_of(*key)
            topics_of.setdefault(self._producers[key], []).append(name)
        if len(topics_of) == 1:
            return [(producer, TimedRecords.of(table)) for producer in topics_of]
        return [
            (producer, TimedRecords.of(table.filter(pc.is_in(table["topic"], pa.array(names)))))
            for producer, names in topics_of.items()
        ]
