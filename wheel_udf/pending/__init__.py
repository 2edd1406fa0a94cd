"""Pending: reads pending work as tables and changes it.

In: a :class:`PendingWork` (the checkpoint folder of a run and, in the tiered mode, its slot store). Out: DataFrames,
and files of acts (cancel, move, reroute), which the job takes. Any process with a session can do this, while the job
runs or rests::

    question or action                                   function              module
    which entries are pending now, or were at a time?    pending               entries
    how many entries are pending?                        count_pending         entries
    how many rows are in the store (no data read)?       stored                entries
    how much falls due when?                             forecast              entries, load
    what happened to this id?                            history_of            history, in_topics
    which operations of a purgatory are pending?         operations_pending    operations
    what happened to this operation?                     operation_history_of  operation_history
    cancel, move, fire, pause, ... by id or predicate    acts.cancel, ...      acts, picked, changes
    deliver occurrences of series again                  acts.backfill         backfill
                                                         (reads of Spark's state: state; of the slot store: in_store,
                                                         by comparison, with the state's series: stored_series)
    the same of a tiered job, without Spark?             StoreAlone            store_alone

    direct    Spark's state -----------------------------> entries --selected--> acts --file--> checkpoint --> the job
    tiered    Spark's state (near) + slot store (far) ---> entries --selected--> acts --file--> checkpoint --> the job

May import: common, shard, wheel, policies, purgatory, control, kafka, spark, tables, checkpoint, commands, stream,
sinks, delivery, store; pyspark, pyarrow.
"""
