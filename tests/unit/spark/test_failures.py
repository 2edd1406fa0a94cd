"""What a user reads of an exception, and with which exit code the job ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException

from wheel_udf.common import errors
from wheel_udf.spark.failures import LOST_HINT, Cause, explain

WRAPPED = """[STREAM_FAILED] Query [id = 2501f753, runId = a0ce9c36] terminated with exception: \
[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch sink. \
Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
{inner}
 SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 2501f753, runId = a0ce9c36]
wheel_udf.common.errors.ConfigError: not from here
"""


def streaming(inner: str) -> StreamingQueryException:
    """What Spark raises when a batch fails, with this at the heart of its message."""
    return StreamingQueryException(WRAPPED.format(inner=inner))


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (errors.ConfigError("x"), 2),
        (errors.ConfigErrors([errors.ConfigError("x")]), 2),
        (errors.ContractError("x"), 2),
        (errors.GeometryError("x"), 2),
        (errors.GeometryChangedError("x"), 2),
        (errors.CheckpointError("x"), 2),
        (errors.LeaseError("x"), 1),
        (errors.SinkError("x"), 1),
        (errors.SessionError("x"), 1),
        (errors.StateTooLargeError("x"), 1),
    ],
)
def test_an_error_of_ours_is_its_own_sentence_and_its_class_gives_the_code(
    error: errors.WheelError, exit_code: int
) -> None:
    failure = explain(error)
    assert (failure.sentence, failure.exit_code) == (str(error), exit_code)


def test_an_error_of_anybody_else_is_named_and_cut_to_its_first_line() -> None:
    failure = explain(KeyError("a"))
    assert (failure.sentence, failure.exit_code) == ("KeyError: 'a'", 1)
    assert explain(RuntimeError("one\ntwo")).sentence == "RuntimeError: one"
    assert explain(RuntimeError()).sentence == "RuntimeError: no message"


@pytest.mark.parametrize(
    ("name", "exit_code"), [("SinkError", 1), ("GeometryChangedError", 2), ("NoSuchError", 1)]
)
def test_an_error_of_ours_is_found_in_what_spark_made_of_it(name: str, exit_code: int) -> None:
    failure = explain(streaming(f"wheel_udf.common.errors.{name}: table is gone: x; hint: do y"))
    assert (failure.sentence, failure.exit_code) == ("table is gone: x; hint: do y", exit_code)


def test_the_outermost_of_our_errors_counts() -> None:
    chain = "wheel_udf.common.errors.ConfigError: first\n\nThe above exception was the direct cause:\nwheel_udf.common.errors.SinkError: second"
    failure = explain(streaming(chain))
    assert (failure.sentence, failure.exit_code) == ("second", 1)


def test_a_parquet_file_of_other_types_is_named() -> None:
    failure = explain(
        streaming(
            ": org.apache.spark.SparkException: [FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Encountered error "
            "while reading file file:///in/part-1.snappy.parquet. Data type mismatches when reading Parquet column "
            "[schedule_id]. Expected Spark type string, actual Parquet type INT64. SQLSTATE: KD001\n\tat org.apache.X(Y)"
        )
    )
    assert failure.exit_code == 2
    assert failure.sentence == (
        "a file of the source has another type in column schedule_id: file = 'file:///in/part-1.snappy.parquet'; "
        "rule: string, not INT64; hint: write it as the earlier files, or move it away; source.schema sets the types of all files"
    )


def test_a_csv_file_of_other_columns_is_named() -> None:
    failure = explain(
        streaming(
            ": org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in/z.csv. "
            " SQLSTATE: KD001\n\tat org.apache.X(Y)\n"
            "Caused by: org.apache.spark.SparkIllegalArgumentException: CSV header does not conform to the schema.\n"
            "Expected: destination but found: other\nCSV file: file:///in/z.csv\n\tat org.apache.X(Y)"
        )
    )
    assert failure.exit_code == 2
    assert failure.sentence == (
        "a file of the source has other columns (CSV header does not conform to the schema: Expected: destination but found: other): "
        "file = 'file:///in/z.csv'; hint: write it with the header of the earlier files, or move it away"
    )


def test_a_file_that_is_not_parquet_is_named() -> None:
    failure = explain(
        streaming(
            "Caused by: java.lang.RuntimeException: file:/in/zz.parquet is not a Parquet file. Expected magic number"
        )
    )
    assert (failure.exit_code, failure.sentence) == (
        2,
        "a file is not Parquet: file = 'file:/in/zz.parquet'; hint: move it away",
    )


def test_a_source_table_that_was_created_again_is_told_with_both_ids() -> None:
    failure = explain(
        streaming(
            "[DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE] The streaming query was reading from an unexpected Delta table "
            "(id = '7cd7'). \nIt used to read from another Delta table (id = '1084') according to checkpoint. \nThis may happen when"
        )
    )
    assert failure.exit_code == 2
    assert failure.sentence == (
        "the source table was dropped and created again, or is another one: source = 'table 7cd7'; "
        "rule: table 1084, which the checkpoint has read; "
        "hint: restore that table; or begin with a new checkpoint, which reads the new table from its beginning"
    )


@pytest.mark.parametrize("condition", ["DELTA_SOURCE_TABLE_IGNORE_CHANGES", "DELTA_SOURCE_IGNORE_DELETE"])
def test_changes_of_a_table_that_is_read_as_if_it_only_grew_are_told_with_the_way_to_read_them(
    condition: str,
) -> None:
    failure = explain(
        streaming(
            f"org.apache.spark.sql.delta.DeltaUnsupportedOperationException: [{condition}] Detected deleted data "
            "from streaming source at version 3. If you'd like to ignore deletes, set the option 'ignoreDeletes' to 'true'."
        )
    )
    assert failure.exit_code == 2
    assert failure.sentence == (
        "rows of the source table were changed or deleted: source.path; rule: rows are only ever added to a table that is read without "
        "its change feed; hint: source.options.readChangeFeed: true, with a checkpoint of its own (the table needs delta.enableChangeDataFeed)"
    )


def test_of_sparks_own_errors_the_innermost_class_and_the_last_cause_are_told() -> None:
    failure = explain(
        streaming(
            "[TASK_WRITE_FAILED] Task failed while writing rows to file:/out. SQLSTATE: 58030\n\tat X\n"
            "Caused by: java.io.IOException: No space left on device\n\tat Y"
        )
    )
    assert (failure.exit_code, failure.sentence) == (
        1,
        "Task failed while writing rows to file:/out: No space left on device",
    )


def test_what_spark_refuses_before_anything_runs_is_for_the_user_to_change() -> None:
    failure = explain(
        AnalysisException("[PATH_NOT_FOUND] Path does not exist: /x. SQLSTATE: 42K03;\n'Project")
    )
    assert (failure.exit_code, failure.sentence) == (2, "Path does not exist: /x")


def test_a_spark_error_without_a_class_is_its_first_line() -> None:
    failure = explain(AnalysisException("something odd\nmore"))
    assert (failure.exit_code, failure.sentence) == (2, "AnalysisException: something odd")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[STREAM_FAILED] x\nCaused by: org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node.\n",
            "the Kafka cluster does not answer (Timed out waiting for a node): hint: check kafka.bootstrap.servers, and that the cluster is up",
        ),
        (
            "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: No such topic.",
            "a topic of Kafka is missing (No such topic): hint: create it again, or remove it from source.topics",
        ),
        (
            "org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed",
            "Kafka refuses the login (Authentication failed): hint: check the kafka.sasl and kafka.ssl options",
        ),
    ],
)
def test_what_kafka_says_is_told_with_what_to_do(text: str, sentence: str) -> None:
    failure = explain(StreamingQueryException(text))
    assert (failure.sentence, failure.exit_code) == (sentence, 1)


DATA_LOSS = (
    "Some data may have been lost because they are not available in Kafka any more;\neither the data was aged out by Kafka or the topic "
    "may have been deleted before all the data in the\ntopic was processed.\nIf you don't want your streaming query to fail on such "
    "cases, set the source option failOnDataLoss to false.\nReason: {}"
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: "
            + DATA_LOSS.format(
                "Partition t-0 offset was changed from 6 to 2.\nThis could be either 1) ... SQLSTATE: XXKST"
            ),
            " (Partition t-0 offset was changed from 6 to 2)",
        ),
        (
            WRAPPED.format(
                inner="py4j.protocol.Py4JJavaError: An error\n: org.apache.spark.SparkException: Job aborted\nCaused by: "
                "org.apache.spark.sql.kafka010.KafkaIllegalStateException: "
                + DATA_LOSS.format(
                    "Could not read records in offset [6, 12) for topic partition t-0\nwith consumer group g.\n\tat X"
                )
            ),
            " (Could not read records in offset [6, 12) for topic partition t-0)",
        ),
        ("[KAFKA_DATA_LOSS.X] of another Spark\n", ""),
    ],
    ids=["of-the-plan", "of-a-task", "of-another-spark"],
)
def test_records_that_kafka_has_no_more_are_a_cause_of_their_own_with_topic_and_offsets(
    text: str, reason: str
) -> None:
    failure = explain(StreamingQueryException(text))
    assert failure.cause is Cause.SOURCE_LOST
    assert failure.sentence == f"records of a topic are gone that were not read{reason}: hint: {LOST_HINT}"
    assert (failure.exit_code, failure.transient) == (2, False)


def test_a_second_driver_on_a_checkpoint_is_named_with_the_path() -> None:
    failure = explain(
        StreamingQueryException(
            "[STREAM_FAILED] Query [id = 1] terminated with exception: [CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. "
            "Multiple streaming jobs detected for 7.\n SQLSTATE: 40000\n=== Streaming Query ===\nLogical Plan:\n"
            "~WriteToMicroBatchDataSourceV1 ForeachBatchSink, 6011, [queryName=job, checkpointLocation=s3a://bucket/job], Append"
        )
    )
    assert failure.cause is Cause.ANOTHER_DRIVER
    assert failure.sentence == (
        "another driver writes this checkpoint: s3a://bucket/job; rule: one driver at a time; "
        "hint: find the other driver, and start this job again only after it has ended"
    )
    assert (failure.exit_code, failure.transient) == (2, False)


def test_the_guide_has_the_table_of_causes() -> None:
    rows = [f"| {cause.text} | {cause.exit_code} | {'yes' if cause.retried else 'no'} |" for cause in Cause]
    assert "\n".join(rows) in (Path(__file__).parents[3] / "docs" / "run.md").read_text()


def test_an_error_of_sql_after_a_verb_is_logged_and_not_a_type_error_of_the_logger() -> None:
    script = (
        "from wheel_udf.spark.failures import quiet_sql\n"
        "with quiet_sql(): pass\n"
        "from pyspark.logger import PySparkLogger\n"
        "PySparkLogger.getLogger('SQLQueryContextLogger').error('no column x', errorClass='UNRESOLVED')"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (run.returncode, "TypeError" in run.stderr, "no column x" in run.stderr) == (0, False, True)


HINT = "wheel-udf repair --dry-run says whether it can be repaired; else restore the folder from a copy"
STATE_FILE = "/data/my job/state/0/0/4_678f.changelog"


@pytest.mark.parametrize(
    ("text", "file"),
    [
        (
            (
                f"[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state. SQLSTATE: 58030\n\tat X\nCaused by: "
                f"org.apache.hadoop.fs.ChecksumException: Checksum error: file:{STATE_FILE} at 1024 exp: 162 got: -112\n\tat Y"
            ),
            STATE_FILE,
        ),
        (
            (
                "[CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED] Checksum verification failed, the file may be corrupted. "
                f"File: file:{STATE_FILE}\nExpected (file size: 9, checksum: 1), Computed (file size: 4, checksum: 2)."
            ),
            STATE_FILE,
        ),
        (
            (
                "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE] An error occurred during loading state. Error reading streaming "
                f"state file of file:{STATE_FILE} does not exist. If the stream job is restarted with a new state operation, please ..."
            ),
            STATE_FILE,
        ),
        (
            "Checksum error: file:/data/job/commits/3 at 0 exp: 525 got: 174 SQLSTATE: XXKST",
            "/data/job/commits/3",
        ),
        ("Checksum error: file:/data/job/metadata at 0 exp: 194 got: 739", "/data/job/metadata"),
    ],
)
def test_a_damaged_file_of_the_checkpoint_is_named_with_the_verb_that_repairs(text: str, file: str) -> None:
    failure = explain(StreamingQueryException(text))
    assert failure.sentence == f"a file of the checkpoint is damaged: {file}; hint: {HINT}"
    assert (failure.exit_code, failure.transient) == (2, False)


def test_a_state_that_cannot_be_read_is_damage_even_if_spark_names_no_file() -> None:
    text = (
        "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state. SQLSTATE: 58030\n\tat X\n"
        "Caused by: java.io.IOException: Stream is corrupted\n\tat Y"
    )
    failure = explain(StreamingQueryException(text))
    assert failure.sentence == (
        "the state in the checkpoint cannot be loaded (An error occurred during loading state: Stream is corrupted): "
        f"hint: {HINT}"
    )
    assert (failure.exit_code, failure.transient) == (2, False)


@pytest.mark.parametrize(
    "text",
    [
        "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error.\nCaused by: java.io.IOException: No space left on device\n",
        "[CANNOT_LOAD_STATE_STORE.ROCKSDB_STORE_PROVIDER_OUT_OF_MEMORY] Could not load.\n",
        "Checksum error: file:/in/1.json at 0 exp: 525 got: 174",
    ],
)
def test_what_a_repair_cannot_help_does_not_name_it(text: str) -> None:
    failure = explain(StreamingQueryException(text))
    assert "repair" not in failure.sentence
    assert failure.exit_code == 1


S3_JARS = "org.apache.hadoop:hadoop-aws:3.5.0"


@pytest.mark.parametrize(
    ("cause", "sentence"),
    [
        (
            "java.lang.RuntimeException: java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found",
            "a path s3a:// needs jars that are missing",
        ),
        (
            "java.lang.NoClassDefFoundError: software/amazon/awssdk/transfer/s3/S3TransferManager",
            "a path s3a:// needs jars that are missing",
        ),
        ("java.lang.NoSuchFieldError: CRC64_NVME", "a path s3a:// needs jars that are missing"),
        (
            'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s3"',
            "this Spark reads no path s3://: hint: write s3a://",
        ),
        (
            'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "gs"',
            "this Spark has no file system for paths gs://: hint: add its jars to spark.jars or spark.jars.packages",
        ),
    ],
)
def test_a_path_whose_jars_are_missing_is_one_sentence_that_says_what_to_do(
    cause: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wheel_udf.spark.versions.minor_version", lambda: "4.2")
    text = (
        f"An error occurred while calling o71.getFileSystem.\n: {cause}\n\tat org.apache.hadoop.fs.FileSystem"
    )

    failure = explain(PySparkException(text))

    assert failure.exit_code == 2
    assert failure.sentence.startswith(sentence)
    if "jars that are missing" in sentence:
        assert "pip install 'wheel-udf[s3]' and python -m wheel_udf.spark.jars s3" in failure.sentence
        assert failure.sentence.endswith(f"set spark.jars.packages to {S3_JARS}")
