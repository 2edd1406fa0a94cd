"""Turns an exception into one sentence for the user and an exit code.

Spark wraps an error in a batch several times (query, foreachBatch, Python proxy, job, task), and puts the texts of all layers into
one message. The sentence that matters is the innermost::

    [STREAM_FAILED] ... [FOREACH_BATCH_USER_FUNCTION_ERROR] ... Traceback ... wheel_udf.common.errors.SinkError: the table is gone: ...
                                                                              '--------------- this one ---------------'

The first of these that is found: an error of this package; a damaged file of the checkpoint (named, with the verb that repairs); a file or table of the source that Spark could not read (named, with a hint);
an error of Kafka's client (with a hint); the last error class of Spark and the last ``Caused by``; the first line. Secrets are hidden in all
of them.

Exit codes: 2 for what the user has to change (config, contract, checkpoint), 1 for a failure of the run.

A failure of the run is transient if the same batch may succeed a moment later: a worker that died, a broker or a disk that did not answer. What
stays wrong until somebody changes it is not: a login, a topic that is missing, a lease, a damaged state, a JVM that has ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from wheel_udf.common import errors, hide

RUN_FAILED = 1
USER_FAULT = 2
REPAIR = "wheel-udf repair --dry-run says whether it can be repaired; else restore the folder from a copy"
"""What to do about a damaged checkpoint."""
BUSY = "the machine is busy, or the workers' Python cannot import pyspark"
"""Why a worker may not start."""

_USER_FAULTS = (
    errors.ConfigError,
    errors.ContractError,
    errors.GeometryError,
    errors.GeometryChangedError,
    errors.CheckpointError,
    errors.ActError,
    errors.TransferError,
)
_WRAPPERS = {"STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR", "FOREACH_USER_FUNCTION_ERROR"}
_OURS = re.compile(r"^(?:\S+: )?wheel_udf\.common\.errors\.(\w+): (.+)", re.MULTILINE)
_TYPES_DIFFER = re.compile(
    r"reading file (\S+?)\.? +Data type mismatches when reading Parquet column \[(\S+)\]\. "
    r"Expected Spark type ([^\n]+?), actual Parquet type (\w+)"
)
_HEADER_DIFFERS = re.compile(
    r"(CSV header [^\n]+|Number of column in CSV header [^\n]+)\n([^\n]+)\nCSV file: (\S+)"
)
_NOT_PARQUET = re.compile(r"(\S+) is not a Parquet file")
_KAFKA = re.compile(
    r"org\.apache\.kafka\.common\.(?:errors\.|config\.)?(\w+(?:Exception|Error))(?:: ([^\n]*))?"
)
_KAFKA_WORDS: dict[str, tuple[str, str | None]] = {
    "Timeout": (
        "the Kafka cluster does not answer",
        "check kafka.bootstrap.servers, and that the cluster is up",
    ),
    "Disconnect": (
        "the Kafka cluster does not answer",
        "check kafka.bootstrap.servers, and that the cluster is up",
    ),
    "UnknownTopicOrPartition": (
        "a topic of Kafka is missing",
        "create it again, or remove it from source.topics",
    ),
    "Authentication": ("Kafka refuses the login", "check the kafka.sasl and kafka.ssl options"),
    "Authorization": ("Kafka does not allow it", "grant this user the missing permission"),
    "ConfigException": ("an option of Kafka is wrong", "the options that begin with kafka. go to its client"),
}
_ROWS_CHANGED = re.compile(r"\[DELTA_SOURCE_(?:TABLE_IGNORE_CHANGES|IGNORE_DELETE)\]")
_DATA_LOSS = re.compile(r"\[KAFKA_DATA_LOSS[A-Z0-9_.]*\] ([^\n]+)")
_JVM_ENDS = re.compile(
    r"SparkContext was shut ?down|Spark[Cc]ontext has been shut ?down|stopped SparkContext|Shutdown in progress"
    r"|Answer from Java side is empty|Error while receiving"
)
_STAYS_WRONG = ("UnknownTopic", "Authentication", "Authorization", "ConfigException")
_DAMAGED_STATE = re.compile(
    r"\[(?:CANNOT_LOAD_STATE_STORE|STATE_STORE|CHECKPOINT|STATE_DATA_SOURCE)[A-Z0-9_.]*\]"
)
_DAMAGED_FILE = re.compile(
    r"Checksum error: (?:file:)?(.+?) at \d+ exp:"
    r"|Checksum verification failed, the file may be corrupted\. File: (?:file:)?([^\n]+)"
    r"|Error reading streaming state file of (?:file:)?(.+?) does not exist"
)
_UNREADABLE_STATE = re.compile(r"\[CANNOT_LOAD_STATE_STORE\.(?!\w*OUT_OF_MEMORY|UNRELEASED)")
_OF_A_CHECKPOINT = re.compile(r"/(?:metadata|(?:offsets|commits|sources|state)/\d+(?:/.+)?)$")
_NO_WORKER = re.compile(
    r"Python worker failed to connect back|Python daemon failed to launch worker|while reading the port number from"
)
_TRANSIENT = ("SinkError",)  # destinations that did not answer; those that are gone cost a few tries
_SPARK_CLASS = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ([^\n]+)")
_CAUSE = re.compile(r"^Caused by: [\w.$]+: ([^\n]+)", re.MULTILINE)
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+.*")


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception as the user reads it.

    Attributes:
        sentence: The sentence; the errors of a config are a line each.
        exit_code: Of the process.
        transient: Whether the same may succeed a moment later.
    """

    sentence: str
    exit_code: int
    transient: bool = False


