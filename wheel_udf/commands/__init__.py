"""Commands: reads what producers send, as Spark ``Column`` expressions: commands of the wheel, operations and
events of the purgatory.

In: a frame of user columns, of Kafka records or of a change data feed, and a
:class:`~wheel_udf.commands.contract.Contract`. Out: one row for each row of the input, valid or with an error
code; no row is dropped, and no data raises an error. All in the JVM: no UDF, no Python for each row.

::

    Kafka record --> kafka_presets --+                 rules (order, conditions), texts.toml (messages)
    Delta changes -> change_feed ----+--> parse ---------> command rows --> wheel
    any frame -----------------------+      |
                                            +- inputs (find columns) - readers, time_readers (read one column)
    operations, events ---------------> operations -----> operation rows --> purgatory
                                                       operation_rules

May import: common, shard, purgatory; pyspark.
"""
