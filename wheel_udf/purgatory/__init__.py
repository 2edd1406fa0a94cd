"""Purgatory: operations that wait for events. Pure: Arrow tables and numpy arrays in and out; no Spark, no clock, no
files.

An operation waits under watch keys until events complete it, a cancel ends it, or its deadline passes. Two
implementations stand side by side: the classic interface in memory (:class:`Purgatory`, for programs and as a
reference), and :func:`advance`, one step of one shard, which ``stream`` runs in Spark with the state between
the steps.

::

    requests --> identity ------------.
    (claims: one operation per id)     v
    events ----> future_events --> timeline --> outcomes (rounds) --> outcomes
                 (not yet due)         ^          |   ^
    state -----> operations (arrays) --'          |   |
                                                  v   |
                                              generations (joins, heartbeats)  --> next state

=============  ==================================================================================================
file           does
=============  ==================================================================================================
step           :func:`advance`: opens the chunks a batch needs, settles, builds the next state
identity       one operation per id at a time: which request counts, duplicates, requests that are held back
timeline       events of a step by key and time; windows as ranges
operations     open operations as arrays
outcomes       applies events, decides outcomes: complete beats cancel beats expire
generations    extends joins and heartbeats, rest, next generation
future_events  rows whose time the clock has not passed
state          schemas, format version, state of a shard
inspect        lists the operations of a stored state
seed           the state of a shard made anew from its rows, for another geometry or number of shards
reference      the classic interface: :class:`Purgatory`, :class:`DelayedOperation`
=============  ==================================================================================================

In: the state of a shard, new operations (``REQUEST_SCHEMA``), events and cancels (``EVENT_SCHEMA``), the
    clock.
Out: the next state and outcomes (``OUTCOME_SCHEMA``).

May import: common, shard, wheel; numpy, pandas and pyarrow.
"""
