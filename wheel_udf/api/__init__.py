"""A running job serves its metrics and answers questions about itself over HTTP, from the session that it has.

::

    wheel-udf pending                      the job's process
      checkpoint --place--> address, token
      arguments as JSON  ----------------> server --> the verb, with the job's session --> answer
      prints rows, lines <---------------- rows, counts, lines as JSON; or rows as Arrow
    Prometheus --/metrics, /healthz------> server --> wheel_udf.metrics: figures in memory, no token

A start of Spark takes longer than most answers: asked so, a running job answers in about a second. ``place`` says where
a job answers, ``server`` and ``client`` are the two ends, :class:`~wheel_udf.api.job.Job` is the client for programs.
What the questions are, and how they are answered, is passed in (:mod:`wheel_udf.job.serving`).

In: questions of :mod:`wheel_udf.job.serving`. Out: :class:`~wheel_udf.api.answer.Answer`. The HTTP interface:
docs/api-http.md.

May import: common, spark, metrics; a program that asks needs pyarrow, the command line the standard library alone.
"""
