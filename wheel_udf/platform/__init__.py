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
      kafka_admin  kafka_settings                                      Kafka's topics, options of its client for librdkafka
      cached_columns  failures                                         columns built once, errors in one sentence
      arrow_groups                                                     rows of the stateful operator as Arrow
      job_progress  interrupts                                         how far Spark's jobs are, and Ctrl-C
      jvm  private_api  delta_public                                   access to the JVM, the list below, public replacements
    ---------------------------------------------------------------------------------------------------------------
      py4j   pyspark   Delta   confluent-kafka   Hadoop                not ours

May import: common, wheel; pyspark, delta, py4j, the standard library; confluent-kafka inside functions of
``kafka_admin`` alone.

Private API. Each row has an entry in :mod:`wheel_udf.platform.private_api` and a canary test
(``tests/upgrade/test_canaries.py``) that names the version in which it was read. Where a class or method is missing,
the replacement is used, or :class:`~wheel_udf.common.errors.UnsupportedVersionError` names the API and the versions.
::

    API (module)                            why                                without it -> the way taken
                                                                               instead
    --------------------------------------  ---------------------------------  ----------------------------------
    SparkSession._jvm (jvm)                 JVM classes that have no Python    the package needs a classic
                                            API                                session; Spark Connect has no _jvm
    SparkSession._jsparkSession,            the JVM's session for Delta's      no look at tables and folders
    SparkSession._jsc (jvm)                 classes, its Hadoop configuration  before a write
                                            for file systems
    PythonUtils.toSeq,                      arguments of Scala methods         as for the methods that they are
    PythonUtils.toScalaMap, scala.Option                                       passed to
    (jvm)
    Column._jc, DataFrame._jdf,             columns are built once and not in  a batch takes about 0.1 s longer
    classic.dataframe.DataFrame             each batch                         -> DataFrame.select with new
    (cached_columns)                                                           columns in each batch
    SparkContext._active_spark_context,     finds a running session from any   build_session cannot tell whether
    SparkContext._ensure_initialized,       thread, and what spark-submit was  Spark runs
    SparkContext._jvm,                      given
    SparkSession._instantiatedSession
    (session)
    CheckpointFileManager (hadoop_files)    replaces a file of a checkpoint    checkpoints on other file systems
                                            as a whole on any file system      than the local one cannot be
                                                                               opened
    FileSystemBasedCheckpointFileManager    writes a local checkpoint without  a batch takes about 0.14 s longer
    (session)                               starting programs (ls, readlink)   -> Spark's default file manager
                                            for each file
    offsets/N, commits/N, metadata (v1,     which batch is planned and which   a checkpoint with another format
    v2) (spark_logs)                        is committed, whether a batch      is refused as damaged
                                            holds input
    sources/N of a source of files,         a moved job goes on reading where  an import cannot keep the position
    offsets of sources by their order       the old one stopped                of a source of files
    (source_logs)
    state/O/P/V_ID.changelog, .zip, .crc,   which version of the state is      damage of the state is found only
    stateUniqueIds in commits               damaged, and which batch reads it  by the run that reads it
    (state_files)
    error classes and 'Caused by' in the    one sentence for the user instead  the sentence is longer or less
    texts of exceptions, logger             of a stack trace                   exact; a page of JSON in the log
    SQLQueryContextLogger (failures)                                           for SQL that cannot be used -> the
                                                                               first line of the text
    sun.misc.Signal (session)               a SIGTERM to all processes of a    the JVM ends and cuts the batch
                                            job lets the running batch finish  off -> the next start repeats the
                                                                               batch
    StateStore.stop (session)               closes the states that a session   within a minute Spark may upload
                                            has loaded before their folder is  an old state into the folder -> an
                                            emptied                            empty folder is asked for again by
                                                                               the next call
    ApplyInPandasWithStateSerializer,       rows reach the operator and leave  the operator takes a sixth fewer
    ArrowBatchTransformer,                  it as Arrow, not as Python         rows a second -> pandas frames of
    GroupState._value (arrow_groups)        objects                            objects
    pyspark/jars/ivy-*.jar (jars)           downloads jars without Maven       make setup fails ->
                                                                               spark.jars.packages, set by the
                                                                               user
    java.sql.Driver, through py4j (jdbc)    statements that Spark's JDBC       no database sink
                                            writer does not write: inserts
                                            that ignore what is there
    DeltaLog.forTable, update,              version, columns, properties and   the slot store cannot be opened;
    getSnapshotAt; Snapshot.metadata,       transactions of a table without a  sinks look at a table by several
    transactions, allFiles (delta_log)      Spark job                          Spark jobs -> sinks and sources:
                                                                               DeltaTable.history, the files of
                                                                               its log
    Snapshot.checksumOpt (delta_log)        transactions and files from the    three Spark jobs for each commit
                                            file beside the last commit        -> as for DeltaLog.forTable
    DeltaLog.getChanges, util.JsonUtils     files that later commits have      the slot store cannot be opened
    (delta_log)                             added and removed
    DeltaLog.createDataFrame,               rows of known files without the    the slot store cannot hand over
    unsafeVolatileSnapshot;                 jobs that compute and filter the
    util.JsonUtils, actions.AddFile         files of a version
    (delta_files)
    DeltaLog.startTransaction;              an append without the writer's     the slot store cannot be written;
    OptimisticTransaction.readTxn,          search for its last transaction:   appends of sinks are slower ->
    writeFiles, commit;                     120 ms of CPU time, not 665        sinks: DataFrameWriter with
    actions.SetTransaction;                                                    txnAppId and txnVersion, also
    DeltaOperations.StreamingUpdate                                            exactly once
    (delta_transaction)
    OptimisticTransaction.updateMetadata,   commits of the slot store that     the slot store cannot be written:
    registerSQLMetrics; DeltaOptions;       carry several transactions, or     the public writer has no such
    actions.Action, Metadata;               replace files without changing     conflict checks
    DeltaOperations.Delete, Optimize,       data
    CreateTable; SQLMetrics
    (delta_transaction)
    DeltaLog.checkpointInterval,            no batch waits for a checkpoint    new readers replay up to 10,000
    doLogCleanup, newDeltaHadoopConf,       of a table's log                   commits -> Delta's own checkpoint,
    unsafeVolatileSnapshot                                                     within each 10,000th commit
    (log_checkpoints)
    the offsets of a Delta source           which table a checkpoint reads;    another slot store at the same
    (delta_log)                             where the wheel of an imported     path is not noticed before the
                                            tiered job begins to read its      run; no import into the tiered
                                            store                              mode -> Delta's own check when the
                                                                               query starts
"""
