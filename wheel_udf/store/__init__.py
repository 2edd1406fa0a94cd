"""Store: the slot store, one Delta table for entries that are not due for a long time.

In: parsed commands (as rows by ``stored_rows``), hand-overs, acts. Out: a stream of near rows for the wheel, tables of
rows for hand-overs and :mod:`wheel_udf.pending`, and the head of the log (version, cursor, clock). All of it through
:class:`SlotStore`::

    intake batch --stored_rows--> append ------> | level 0: near rows     | --near_stream--> wheel
                                                 | level k: far slots     | --rows---------> hand-over, pending
    hand-over ------------------> append, drop   | level -2: inbox        |
    retirement -----------------> append, drop   | level -1: marks        | --head---------> cursor, clock, last batches
                                                   one Delta table, partitioned by (level, slot)

    near         due before the cursor; goes to the wheel     inbox    far entries of small batches, not yet in a slot
    far          due later; waits in its slot                 marks    versions kept after their rows were dropped

    layout       which level and slot an entry has: StoreLayout
    intake       commands to rows
    lease        the right to write to the table
    table        the table's columns and properties, creation, check that a table is this store
    log          head, partitions and files of a version
    reader       the log, and rows as frames, the stream of near rows
    scan         rows as Arrow tables, without a Spark job
    slot_store   SlotStore: the reader, and append, drop, rearrange, each one atomic commit
    head         cursor, clock and batches of a version, from its log: Head, Contents, Partition, Appended
    versions     which entries that leave a slot are still valid
    ranking      the same in Arrow tables; which id hashes occur more than once: only their versions are compared

May import: common, shard, spark, tables, checkpoint, commands; pyspark, delta (``layout`` runs on executors:
numpy and pyarrow only).
"""
