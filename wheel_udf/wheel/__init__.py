"""The timing wheel: where entries wait, and which of them are due. Pure: ints, numpy and Arrow; no Spark, no
clock, no file.

A *shard* is one of several independent wheels; the hash of an id chooses its shard. In: the state of a shard,
a batch of valid commands, the instant. Out: the next state, released entries, counts. The one entry point is
:func:`wheel_udf.wheel.step.advance`; Spark calls it for each shard and batch
(:mod:`wheel_udf.stream.wheel_worker`).

The wheel, ``Wheel(tick_ms=1, size=20, levels=3)``: each level has 20 slots, and a slot is as wide as the
whole level below::

    level 1, slots of   1 ms    |0|1|2| ... |19|           due within 20 ms of the clock
    level 2, slots of  20 ms    | 0 | 20 | ... | 380 |     due within 400 ms
    level 3, slots of 400 ms    |  0  |  400  |  800  |    due later (the top level is open-ended)

    an entry due at 450     clock   0    level 3 [400, 800)
                            clock 400    level 2 [440, 460)     the clock reached it: entries move down (cascade)
                            clock 440    level 1 [450, 451)
                            clock 450    fires, never before

A batch, through the files of this room, into those of :mod:`wheel_udf.shard`::

    commands --> versions.fold --> step.advance --> buckets.Buckets.place --> shard.chunks, shard.state
                 which version      what is due       the bucket of an          encoded Arrow rows, one row of
                 of each id wins    leaves            entry is decided HERE     Spark's state store

Where is the bucket of an entry decided? In ``buckets.py``, :meth:`~wheel_udf.wheel.buckets.Buckets.place`, by
the formulas of :mod:`wheel_udf.common.geometry`.

========================  ==========================================================================================
reference                 ``TimingWheel``: the classic wheel in memory, for the traces and for one process
buckets                   which bucket an entry is kept in; when a bucket is opened
step                      one step of one shard: fold, move the clock, cascade, release
versions                  the fold: which commands win, how each of them ends. Its parts: ``version_order`` (sorting),
                          ``known`` (what is known of an id), ``ambiguous``, ``late_acts``, ``outcomes``
policies                  what a step leaves to others, as protocols (their answers: :mod:`wheel_udf.policies`)
memory                    what is remembered of ended ids, and for how long
acted                     acts on entries of the state: their rows, completed from the entries
seed                      the state of a shard made anew from its rows, for another geometry or number of shards
lateness                  the histogram of latenesses
========================  ==========================================================================================

Costs: a tick with nothing due and nothing new is O(1). Otherwise O(commands + rows of the opened chunks): an add
writes a chunk of its own, and a cancel reads the id and version of its entry, however many entries are pending. An
entry moves down at most ``levels - 1`` times, and is rewritten O(log) times where chunks are merged. Of a backlog a
batch opens what it releases. With limits by destination or slot (:mod:`wheel_udf.policies.shard_limits`) a batch with
new entries reads two columns of all chunks. No Python loop over entries.

May import: common, shard; numpy, pandas and pyarrow. Python workers of Spark load this room.
"""
