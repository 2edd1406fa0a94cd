"""Where rows go that have left the wheel; one place to import all of it from.

::

    destinations   columns of deliveries and rejects, what a sink is, the allow-list
    delta_sink     tables, exactly once             file_sink    files, for a first look
    kafka_sink     topics, at least once            batch_writer one micro-batch to all of them, what cannot go there to the rejects
"""

from __future__ import annotations

from wheel_udf.batch_writer import write_batch
from wheel_udf.delta_sink import DeltaSink
from wheel_udf.destinations import FIRED_SCHEMA, REJECT_SCHEMA, Destinations, JointSink, LeftOut, Sink
from wheel_udf.file_sink import FileSink
from wheel_udf.kafka_sink import KafkaSink

__all__ = [
    "FIRED_SCHEMA",
    "REJECT_SCHEMA",
    "DeltaSink",
    "Destinations",
    "FileSink",
    "JointSink",
    "KafkaSink",
    "LeftOut",
    "Sink",
    "write_batch",
]
