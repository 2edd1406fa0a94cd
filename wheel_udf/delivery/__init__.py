"""Delivery: the query that writes the rows that leave the operators, and reports on each batch.

In: the streaming frame of ``schedule`` or ``watch`` (:mod:`wheel_udf.stream`), an allow-list of destinations, a sink
for rejects. Out: rows at their destinations; one :class:`~wheel_udf.delivery.report.BatchReport` per batch; the next
due time, for the clock::

    one micro-batch                                                              module
      frame of the operator, cached once
        |-- status rows --------> report, next due time to the clock             query, report
        |-- ahead rows ---------> sender, Kafka at the due time                  wheel_udf.punctual
        |-- fired rows ---------> sinks                                          wheel_udf.sinks
        `-- rejects ------------> one write, last                                wheel_udf.sinks.batch_writer

    act_courier          takes requests of acts to the shards
    progress, summary    texts: the line of a batch, the account of a run

May import: common, shard, wheel, policies, control, spark, checkpoint, stream, sinks, punctual; pyspark.
"""
