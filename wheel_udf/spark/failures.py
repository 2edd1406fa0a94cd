"""Turns an exception into one sentence for the user and an exit code.

Spark wraps an error in a batch several times (query, foreachBatch, Python proxy, job, task), and puts the texts of all
layers into one message. The sentence that matters is the innermost::

    [STREAM_FAILED] ... Traceback ... wheel_udf.common.errors.SinkError: the table is gone: ...
                                      '------------------- this one -------------------'

The first of these that is found: an error of this package; a rule of ``failures.toml``; an error of Kafka's client
(with a hint); the last error class of Spark and the last ``Caused by``; the first line. Secrets are hidden in all of
them.

:class:`Cause` is the table of causes: the exit code of each, and whether a query that it has ended is started again in
the same process.

Spark names the conditions of its errors (``[STREAM_FAILED]``) in the texts; ``getCondition`` of a failed query is
always the outermost one. Errors of its Kafka source have a condition, and their text does not name it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Any, Final

from wheel_udf.common import errors
from wheel_udf.common.package_data import toml_of
from wheel_udf.common.secrets import hide
from wheel_udf.spark.versions import s3_packages

RUN_FAILED = 1
USER_FAULT = 2


class Cause(Enum):
    """The causes of an end, each with its exit code and whether the query is retried (the table of docs/run.md).

    A temporary failure is retried while the session is open. Everything else stays wrong until
    somebody changes it, or needs a new process.
    """

    SETTING = "a setting, the command contract, an act or a move is refused", USER_FAULT, False
    CHECKPOINT = "the checkpoint is damaged, or was made with other settings", USER_FAULT, False
    ANOTHER_DRIVER = "another driver writes the same checkpoint", USER_FAULT, False
    SOURCE_LOST = (
        "records of a topic were deleted before they were read, or the topic was created again",
        USER_FAULT,
        False,
    )
    SOURCE = "a file or table of the source cannot be read", USER_FAULT, False
    PLAN = "Spark refuses the query before it runs (a column, a path)", USER_FAULT, False
    IN_USE = "the checkpoint or the slot store is in use, or its lease is lost", RUN_FAILED, False
    REFUSED = "Kafka refuses a login, a permission or an option; a topic is missing", RUN_FAILED, False
    STATE = "Spark's state store reports an error", RUN_FAILED, False
    JVM = "the JVM has ended", RUN_FAILED, False
    OTHER = "any other error of this package or of Python, an own sink for example", RUN_FAILED, False
    AWAY = "a Kafka cluster or another destination does not answer, or cannot be written", RUN_FAILED, True
    TASK = "a task failed four times, or Spark reports an error that is not listed here", RUN_FAILED, True

    def __init__(self, text: str, exit_code: int, retried: bool) -> None:  # noqa: FBT001  # a row of the table
        self.text, self.exit_code, self.retried = text, exit_code, retried


_OF_CLASS: dict[type[BaseException], Cause] = {
    errors.SourceLostError: Cause.SOURCE_LOST,
    errors.CheckpointError: Cause.CHECKPOINT,
    errors.LeaseError: Cause.IN_USE,
    errors.SinkError: Cause.AWAY,  # a destination that does not come back costs a few tries
    **dict.fromkeys(
        (
            errors.ConfigError,
            errors.ContractError,
            errors.GeometryError,
            errors.GeometryChangedError,
            errors.ActError,
            errors.TransferError,
        ),
        Cause.SETTING,
    ),
}
_WRAPPERS = {"STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR", "FOREACH_USER_FUNCTION_ERROR"}
_OURS = re.compile(r"^(?:\S+: )?wheel_udf\.common\.errors\.(\w+): (.+)", re.MULTILINE)
_KAFKA = re.compile(
    r"org\.apache\.kafka\.common\.(?:errors\.|config\.)?(\w+(?:Exception|Error))(?:: ([^\n]*))?"
)
LOST_HINT = (
    "wheel-udf export, then import --anew TOPIC reads the topic from its earliest record; "
    "failOnDataLoss: false goes on without what is lost (docs/kafka.md, Lost records)"
)
"""Advice about lost records of a topic."""
_PLACE = re.compile(r"checkpointLocation=([^,\]\n]+)")
_JVM_ENDS = re.compile(
    r"SparkContext was shut ?down|Spark[Cc]ontext has been shut ?down|stopped SparkContext|Shutdown in progress"
    r"|Answer from Java side is empty|Error while receiving"
)
_DAMAGED_STATE = re.compile(
    r"\[(?:CANNOT_LOAD_STATE_STORE|STATE_STORE|CHECKPOINT|STATE_DATA_SOURCE)[A-Z0-9_.]*\]"
)
_SPARK_CLASS = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ([^\n]+)")
_TEXTS: Final = ("what", "field", "value", "rule", "hint")
_CAUSE = re.compile(r"^Caused by: [\w.$]+: ([^\n]+)", re.MULTILINE)
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+.*")


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception as the user reads it.

    Attributes:
        sentence: The sentence; the errors of a config are a line each.
        cause: Its row of the table.
    """

    sentence: str
    cause: Cause

    @property
    def exit_code(self) -> int:
        """The exit code of the process."""
        return self.cause.exit_code

    @property
    def transient(self) -> bool:
        """Whether the same may succeed a moment later."""
        return self.cause.retried


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


