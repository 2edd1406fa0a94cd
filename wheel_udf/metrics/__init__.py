"""Metrics: what a running job reports about itself, to Prometheus, to a health check, to its log and to a page.

In: the report of each batch (:class:`~wheel_udf.delivery.BatchReport`), the progress that Spark reports after it, and
the clock. Out: metrics and health, which :mod:`wheel_udf.api` serves, and one line for each batch in a log beside the
checkpoint. Nothing here decides what a batch does::

    delivery: on_batch --BatchReport--.                    .--> batch_log      <checkpoint>-batches/ --> read_batches
                                       >-- Meter -- line --<
    Spark: StreamingQueryProgress ----'      |             '--> log: json      the same line on standard output
                                             |
                                             '--> exporter    text for Prometheus

    names       every metric, as metrics.toml declares it: type, unit, labels, one sentence
    lines       the line of a batch: the one declaration of its members
    batch_log   the ring of files: append, read_batches
    meter       the figures, the health and the lines of one run
    figures     the samples of all metrics at an instant
    health      whether a job is healthy
    listener    passes Spark's progress to the meter
    exporter    the metrics as text for Prometheus

**The line of a batch.** One JSON object, the same in the batch log and with ``log: json``. Instants are UTC epoch ms;
a member that does not apply is null:

==================  ====================================================================================================
``at_ms``           wall clock when the batch had ended
``query``           ``wheel``, or ``intake`` (tiered mode: the query that writes commands to the store)
``batch_id``        Spark's number of the batch
``received``        commands (of a purgatory: operations and events) that the batch read
``fired``           rows released to destinations, undeliverable ones included (of a purgatory: delivered outcomes)
``missed``          rows released after their ``max_lateness``
``rejected``        rows that the batch rejected
``undeliverable``   fired rows that a sink refused
``ended``           of a purgatory: operations that the batch has ended; null for a wheel
``pending``         entries (operations) that wait after the batch, near and far
``near``, ``far``   tiered mode: of these, in Spark's state and in the store; null elsewhere
``complete``        whether every shard has reported since the start of the query; if not, ``pending`` lacks shards
``clock_ms``        the wheel's clock after the batch
``watermark_ms``    the watermark that the batch ran with
``next_due_ms``     due time of the earliest near entry; null if there is none
``backlog``         whether due entries were held back by ``limits.fired_per_batch``
``paused``          whether the intake is paused
``lateness``        of the fired rows: ``{"count", "p50_ms", "p99_ms", "max_ms"}``; null if none fired
``seconds``         seconds that the batch took
``phases``          seconds by Spark's name of the phase: ``latestOffset``, ``queryPlanning``, ``addBatch``, ...
==================  ====================================================================================================

A line of the intake has ``at_ms``, ``query``, ``batch_id``, ``seconds`` and ``phases``; its other members are null
(the wheel's line counts the commands, far ones included; Spark's count of the intake's rows has those twice that are
read twice). ``seconds`` is null and ``phases`` is empty if Spark has not reported the progress of a batch. Read it
with::

    from wheel_udf.metrics.batch_log import read_batches
    for line in read_batches("data/checkpoints/scheduler", since_ms=1_767_225_600_000): ...

May import: common, shard, wheel, control, spark, delivery;
pyspark; prometheus_client in ``exporter`` alone (extra ``metrics``).
"""
