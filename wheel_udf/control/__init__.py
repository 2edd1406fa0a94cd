"""Control: brings time to the operators as data, one row per shard per tick.

Spark runs a micro-batch only when a source has something new, and a group of ``applyInPandasWithState`` sees
time only in a batch that contains a row for it. This room is the source of those rows, the *ticks*. It decides
when a tick is needed: an idle wheel gets none except its heartbeat. The *board* is a folder in which each
shard reports its next due time.

::

    clocks.py      settings of a clock: event | processing | simulated | store
                        |
    pace.py        must time advance? <---- ShardReport of each shard (board.py, reports.py) <---- stream/, delivery/
                        |
    contributors.py     + acts, sender, shares -> offset (journaled by Spark)
                        |
    source.py      Spark data source `wheel-clock` -> a Tick for each shard (tick.py) -----------> stream/

In: a clock's settings, the reports of the shards (next due time, clock, watermark), and in the tiered mode
    what the keeper of the slot store (:mod:`wheel_udf.tiered`) publishes.
Out: clock rows with the columns ``shard`` and ``tick``, and the wall clock (``wall.py``), which no other room reads.

May import: common, policies, spark; pyspark's data source API in ``source.py`` alone. Planning a tick must not import
numpy, pandas or pyarrow (start-up time of Spark's planning process).
"""
