"""Connect: the scheduler on a session of Spark Connect, which has no JVM: serverless and standard access of Databricks.

Lateness is the period of the run: a run reads what is there, releases what is due, and ends; the platform starts the
next one.

::

    commands --> schedule() --to_outbox--> outbox: fired, missed, rejected, status        one Delta stream
                                              |
                       deliver_outbox         |  where does each row go? decided once, in the row
                                              v
                                           OUTBOX_routed                                  one Delta stream
                                              |-- table of a destination                  one Delta stream each
                                              '-- rejects: missed, rejected, undeliverable

    outbox     to_outbox: one run of a frame of schedule()
    fan_out    deliver_outbox: the streams above
    routing    the allow-list as columns: the table of a row, or why it has none
    tables     names, identities and columns of tables in a catalog, by SQL alone

Each stream is Spark's own, from a Delta table or frame to a Delta table, with a checkpoint of its own: exactly once. No
``foreachBatch``, no board, no lease, no file of the server: the identity of a checkpoint is in the properties of the
table that it writes.

In: a frame of ``schedule``; names of tables. Out: rows in Delta tables of a catalog.

This room exports its public names, because users import them from here.

May import: common, shard, control, stream, sinks; pyspark. Nothing that needs py4j, delta or deltalake.
"""

from wheel_udf.connect.fan_out import deliver_outbox as deliver_outbox
from wheel_udf.connect.outbox import OutboxReport as OutboxReport, to_outbox as to_outbox
from wheel_udf.stream.schedule_operator import schedule as schedule