def explain(error: BaseException) -> Failure:
    """Returns the sentence and the exit code for any exception."""
    failure = _explained(error)
    return replace(failure, sentence=hide(failure.sentence))


def is_jvm_end(error: BaseException) -> bool:
    """Whether an error means that the JVM has ended, or is ending."""
    if isinstance(error, ConnectionError | EOFError) or type(error).__name__ == "Py4JNetworkError":
        return True
    if not _is_of_spark(error):
        return False
    try:
        return _JVM_ENDS.search(str(error)) is not None
    except Exception:  # noqa: BLE001  # the text of an error of Java comes from the JVM
        return True


def is_slow_worker(error: BaseException) -> bool:
    """Whether an error means that a Python worker of Spark did not start in time, so that nothing was done.

    Spark waits 10 s for the process beside the driver that plans a Python source (``PythonWorkerFactory.createSimpleWorker``; there is no
    setting). On a busy machine it may take longer.
    """
    return _is_of_spark(error) and not is_jvm_end(error) and _NO_WORKER.search(str(error)) is not None


def _is_of_spark(error: BaseException) -> bool:
    return type(error).__module__.startswith(("pyspark.", "py4j."))


def _explained(error: BaseException) -> Failure:
    if isinstance(error, ImportError):
        error = errors.missing_spark(error) or error
    if isinstance(error, errors.WheelError):
        return _of_kind(type(error), str(error))
    if is_jvm_end(error):
        hint = "look for a process that was killed, or for too little memory; the next start goes on from the checkpoint"
        return Failure(str(errors.SessionError("the JVM of Spark has ended", hint=hint)), RUN_FAILED)
    if not _is_of_spark(error):
        return Failure(f"{type(error).__name__}: {first_line(str(error))}", RUN_FAILED)
    if is_slow_worker(error):
        fault = errors.SessionError("a Python worker of Spark did not start in time", hint=BUSY)
        return Failure(str(fault), RUN_FAILED, transient=True)
    text = str(error).split("=== Streaming Query ===")[0]
    return (
        _of_ours(text)
        or _of_a_checkpoint(text)
        or _of_a_source(text)
        or _of_kafka(text)
        or _of_spark(text, type(error).__name__)
    )


def _of_kind(kind: type[BaseException], sentence: str) -> Failure:
    exit_code = USER_FAULT if issubclass(kind, _USER_FAULTS) else RUN_FAILED
    return Failure(sentence, exit_code, transient=kind.__name__ in _TRANSIENT)


def _of_ours(text: str) -> Failure | None:
    found = _OURS.findall(text)
    if not found:
        return None
    name, sentence = found[-1]
    kind = getattr(errors, name, errors.WheelError)
    return _of_kind(kind, _without_sqlstate(sentence))


