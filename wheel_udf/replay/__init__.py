"""What-if replay: the same commands under other ticks, sizes, levels, triggers, shards and modes, compared in figures.

::

    commands (a table) --------.
                               +--> replay(): the real step of the wheel,  --> one row of figures a plan
    plans: wheel, trigger, ... -'    batch after batch, in this process

No stream runs and no time passes: the clock of the replay goes from trigger to trigger over the event times of the
commands, and on until nothing is pending. So a day of commands takes seconds, and a question such as "does a tick of
ten seconds cost less?" is answered by figures of the core itself: lateness, batches, rows moved between levels, bytes
of state written. Costs of Spark and Delta (planning, commits, the network) are not in them: see docs/performance.md
and `make bench`.

In: commands as an Arrow table or a batch DataFrame. Out: a pandas DataFrame.

May import: common, shard, wheel, policies, store; pandas, numpy and pyarrow. Not pyspark, except for a DataFrame that
is given.
"""
