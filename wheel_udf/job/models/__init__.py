"""The config file as models: names, types, bounds and defaults of every setting, and the rules between them.

::

    SchedulerConfig  = DirectConfig | TieredConfig        by mode       the file of a scheduler
    PurgatoryConfig                                                     the file of a purgatory
      clock          event | processing | simulated      by kind       wheel.py
      source         parquet, json, csv | delta | kafka  by format     source.py, kafka.py; a purgatory's: purgatory.py
      destinations   delta | kafka | http | ... | own    by sink       sink.py; rejects likewise
      levels         fixed | binary                      by policy     levels.py
      contract, limits, delivery, store, lease, restarts               bounds.py
      metrics                                                          metrics.py
      api                                                              api.py

One class for each section and variant. Durations and instants become attributes that end in ``_ms``; None means that
there is no bound. :mod:`~wheel_udf.job.models.values` has the types of settings, :mod:`~wheel_udf.job.models.section`
the rules between several settings. :mod:`wheel_udf.job.loader` reads a file into these models,
their JSON Schema (``conf/schema``) has the docstrings of the fields.
"""
