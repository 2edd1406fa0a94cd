"""The job: from a config file to a running query and an exit code.

::

    config file --> loader --> models --> begin --> attempts --> compose --> supervise --> progress, summary, exit code
                    YAML,      settings,  leases,   one start    source,     --until, signals,
                    --set,     rules      Spark     of the       operator,   again if it failed
                    secrets      |                  query        sinks         |--> metering: metrics, health, batch log
                                 +--> replay: a planned batch keeps its settings
                                 +--> dry_run: everything that can be checked before a run
                                 +--> verbs: pending, forecast, history, acts; cancel, move, reroute, ...
                                 +--> ui: serves the page
                                 +--> moves: export, import; repair: a damaged checkpoint
    command line --> cli (all verbs, by verbs.toml; console command wheel-udf)

In: a YAML file (:mod:`~wheel_udf.job.models` has its sections, ``conf/schema`` their JSON Schema) and the arguments of
the command line. Out: lines on standard output, errors on standard error, an exit code (:mod:`~wheel_udf.job.cli`);
rows where the config says.

:mod:`~wheel_udf.job.faults` writes the texts of a config's errors, :mod:`~wheel_udf.job.sources` opens the sources,
:mod:`~wheel_udf.job.kafka_options` makes the options of Kafka's reader.

May import: all rooms except testing; pyspark, pydantic, yaml. The command line loads Spark only for a verb that needs
it.
"""
