"""Sinks: one write of the rows of a batch to the destinations that they name.

In: fired rows and rejects of a batch, an allow-list of destinations. Out: rows in Delta tables, Kafka topics, files,
databases, HTTP endpoints::

    fired rows: is the destination allowed? - no -> rejects: undeliverable      destinations
                    | yes
                  can it be written? ------------ no -> rejects: undeliverable      batch_writer (check)
                    | yes
                    |-- DeltaSink   one write per table, exactly once               delta_sink
                    |-- CatalogTableSink  the same, by names of a catalog           catalog_sink
                    |-- FileSink    one write per folder                            file_sink
                    |-- HttpSink    a POST per row, from the executors              http_sink, _sender, _endpoint
                    |-- JdbcSink    one write for all tables, each row once         jdbc_sink, jdbc_tables
                    |-- own sinks   classes of users: module:Class                  own_sink
                    `-- KafkaSink   one write for all topics, at least once         kafka_sink, _topics, _record
                          `-- rows that Kafka would refuse -> rejects: undeliverable
    rejects --------------------------------------------> one write, last           batch_writer

    kafka_search         finds records of an id in topics

Undeliverable rows count as fired. How to add a sink: CONTRIBUTING.

May import: common, control, kafka, spark, tables, stream; pyspark, delta. ``http_sender`` and ``http_endpoint`` run
on executors: httpx and pyarrow alone.
"""
