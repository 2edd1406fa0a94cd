"""Stream: the two operators, ``schedule`` (the wheel) and ``watch`` (the purgatory), as functions of streaming
DataFrames.

An operator groups rows by shard and runs one pure step per shard and batch in a Python worker
(``applyInPandasWithState``). It starts no query.

::

    commands -> schedule_operator --.                                               .-> outputs: fired, rejects, status
                                     >- sharded_query -> worker ----------> frame -<
    ops, events -> watch_operator --'  (+ clock_rows) |  wheel_worker -> wheel/step  '-> delivery/ (leaving, refused)
                                                      |  watch_worker -> purgatory/step
                                                      '-> board -> clock/

    sharding                       shard of an id, grouping key of a shard
    arrow_frame, status_row        output rows of a worker as a frame; columns of a status row
    frame_facts                    which operator made a frame, with which geometry: metadata of the column ``kind``
    seed_query, seed_worker,       the first batch of a moved checkpoint (wheel_udf.transfer)
    source_positions

In: streaming DataFrames with the columns of the command contract, of operations and of events.
Out: one streaming DataFrame whose column ``kind`` is ``fired``, ``missed``, ``outcome``, ``rejected`` or
    ``status``.

May import: common, shard, wheel, policies, purgatory, control, spark, commands; pyspark. The files that run on
executors (sharding, worker, arrow_frame, wheel_worker, watch_worker, seed_worker, status_row, sampling) import numpy,
pandas and pyarrow only, and pyspark inside functions only.
"""
