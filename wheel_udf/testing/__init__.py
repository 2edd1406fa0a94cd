"""Tools for tests: a clock moved by hand, literal frames, and a real Kafka broker; public, for users' own tests too.

::

    ManualClock ------ now_ms -----.
                                   v
    commands_table([...]) ---> the pure step ---> rows_of(fired)       a test without a JVM: milliseconds
                               (wheel.advance)

    [(instant, rows), ...] ---> play(pipeline) ---> all rows           a test of a Spark frame, under a manual clock

    create_topics ----.
                      v
    LocalKafka ---> a broker on 127.0.0.1 ---> any client              a test with Kafka: 5 s to start, 512 MiB
                      ^
    delete_topics ----'

    commands, fired rows, rejects ---> ledger.check ---> Report        checks a run from its input and its sinks alone

In: literal rows, instants, names of topics, the frames of a run. Out: Arrow tables, dicts, frames, bootstrap servers,
reports. Of the package only the verb ``broker`` imports this room: it is not needed to run a job. Guide:
docs/testing.md.

Example, a test of one entry on a wheel, without Spark and without waiting::

    clock = ManualClock(0)
    tea = commands_table([{"schedule_id": "tea", "deliver_at_ms": 1_000}])
    step = advance(ShardState.empty(Wheel(1, 20, 3)), tea, clock.now_ms, memory_ms=None)
    assert rows_of(step.fired) == []                                     # not due yet
    step = advance(step.state, None, clock.advance(1_000), memory_ms=None)
    assert [row["schedule_id"] for row in rows_of(step.fired)] == ["tea"]

============ ==========================================================================
module       what it holds
============ ==========================================================================
clocks       the clock moved by hand
frames       literal commands as the step takes them, and its rows as dicts
stage        a Spark frame over literal batches, each with its instant
broker       the broker's process: start, stop, kill, restart on the same port
settings     the broker's settings, and what can be read from its log
topics       topics made and deleted with a plain Kafka client
ledger       the checker of a run: lost, early, twice, fired after a cancel, account
============ ==========================================================================

May import: every room above it; pyarrow, and confluent-kafka and pyspark inside functions.
"""
