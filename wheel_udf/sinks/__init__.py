"""Sinks: one write of the rows of a batch to the destinations that they name.

In: fired rows and rejects of a batch, an allow-list of destinations. Out: rows in Delta tables, Kafka topics, files,
databases, HTTP endpoints::

    fired rows: is the destination allowed? - no -> rejects: undeliverable      destinations
                    | yes
                  can it be written? ------------ no -> rejects: undeliverable      batch_writer (check)
                    | yes
                    |-- DeltaSink   one write per table, exactly once               delta_sink
                    |-- FileSink    one write per folder                            file_sink
                    |-- HttpSink    a POST per row, from the executors              http_sink, _sender, _endpoint
                    |-- JdbcSink    one write for all tables, each row once         jdbc_sink, jdbc_tables
                    |-- own sinks   classes of users: module:Class                  own_sink
                    `-- KafkaSink   one write for all topics, at least once         kafka_sink, _topics, _record
                          `-- rows that Kafka would refuse -> rejects: undeliverable
    rejects --------------------------------------------> one write, last           batch_writer

    kafka_search         finds records of an id in topics

Where would I add a sink?
    In a module of its own here: a frozen dataclass with the three methods of
    :class:`~wheel_udf.sinks.destinations.Sink` (``missing_reason``, ``write``, ``holds``); if one write is to serve
    many destinations, also ``write_all`` (:class:`~wheel_udf.sinks.destinations.JointSink`). A job makes sinks from
    its config in :mod:`wheel_udf.job`. :class:`~wheel_udf.sinks.file_sink.FileSink` is the shortest example.

What happens to a row that Kafka refuses?
    It is found before the write (too large for the topic or the producer, no key for a compacted topic; see
    :mod:`wheel_udf.sinks.kafka_sink`) and written to the rejects with the code ``undeliverable``; the rest of the
    batch is delivered. All rows of a topic that is missing or not allowed go to the rejects, too. Such rows count as
    fired, and in ``BatchReport.undeliverable``.

Where does a row wait when its endpoint is down?
    Kafka, Delta, a database: in its batch. The batch fails and with it the query; the next start repeats it. A row for
    a punctual topic waits at the sender (:mod:`wheel_udf.punctual`), and in the state of its shard until Kafka has
    acknowledged it. A webhook is tried several times in the batch; then its row is a reject, ``undeliverable``.

May import: common, control, kafka, spark, tables, stream; pyspark, delta. ``http_sender`` and ``http_endpoint`` run
on executors: httpx and pyarrow alone.
"""
