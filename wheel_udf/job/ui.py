"""The verb ``ui``: serves a page of a job, which may change pending entries (:mod:`wheel_udf.page`)."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from wheel_udf.common.extras import missing_package
from wheel_udf.common.progress import PrintLine
from wheel_udf.common.secrets import resolve
from wheel_udf.job.asking import end_on_sigterm
from wheel_udf.job.compose import destinations_of, pending_work_of, sink_of
from wheel_udf.job.models.purgatory import AnyConfig
from wheel_udf.job.sessions import session
from wheel_udf.pending.entries import PendingWork
from wheel_udf.spark.failures import quiet_sql

if TYPE_CHECKING:
    from wheel_udf.page.guard import Access
    from wheel_udf.page.subject import Subject


def execute(config: AnyConfig, asked: argparse.Namespace, print_line: PrintLine) -> None:
    """Serves the page until the process is interrupted.

    Raises:
        ConfigError: The packages of the page are missing, or it cannot be served so.
    """
    _require_packages()
    from wheel_udf.page.server import serve

    access = access_of(asked)
    end_on_sigterm()
    with quiet_sql(), session(config.name) as spark:
        serve(subject_of(spark, config), access, print_line)


@contextmanager
def served(spark: SparkSession, config: AnyConfig, asked: argparse.Namespace) -> Iterator[Sequence[str]]:
    """Serves the page from a thread of the job that runs, in a session of the page's own; yields what it says first.

    Raises:
        ConfigError: As :func:`execute`.
    """
    _require_packages()
    from wheel_udf.page.server import PageServer

    access = _access(asked, asked.token)  # no ${env:NAME}: whoever asks has read it
    with quiet_sql(), PageServer(subject_of(spark, config), access) as page:
        yield page.lines


def _require_packages() -> None:
    for package in ("flask", "flask_wtf", "waitress"):
        if (missing := missing_package(package, "ui", "ui")) is not None:
            raise missing


def access_of(asked: argparse.Namespace) -> Access:
    """Returns where the page listens, and who may do what.

    Raises:
        ConfigError: The token cannot be read, or a value cannot be used.
    """
    filled, faults = resolve({"--token": asked.token})
    for fault in faults.values():
        raise fault
    return _access(asked, filled["--token"])


def _access(asked: argparse.Namespace, token: str | None) -> Access:
    from wheel_udf.page.guard import Access

    return Access(asked.address, asked.port, asked.allow_acts, token, tuple(asked.host))


def subject_of(spark: SparkSession, config: AnyConfig) -> Subject:
    """Returns what the page shows."""
    from wheel_udf.page.subject import Subject

    return Subject(
        name=config.name,
        mode=config.kind,
        spark=spark,
        checkpoint=config.checkpoint,
        open_work=_opener(spark, config),
        geometry=config.wheel.wheel(),
        destinations=destinations_of(config),
        rejects=sink_of(config.rejects),
        clock_kind=config.clock.kind,
    )


def _opener(spark: SparkSession, config: AnyConfig) -> Callable[[], PendingWork]:
    """Returns an opener of the pending work, cached by thread: an opened store reads only later changes."""
    opened = threading.local()

    def work() -> PendingWork:
        if not hasattr(opened, "work"):
            opened.work = pending_work_of(spark, config)
        found: PendingWork = opened.work
        return found

    return work
