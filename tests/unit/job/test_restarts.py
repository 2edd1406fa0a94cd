"""A query that failed starts again: after which failures, how often, after how long, and what is said."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException, StreamingQueryException

from wheel_udf.common.errors import CheckpointError, ConfigError, LeaseError, SinkError
from wheel_udf.job.models.bounds import RestartsConfig
from wheel_udf.job.supervise import Supervisor, with_restarts
from wheel_udf.spark.failures import explain, is_jvm_end

DEAD_WORKER = "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure: Task 0 failed 4 times"


def failed(text: str = DEAD_WORKER) -> StreamingQueryException:
    return StreamingQueryException(text)


def settings(most: int = 3, wait: str = "5 seconds") -> RestartsConfig:
    return RestartsConfig.model_validate({"most": most, "wait": wait})


@dataclass
class Run:
    """A run whose starts end as scripted: with an error, or well (None). It waits for nothing and notes for how long
    it would have.
    """

    ends: list[Exception | Callable[[Run], None] | None]
    newest_batch: int = -1
    has_started: bool = True
    wants_end: bool = False
    waits_ms: list[int] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    starts: int = 0

    def once(self) -> None:
        end = self.ends[self.starts]
        self.starts += 1
        if isinstance(end, Exception):
            raise end
        if end is not None:
            end(self)

    def pause(self, wait_ms: int) -> None:
        self.waits_ms.append(wait_ms)

    def play(self, most: int = 3) -> None:
        with_restarts(self.once, settings(most), self, self.lines.append)


def test_a_query_that_ends_well_is_started_once() -> None:
    run = Run([None])
    run.play()
    assert (run.starts, run.lines) == (1, [])


def test_after_a_transient_failure_the_query_starts_again_and_a_line_says_why_and_when() -> None:
    run = Run([failed(), None])
    run.play()
    assert run.starts == 2
    assert run.waits_ms == [5_000]
    assert len(run.lines) == 1
    assert run.lines[0].endswith("; it starts again from its checkpoint in 5 s (1 of 3)")


def test_each_wait_is_twice_as_long_and_the_last_failure_is_raised() -> None:
    run = Run([failed(), failed(), failed(), failed("the fourth")])
    with pytest.raises(StreamingQueryException, match="the fourth"):
        run.play()
    assert run.waits_ms == [5_000, 10_000, 20_000]


def test_a_wait_is_a_minute_at_most() -> None:
    run = Run([failed()] * 6 + [None])
    run.play(most=9)
    assert run.waits_ms == [5_000, 10_000, 20_000, 40_000, 60_000, 60_000]


def test_a_new_batch_in_between_starts_the_count_anew() -> None:
    def two_batches_more(run: Run) -> None:
        run.newest_batch += 2
        raise failed()

    run = Run([two_batches_more] * 5 + [None])
    run.play(most=1)
    assert run.waits_ms == [5_000] * 5


def test_a_batch_that_fails_each_time_ends_the_run() -> None:
    def the_same_batch(run: Run) -> None:
        run.newest_batch = 7
        raise failed()

    run = Run([the_same_batch] * 3)
    with pytest.raises(StreamingQueryException):
        run.play(most=2)
    assert run.starts == 3


def test_most_0_never_starts_again() -> None:
    run = Run([failed()])
    with pytest.raises(StreamingQueryException):
        run.play(most=0)
    assert run.lines == []


def test_a_query_that_could_not_be_started_is_not_tried_again() -> None:
    run = Run([failed()], has_started=False)
    with pytest.raises(StreamingQueryException):
        run.play()


def test_a_run_that_was_asked_to_end_is_not_started_again() -> None:
    run = Run([failed()], wants_end=True)
    with pytest.raises(StreamingQueryException):
        run.play()


def test_a_run_that_is_asked_to_end_while_it_waits_ends_with_its_failure() -> None:
    run = Run([failed("why"), None])

    def pause(_wait_ms: int) -> None:
        run.wants_end = True

    run.pause = pause  # type: ignore[method-assign]
    with pytest.raises(StreamingQueryException, match="why"):
        run.play()
    assert run.starts == 1


DATA_LOSS = (
    "[STREAM_FAILED] Query terminated with exception: Some data may have been lost because they are not available in Kafka any more;\n"
    "either the data was aged out by Kafka or the topic may have been deleted before all the data in the\ntopic was processed.\n"
    "Reason: Partition t-0 offset was changed from 6 to 2.\nThis could be either ... SQLSTATE: XXKST"
)
OURS = "[STREAM_FAILED] Traceback\nwheel_udf.common.errors.{}: what is wrong\n"
KAFKA = "[STREAM_FAILED] Caused by: org.apache.kafka.common.errors.{}: said\n"


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (failed(), True),
        (
            failed("[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back."),
            True,
        ),
        (SinkError("the destination does not answer"), True),
        (failed(OURS.format("SinkError")), True),
        (failed(KAFKA.format("TimeoutException")), True),
        (failed(KAFKA.format("NotEnoughReplicasException")), True),
        (failed(KAFKA.format("SaslAuthenticationException")), False),
        (failed(KAFKA.format("TopicAuthorizationException")), False),
        (failed(KAFKA.format("UnknownTopicOrPartitionException")), False),
        (failed("[STREAM_FAILED] [KAFKA_DATA_LOSS.X] records are gone\n"), False),
        (failed(DATA_LOSS), False),
        (
            failed(
                "[STREAM_FAILED] [CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. SQLSTATE: 40000\n"
            ),
            False,
        ),
        (failed(OURS.format("SourceLostError")), False),
        (failed(OURS.format("CheckpointError")), False),
        (failed(OURS.format("LeaseError")), False),
        (failed(OURS.format("StateTooLargeError")), False),
        (failed("[STREAM_FAILED] [CANNOT_LOAD_STATE_STORE.X] a file is damaged\n"), False),
        (LeaseError("in use"), False),
        (ConfigError("wrong"), False),
        (CheckpointError("damaged"), False),
        (AnalysisException("no such column"), False),
        (KeyError("a bug"), False),
        (ConnectionRefusedError(111, "refused"), False),
        (Py4JNetworkError("the JVM is gone"), False),
        (failed("[STREAM_FAILED] Job cancelled because SparkContext was shut down"), False),
    ],
    ids=lambda value: str(value)[:70] if isinstance(value, Exception) else "",
)
def test_what_may_be_over_a_moment_later_is_transient(error: Exception, transient: bool) -> None:
    assert explain(error).transient == transient


class _WithoutTextError(Py4JError):
    """An error of Java whose text would come from a JVM that has ended."""

    __module__ = "py4j.protocol"

    def __str__(self) -> str:
        raise ConnectionRefusedError


@pytest.mark.parametrize(
    "error", [EOFError(), ConnectionResetError(), _WithoutTextError(), failed("SparkContext was shut down")]
)
def test_an_error_that_comes_from_a_jvm_that_has_ended_says_so(error: Exception) -> None:
    assert is_jvm_end(error)
    assert explain(error).sentence.startswith("the JVM of Spark has ended")


def test_the_wait_before_a_new_start_ends_at_a_signal() -> None:
    supervisor = Supervisor(None)
    supervisor.end_by(signal.SIGTERM)
    supervisor.pause(3_600_000)
    assert supervisor.wants_end
