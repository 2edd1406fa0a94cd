"""Delivery: takes the rows that leave the operators to their destinations, and reports what each batch did.

In: the streaming frame of ``schedule`` or ``watch`` (:mod:`wheel_udf.stream`), an allow-list of destinations, a sink for rejects. Out: rows in Delta
tables, Kafka topics or files; one :class:`BatchReport` per batch; the hint, which is the next due time for the clock::

    one micro-batch                                                                               module
      frame of the operator, cached once
        |-- status rows ------------------------------------------> report, hint to the clock     query, report
        |-- fired rows --- destination on the allow-list? --- no --> rejects: undeliverable       destinations
        |                    | yes
        |                  can the table or topic be written? - no --> rejects: undeliverable     batch_writer (check)
        |                    | yes
        |                    |-- DeltaSink   one write per table, exactly once                    delta_sink
        |                    |-- FileSink    one write per folder                                 file_sink
        |                    |-- HttpSink    a POST per row, from the executors                   http_sink, http_sender, http_endpoint
        |                    |-- JdbcSink    one write for all tables, each row once              jdbc_sink, jdbc_tables
        |                    |-- own sinks   classes of users: module:Class                       own_sink
        |                    `-- KafkaSink   one write for all topics, at least once              kafka_sink, kafka_topics, kafka_record
        |                          `-- single rows that Kafka would refuse --> rejects: undeliverable
        |-- ahead rows --- checked likewise --> sender, Kafka at the due time                       punctual, packing, sender, sender_note, parcels, producers
        `-- rejects -----------------------------------------------> one write, last              batch_writer

    progress, summary    texts: the line of a batch, the account of a run
    row_removal          removes the rows of ids from what sinks have written

Where would I add a sink?
    In a module of its own here: a frozen dataclass with the three methods of :class:`~wheel_udf.delivery.destinations.Sink` (``missing_reason``, ``write``,
    ``holds``); if one write is to serve many destinations, also ``write_all`` (:class:`~wheel_udf.delivery.destinations.JointSink`). Export it in this
    file. A job makes sinks from its config in :mod:`wheel_udf.job`. :class:`FileSink` is the shortest example.

What happens to a row that Kafka refuses?
    It is found before the write (too large for the topic or the producer, no key for a compacted topic; see :mod:`wheel_udf.delivery.kafka_sink`) and
    written to the rejects with the code ``undeliverable``; the rest of the batch is delivered. All rows of a topic that is missing or not allowed go to
    the rejects, too. Such rows count as fired, and in ``BatchReport.undeliverable``. A broker that is down fails the batch and with it the query; the
    next start repeats the batch.

May import: common, wheel, purgatory, platform, clock, commands, stream; pyspark, delta. ``http_sender`` and ``http_endpoint`` run on executors: httpx and pyarrow
alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wheel_udf.common.exports import exports

if TYPE_CHECKING:
    from wheel_udf.delivery.batch_writer import (
        rejects_app_id as rejects_app_id,
    )
    from wheel_udf.delivery.delta_sink import (
        DeltaSink as DeltaSink,
    )
    from wheel_udf.delivery.destinations import (
        FIRED as FIRED,
        OUTCOME as OUTCOME,
        Destinations as Destinations,
        Shape as Shape,
        Sink as Sink,
        require_apart as require_apart,
    )
    from wheel_udf.delivery.file_sink import (
        FileSink as FileSink,
    )
    from wheel_udf.delivery.http_sink import (
        HttpSink as HttpSink,
    )
    from wheel_udf.delivery.jdbc_sink import (
        JdbcSink as JdbcSink,
    )
    from wheel_udf.delivery.kafka_search import (
        records_of as records_of,
    )
    from wheel_udf.delivery.kafka_sink import (
        KafkaSink as KafkaSink,
    )
    from wheel_udf.delivery.own_sink import (
        OWN_SINK_PATTERN as OWN_SINK_PATTERN,
        make_own_sink as make_own_sink,
    )
    from wheel_udf.delivery.producers import (
        settings_of as settings_of,
    )
    from wheel_udf.delivery.progress import (
        duration_text as duration_text,
        progress_line as progress_line,
    )
    from wheel_udf.delivery.query import (
        AVAILABLE_NOW as AVAILABLE_NOW,
        ONCE as ONCE,
        deliver as deliver,
        start_with as start_with,
    )
    from wheel_udf.delivery.report import (
        BatchReport as BatchReport,
        Stored as Stored,
    )
    from wheel_udf.delivery.row_removal import (
        count_rows as count_rows,
        count_texts as count_texts,
        frame_of_ids as frame_of_ids,
        has_deletion_vectors as has_deletion_vectors,
        remove_rows as remove_rows,
        rows_of_ids as rows_of_ids,
        rows_without_ids as rows_without_ids,
    )
    from wheel_udf.delivery.summary import (
        Summary as Summary,
    )
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "batch_writer": ("rejects_app_id",),
            "delta_sink": ("DeltaSink",),
            "destinations": ("Destinations", "FIRED", "OUTCOME", "Shape", "Sink", "require_apart"),
            "file_sink": ("FileSink",),
            "http_sink": ("HttpSink",),
            "jdbc_sink": ("JdbcSink",),
            "kafka_search": ("records_of",),
            "kafka_sink": ("KafkaSink",),
            "own_sink": ("OWN_SINK_PATTERN", "make_own_sink"),
            "producers": ("settings_of",),
            "query": ("AVAILABLE_NOW", "ONCE", "deliver", "start_with"),
            "progress": ("duration_text", "progress_line"),
            "report": ("BatchReport", "Stored"),
            "row_removal": (
                "count_rows",
                "count_texts",
                "frame_of_ids",
                "has_deletion_vectors",
                "remove_rows",
                "rows_of_ids",
                "rows_without_ids",
            ),
            "summary": ("Summary",),
        },
    )