def _is_of_spark(error: BaseException) -> bool:
    return type(error).__module__.startswith(("pyspark.", "py4j."))


def _explained(error: BaseException) -> Failure:
    if isinstance(error, ImportError):
        error = errors.missing_spark(error) or error
    if isinstance(error, errors.WheelError):
        return _failure(error)
    if is_jvm_end(error):
        hint = (
            "look for a process that was killed, or for too little memory; "
            "the next start goes on from the checkpoint"
        )
        return _failure(errors.SessionError("the JVM of Spark has ended", hint=hint), Cause.JVM)
    if not _is_of_spark(error):
        return Failure(f"{type(error).__name__}: {first_line(str(error))}", Cause.OTHER)
    text, _, plan = str(error).partition("=== Streaming Query ===")
    return (
        _of_ours(text) or _of_a_rule(text, plan) or _of_kafka(text) or _of_spark(text, type(error).__name__)
    )


def _failure(fault: errors.WheelError, cause: Cause | None = None) -> Failure:
    return Failure(str(fault), cause or _cause_of(type(fault)))


def _cause_of(kind: type[BaseException]) -> Cause:
    return next((_OF_CLASS[each] for each in kind.__mro__ if each in _OF_CLASS), Cause.OTHER)


@cache
def _table() -> dict[str, Any]:
    return toml_of(__name__, "failures.toml")


def _of_a_rule(text: str, plan: str) -> Failure | None:
    for rule in _table()["rules"]:
        if found := re.search(rule["pattern"], text):
            place = _PLACE.search(plan)
            values = {
                "place": place[1].strip() if place else "",
                "spark": _of_spark(text, "").sentence,
                "repair": errors.REPAIR,
                "lost": LOST_HINT,
                "s3": s3_packages(),
                **found.groupdict(),
            }
            texts: dict[str, Any] = {
                name: rule[name].format_map(values) or None for name in _TEXTS if name in rule
            }
            return _failure(errors.WheelError(**texts), Cause[rule["cause"]])
    return None


def _of_ours(text: str) -> Failure | None:
    found = _OURS.findall(text)
    if not found:
        return None
    name, sentence = found[-1]
    return Failure(_without_sqlstate(sentence), _cause_of(getattr(errors, name, errors.WheelError)))


def _of_kafka(text: str) -> Failure | None:
    found = _KAFKA.findall(text)
    if not found:
        return None
    name, message = found[-1]  # the innermost cause
    unknown = {"what": "Kafka reports an error", "cause": "AWAY"}
    words = next((words for part, words in _table()["kafka"].items() if part in name), unknown)
    said = (_without_sqlstate(message.strip()) or name).rstrip(".")
    fault = errors.WheelError(f"{words['what']} ({said})", hint=words.get("hint"))
    return _failure(fault, Cause[words["cause"]])


def _of_spark(text: str, name: str) -> Failure:
    # Spark reports an invalid plan before anything runs: the user has to change it.
    if name in ("AnalysisException", "ParseException"):
        cause = Cause.PLAN
    else:
        cause = Cause.TASK if _DAMAGED_STATE.search(text) is None else Cause.STATE
    sentences = [sentence for kind, sentence in _SPARK_CLASS.findall(text) if kind not in _WRAPPERS]
    causes = _CAUSE.findall(text)
    if not sentences and not causes:
        return Failure(f"{name}: {_without_sqlstate(first_line(text))}", cause)
    parts = [_without_sqlstate(part) for part in (*sentences[-1:], *causes[-1:])]
    return Failure(": ".join(dict.fromkeys(part.rstrip(" .") for part in parts)), cause)


def _without_sqlstate(text: str) -> str:
    return _SQLSTATE.sub("", text).strip()


_silence = threading.Lock()
_inside = 0
"""How many are inside :func:`quiet_sql`."""


@contextmanager
def quiet_sql() -> Iterator[None]:
    """Turns off pyspark's log of SQL that cannot be used (a page of JSON); the caller reports it in one line.

    Several threads may be inside: the log is on again when the last one has left.
    """
    global _inside  # noqa: PLW0603
    from pyspark.logger import PySparkLogger  # not at the top: errors of a config need no Spark

    # Of pyspark's own class: whoever asks for a logger first decides its class, and pyspark logs with arguments that
    # others refuse.
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    with _silence:
        _inside += 1
        logger.disabled = True
    try:
        yield
    finally:
        with _silence:
            _inside -= 1
            logger.disabled = _inside > 0


def first_line(text: str) -> str:
    """The first line of a text that is not empty."""
    return text.strip().splitlines()[0] if text.strip() else "no message"
