"""Commands: reads what producers send: commands of the wheel, operations and events of the purgatory.

In: a frame of user columns, of Kafka records or of a change data feed, and a
:class:`~wheel_udf.commands.contract.Contract`. Out: one row for each row of the input, valid or with an error
code; no row is dropped, and no data raises an error. Columns are read and checked as Arrow arrays in Spark's Python
workers; so are records of Kafka, in the same turn.

::

    Kafka record --> kafka_presets --+                 rules (order, conditions), texts.toml (messages)
    Delta changes -> change_feed ----+--> parse ---------> command rows --> wheel
    any frame -----------------------+      |
                                            arrow_stage (mapInArrow) - record_reader (headers), delay_reader
                                            |                          command_reader - inputs (find columns)
                                            |                          operation_reader  readers, time_readers (fields)
    operations, events ---------------> operations -----> operation rows --> purgatory   values, records (rejects)
                                                       operation_rules

May import: common, shard, purgatory; pyspark.
"""