def _of_a_checkpoint(text: str) -> Failure | None:
    """A damaged file that Spark has read from the checkpoint; or a state that it could not load, if it does not say which file was damaged."""
    found = _DAMAGED_FILE.search(text)
    file = next((name.strip() for name in found.groups() if name), None) if found else None
    if file is not None and _OF_A_CHECKPOINT.search(file):
        fault = errors.CheckpointError("a file of the checkpoint is damaged", field=file, hint=REPAIR)
    elif _UNREADABLE_STATE.search(text) and "No space left" not in text:
        why = _of_spark(text, "").sentence
        fault = errors.CheckpointError(f"the state in the checkpoint cannot be loaded ({why})", hint=REPAIR)
    else:
        return None
    return Failure(str(fault), USER_FAULT)


def _of_a_source(text: str) -> Failure | None:
    if found := _TYPES_DIFFER.search(text):
        file, column, expected, actual = found.groups()
        what = f"a file of the source has another type in column {column}"
        hint = "write it as the earlier files, or move it away; source.schema sets the types of all files"
        fault = errors.ContractError(
            what, field="file", value=file, rule=f"{expected}, not {actual}", hint=hint
        )
        return Failure(str(fault), USER_FAULT)
    if found := _HEADER_DIFFERS.search(text):
        sentence, detail, file = found.groups()
        what = f"a file of the source has other columns ({sentence.rstrip('.:')}: {detail.strip()})"
        hint = "write it with the header of the earlier files, or move it away"
        return Failure(str(errors.ContractError(what, field="file", value=file, hint=hint)), USER_FAULT)
    if found := _NOT_PARQUET.search(text):
        fault = errors.ContractError(
            "a file is not Parquet", field="file", value=found[1], hint="move it away"
        )
        return Failure(str(fault), USER_FAULT)
    if _ROWS_CHANGED.search(text):
        # Delta's message advises to skip such commits: cancels and replacements would be lost without a trace.
        fault = errors.ContractError(
            "rows of the source table were changed or deleted",
            field="source.path",
            rule="rows are only ever added to a table that is read without its change feed",
            hint="source.options.readChangeFeed: true, with a checkpoint of its own (the table needs delta.enableChangeDataFeed)",
        )
        return Failure(str(fault), USER_FAULT)
    return None


def _of_kafka(text: str) -> Failure | None:
    if lost := _DATA_LOSS.search(text):
        what = f"records of the source were deleted before they were read ({_without_sqlstate(lost[1]).rstrip('.')})"
        hint = "source.options.failOnDataLoss: false reads the rest; the deleted commands are lost"
        return Failure(str(errors.WheelError(what, hint=hint)), RUN_FAILED)
    found = _KAFKA.findall(text)
    if not found:
        return None
    name, message = found[-1]  # the innermost cause
    no_words: tuple[str, str | None] = ("Kafka reports an error", None)
    what, advice = next((words for part, words in _KAFKA_WORDS.items() if part in name), no_words)
    said = _without_sqlstate(message.strip()) or name
    sentence = str(errors.WheelError(f"{what} ({said.rstrip('.')})", hint=advice))
    return Failure(sentence, RUN_FAILED, transient=not any(part in name for part in _STAYS_WRONG))


def _of_spark(text: str, name: str) -> Failure:
    # Spark reports an invalid plan before anything runs: the user has to change it.
    exit_code = USER_FAULT if name in ("AnalysisException", "ParseException") else RUN_FAILED
    transient = exit_code == RUN_FAILED and _DAMAGED_STATE.search(text) is None
    sentences = [sentence for kind, sentence in _SPARK_CLASS.findall(text) if kind not in _WRAPPERS]
    causes = _CAUSE.findall(text)
    if not sentences and not causes:
        return Failure(f"{name}: {_without_sqlstate(first_line(text))}", exit_code, transient)
    parts = [_without_sqlstate(part) for part in (*sentences[-1:], *causes[-1:])]
    return Failure(": ".join(dict.fromkeys(part.rstrip(" .") for part in parts)), exit_code, transient)


def _without_sqlstate(text: str) -> str:
    return _SQLSTATE.sub("", text).strip()


@contextmanager
def quiet_sql() -> Iterator[None]:
    """Turns off pyspark's log of SQL that cannot be used (a page of JSON); the caller reports it in one line."""
    from pyspark.logger import PySparkLogger  # not at the top: errors of a config need no Spark

    # Of pyspark's own class: whoever asks for a logger first decides its class, and pyspark logs with arguments that others refuse.
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def first_line(text: str) -> str:
    """The first line of a text that is not empty."""
    return text.strip().splitlines()[0] if text.strip() else "no message"
