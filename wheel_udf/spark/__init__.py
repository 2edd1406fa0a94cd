"""Spark: sessions and the JVM. All uses of interfaces that Spark and the JVM keep private, behind functions with
Python arguments.

In: settings, paths, frames. Out: a session, plain values, frames, errors of this package. No JVM object leaves the
rooms ``spark`` and ``tables``, and no other room names a private attribute of pyspark, a class of the JVM or py4j (a
test holds this)::

      tables   checkpoint   stream   sinks   delivery   job            other rooms
    ---------------------------------------------------------------------------------------------------------------
      session  running  local_mode                                     the session
      fast_start  recorded_run                                         what makes its start fast
      java  jars  versions                                             Java, the jars, what a version of Spark lacks
      stream_reader  queries  frames                                   Python sources, queries that end with their input
      worker_python  arrow_groups                                      Spark's Python workers, their rows as Arrow
      folder  files  hadoop_files  object_stores  places               folders on any file system
      failures  job_progress  interrupts                               errors in one sentence, progress, Ctrl-C
      jdbc                                                             statements to a database
      jvm  private_api                                                 access to the JVM, the list of private API
    ---------------------------------------------------------------------------------------------------------------
      py4j   pyspark   Hadoop                                          not ours

May import: common; pyspark, py4j, obstore, the standard library.

Private API: ``private_api.toml`` is the one list. Each entry has a canary test
(``tests/upgrade/test_canaries.py``) and names the version in which it was read. Where a class or method is missing, the
replacement is used, or :class:`~wheel_udf.common.errors.UnsupportedVersionError` names the API and the versions.
"""
