"""Delivery: writes the rows that leave the operators to their destinations, and reports on each batch.

In: the streaming frame of ``schedule`` or ``watch`` (:mod:`wheel_udf.stream`), an allow-list of destinations, a sink
for rejects. Out: rows in Delta tables, Kafka topics or files; one :class:`BatchReport` per batch; the hint, which is
the next due time for the clock::

    one micro-batch                                                                     module
      frame of the operator, cached once
        |-- status rows ----------------------------------> report, hint to the clock   query, report
        |-- fired rows: is the destination allowed? - no -> rejects: undeliverable      destinations
        |               | yes
        |             can it be written? ------------ no -> rejects: undeliverable      batch_writer (check)
        |               | yes
        |               |-- DeltaSink   one write per table, exactly once               delta_sink
        |               |-- FileSink    one write per folder                            file_sink
        |               |-- HttpSink    a POST per row, from the executors              http_sink, _sender, _endpoint
        |               |-- JdbcSink    one write for all tables, each row once         jdbc_sink, jdbc_tables
        |               |-- own sinks   classes of users: module:Class                  own_sink
        |               `-- KafkaSink   one write for all topics, at least once         kafka_sink, _topics, _record
        |                     `-- rows that Kafka would refuse -> rejects: undeliverable
        |-- ahead rows, checked likewise --> sender, Kafka at the due time              punctual, packing, producers,
        |                                                                               sender, _note, timed_records
        `-- rejects --------------------------------------> one write, last             batch_writer

    progress, summary    texts: the line of a batch, the account of a run
    row_removal          removes the rows of ids from what sinks have written

Where would I add a sink?
    In a module of its own here: a frozen dataclass with the three methods of
    :class:`~wheel_udf.delivery.destinations.Sink` (``missing_reason``, ``write``, ``holds``); if one write is to serve
    many destinations, also ``write_all`` (:class:`~wheel_udf.delivery.destinations.JointSink`). Export it in this
    file. A job makes sinks from its config in :mod:`wheel_udf.job`. :class:`FileSink` is the shortest example.

What happens to a row that Kafka refuses?
    It is found before the write (too large for the topic or the producer, no key for a compacted topic; see
    :mod:`wheel_udf.delivery.kafka_sink`) and written to the rejects with the code ``undeliverable``; the rest of the
    batch is delivered. All rows of a topic that is missing or not allowed go to the rejects, too. Such rows count as
    fired, and in ``BatchReport.undeliverable``. A broker that is down fails the batch and with it the query; the next
    start repeats the batch.

May import: common, wheel, purgatory, platform, clock, commands, stream; pyspark, delta. ``http_sender`` and
``http_endpoint`` run on executors: httpx and pyarrow alone.
"""
