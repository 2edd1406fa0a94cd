"""Lets a run serve its metrics and answer questions about itself (:mod:`wheel_udf.api`): the verbs about pending
entries.

The arguments of a question are those of the command line, by their names without dashes: ``{"where": "...", "dry_run":
true}``. ``verbs.toml`` is the one declaration of both. Instants are ISO texts or UTC epoch ms, a rate a text such as
``100/s`` or a number a second.
"""

from __future__ import annotations

import argparse
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

import wheel_udf
from wheel_udf.api.answer import Answer
from wheel_udf.api.place import Place, announced
from wheel_udf.api.server import ApiServer, Job
from wheel_udf.api.words import MOST_ARROW_ROWS, MOST_ROWS
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.progress import PrintLine
from wheel_udf.job import next as next_verb, ui
from wheel_udf.job.arguments import ASKED, WITH_ROWS, of_question
from wheel_udf.job.compose import pending_work_of
from wheel_udf.job.models.purgatory import AnyConfig, PurgatoryConfig
from wheel_udf.job.openapi import openapi_of
from wheel_udf.job.verbs import OF_PURGATORY, answer_of, frame_of, require_most, require_verb
from wheel_udf.job.without_spark import answer_without_spark, table_without_spark
from wheel_udf.metrics.meter import Meter
from wheel_udf.pending.entries import PendingWork
from wheel_udf.spark.failures import quiet_sql

_ZONE: Final = "spark.sql.session.timeZone"


@contextlib.contextmanager
def answering(
    spark: SparkSession, config: AnyConfig, meter: Meter, print_line: PrintLine
) -> Iterator[Callable[[], None]]:
    """Serves metrics and health, and yields what lets the job answer questions from then on, to the end of the context;
    a second call does nothing. Call it when the query has started: a question needs a checkpoint.

    Args:
        spark: The session of the run.
        config: The config of the job.
        meter: The meter of the run.
        print_line: Takes a line with the addresses, if the config chooses where; and a line if the token cannot be
            written, without which nobody can ask.

    Raises:
        ConfigError: The port is in use.
    """
    if not config.api.enabled:
        yield lambda: None
        return
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(contextlib.closing(ApiServer(config.api.address, config.api.port)))
        server.serve(meter)
        if config.api.address_is_chosen:
            print_line(f"metrics at {server.url}/metrics, health at {server.url}/healthz")
        begun: list[Place] = []

        def begin() -> None:
            if not begun:
                place = Place.of_this_process(config.name, config.checkpoint, *server.address, server.token)
                begun.append(place)
                try:
                    stack.enter_context(announced(place))
                except (OSError, RuntimeError) as fault:  # no home, or one that cannot be written
                    print_line(f"the job answers no questions: its token cannot be written ({fault})")
                else:
                    server.answer(_job(spark, config, place), meter)

        yield begin


def _job(spark: SparkSession, config: AnyConfig, place: Place) -> Job:
    questions, verbs = Questions(spark, config), verbs_of(config)
    about = {
        "name": config.name,
        "mode": config.kind,
        "checkpoint": place.checkpoint,
        "version": wheel_udf.__version__,
        "pid": place.pid,
        "host": place.host,
        "verbs": verbs,
    }
    return Job(about, ASKED, questions.answer, questions.arrow, openapi_of(verbs), questions.page)


def verbs_of(config: AnyConfig) -> list[str]:
    """The verbs that a job answers."""
    return [name for name in ASKED if not isinstance(config, PurgatoryConfig) or name in OF_PURGATORY]


class Questions:
    """Answers the questions to one job, on the threads of the server.

    Args:
        spark: The session of the run. Questions have one of their own beside it, and each page has one, because reading
            a state sets some of its settings.
        config: The config of the job.
    """

    def __init__(self, spark: SparkSession, config: AnyConfig) -> None:
        self._spark, self._config = _session_beside(spark), config
        # Above it Spark sorts, below it each task takes the memory for so many rows, even if there are few.
        self._spark.conf.set("spark.sql.execution.topKSortFallbackThreshold", MOST_ROWS)
        self._opened = threading.local()

    def answer(self, verb: str, arguments: Mapping[str, Any]) -> Answer:
        """Answers a question.

        Raises:
            ConfigError: The arguments cannot be used.
            WheelError: The question cannot be answered.
        """
        require_verb(self._config, verb)
        asked = of_question(verb, arguments)
        _require_few(asked, MOST_ROWS)
        with quiet_sql():
            if verb == "next":
                next_verb.check(asked, of_job=True)
                return Answer(lines=next_verb.lines_of(self._spark, self._work(), asked.id, asked.n))
            work = self._work()
            found = answer_without_spark(self._config, asked, work.store)
            return found or answer_of(self._spark, self._config, work, asked, MOST_ROWS)

    def arrow(self, verb: str, arguments: Mapping[str, Any]) -> bytes:
        """As :meth:`answer`: the rows as an Arrow stream.

        Raises:
            ConfigError: The verb has no rows.
        """
        if verb not in WITH_ROWS:
            raise ConfigError(
                "this question has no rows for Arrow", field="Accept", value=verb, rule=", ".join(WITH_ROWS)
            )
        require_verb(self._config, verb)
        asked = of_question(verb, arguments)
        _require_few(asked, MOST_ARROW_ROWS)
        with quiet_sql():
            work, zone = self._work(), str(self._spark.conf.get(_ZONE))
            rows = table_without_spark(self._config, asked, work.store, zone)
            if rows is None:
                rows = frame_of(self._spark, self._config, work, asked, MOST_ARROW_ROWS).toArrow()
                require_most(rows.num_rows, MOST_ARROW_ROWS)
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, rows.schema) as writer:
            writer.write_table(rows)
        found: bytes = stream.getvalue().to_pybytes()
        return found

    def page(self, arguments: Mapping[str, Any]) -> AbstractContextManager[Sequence[str]]:
        """Serves the page of the job while the context is open.

        Raises:
            ConfigError: It cannot be served so.
        """
        return ui.served(_session_beside(self._spark), self._config, of_question("ui", arguments))

    def _work(self) -> PendingWork:
        """The pending work, opened once by each thread: an opened store reads only later changes."""
        if not hasattr(self._opened, "work"):
            self._opened.work = pending_work_of(self._spark, self._config)
        work: PendingWork = self._opened.work
        return work


def _session_beside(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.conf.set(_ZONE, spark.conf.get(_ZONE) or "UTC")
    return session


def _require_few(asked: argparse.Namespace, most: int) -> None:
    """Refuses what would not fit into the memory of the driver, which is that of the job."""
    if getattr(asked, "limit", 0) > most:
        raise ConfigError(
            "too many rows for one answer",
            field="limit",
            value=asked.limit,
            rule=f"up to {most:,}",
            hint="wheel_udf.Job asks for more at a time; wheel_udf.pending.entries.pending reads all, with a session",
        )
