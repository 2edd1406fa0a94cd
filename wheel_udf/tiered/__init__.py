"""Tiered mode: a run whose far entries wait in the slot store, so that a batch costs the same however many entries are
pending.

What goes in: a streaming frame of commands and a :class:`TieredWheel` (layout, store, clock, limits). What comes out:
a :class:`TieredRun`, which has the methods of a streaming query. :func:`start_tiered` starts three activities in one
process: the *intake* writes commands to the store, the *keeper* moves entries that come near (a *hand-over*), the
*wheel* releases what is due::

    commands --> intake query --> keeper --> slot store --near rows--> wheel query --> delivery (sinks, rejects)
                     ^              |            ^                         |
                     pause          hand_over    |                         report
                     |              retirement   `-- drops                 |
                     pressure <--------------------------------------------'

    settings     TieredWheel: the settings of a run
    start        start_tiered: builds and starts the queries
    checks       whether settings, checkpoint and store belong together
    run          TieredRun: supervises a run: its queries, its end, stop
    run_clock    the clock of a run: of a batch, for hand-overs, for the wheel
    keeper       all writes of a run to the store
    bad_rules    series whose rules cannot be read become rejects
    hand_over    which rows leave a far slot, and as what
    retirement   which near windows are dropped, and which of their versions are kept
    pressure     limits on pending entries: reject, or pause the intake
    pause        holds the intake between two batches
    lead         event clock: which clock the wheel gets, how far the intake may be ahead of it
    figures      what the store holds, for reports
    queries      stop a query between batches, its position
    rows         expressions over rows of the store

May import: common, shard, policies, control, spark, tables, checkpoint, commands, stream, sinks, delivery, store,
pending; pyspark, numpy, pyarrow.
"""
