"""The platform: everything that Spark, Delta, Kafka's client and the JVM keep private, behind functions with Python
arguments.

For: sessions, jars, checkpoints, reading and committing Delta tables, questions to a Kafka cluster, readable errors.
In go paths, frames and plain values; out come plain values, frames and errors of this package. No JVM object leaves
the room, and no other room names a private attribute of pyspark, a class of the JVM or py4j (a test holds this).

::

      delivery   store   tiered   job   pending                        other rooms
    ---------------------------------------------------------------------------------------------------------------
      delta_log  delta_files  delta_transaction      places            Delta tables: read, follow, commit; their places
      log_checkpoints                                                  their logs, made shorter beside the batches
      identity  lease  spark_logs  planned_settings  files  hadoop_files  checkpoints: identity, lock, planned batches
      move_marks  source_logs                                          checkpoints that move: marks, logs of sources
      chunk_files  chunk_place                                         the files of a state beside its checkpoint
      repair  inspection  state_files  checksums                       checkpoints that are damaged
      session  local_mode  java  jars  downloads  fast_start           Spark, Java, the jars
      worker_python                                                    the Python of Spark's workers
      kafka_admin  kafka_settings                                      Kafka's topics, client options for librdkafka
      cached_columns  failures                                         columns built once, errors in one sentence
      arrow_groups                                                     rows of the stateful operator as Arrow
      job_progress  interrupts                                         how far Spark's jobs are, and Ctrl-C
      jvm  private_api  delta_public                                   access to the JVM, private API, its replacements
    ---------------------------------------------------------------------------------------------------------------
      py4j   pyspark   Delta   confluent-kafka   Hadoop                not ours

May import: common, wheel; pyspark, delta, py4j, the standard library; confluent-kafka inside functions of
``kafka_admin`` alone.

Private API: :mod:`wheel_udf.platform.private_api` is the one list. Each entry has a canary test
(``tests/upgrade/test_canaries.py``) and names the version in which it was read. Where a class or method is missing, the
replacement is used, or :class:`~wheel_udf.common.errors.UnsupportedVersionError` names the API and the versions.
"""
