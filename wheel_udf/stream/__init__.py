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

===================  ==================================================================================================
file                 does
===================  ==================================================================================================
schedule_operator    ``schedule``, ``schedule_stored``: command rows in, public frame out
watch_operator       ``watch``: operations and events in, public frame out
sharded_query        the query that both share: group by shard, run a worker
clock_rows           adds the rows of the clock source; the watermark
sharding             shard of an id, grouping key of a shard
punctual             how entries are handed to a sender ahead of their due time
worker               in the Python worker: splits a shard's rows by kind, derives the time
wheel_worker         in the Python worker of ``schedule``: state, :func:`wheel_udf.wheel.advance`, output rows
watch_worker         in the Python worker of ``watch``: state, :func:`wheel_udf.purgatory.advance`, output rows
arrow_frame          in the Python worker: output rows as a pandas frame of Arrow's columns
status_row           columns of a status row, declared once
seed_query           the query of the first batch of a moved checkpoint (:mod:`wheel_udf.transfer`)
seed_worker          in its Python worker: rows of a shard in, its state out
source_positions     stands in for the sources in that batch
frame_facts          which operator made a frame, with which geometry: metadata of the column ``kind``
outputs              selects rows of a kind from a frame
===================  ==================================================================================================

In: streaming DataFrames with the columns of the command contract, of operations and of events.
Out: one streaming DataFrame whose column ``kind`` is ``fired``, ``missed``, ``outcome``, ``rejected`` or
    ``status``.

May import: common, shard, wheel, policies, purgatory, control, spark, commands; pyspark. The files that run on
executors (sharding, worker, arrow_frame, wheel_worker, watch_worker, seed_worker, status_row, sampling) import numpy,
pandas and pyarrow only, and pyspark inside functions only.
"""
