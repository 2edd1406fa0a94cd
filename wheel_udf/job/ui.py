"""The verb ``ui``: serves a page of a job, which may change pending entries (:mod:`wheel_udf.page`)."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from wheel_udf.common.errors import ConfigError
from wheel_udf.common.progress import PrintLine
from wheel_udf.common.secrets import resolve
from wheel_udf.job.compose import destinations_of, pending_work_of, sink_of
from wheel_udf.job.models.purgatory import PurgatoryConfig
from wheel_udf.job.models.scheduler import JobConfig, TieredConfig
from wheel_udf.job.sessions import session
from wheel_udf.pending.entries import PendingWork
from wheel_udf.spark.failures import quiet_sql

if TYPE_CHECKING:
    from wheel_udf.page.guard import Access
    from wheel_udf.page.subject import Subject


def execute(config: JobConfig, asked: argparse.Namespace, print_line: PrintLine) -> int:
    """Serves the page until the process is interrupted.

    Args:
        config: The checked config of the job.
        asked: The arguments, of :func:`wheel_udf.job.arguments.parse`.
        print_line: Takes the lines.

    Returns:
        0.

    Raises:
        ConfigError: The packages of the page are missing, or it cannot be served so.
    """
    require_packages()
    from wheel_udf.page.server import serve

    access = access_of(asked)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    with quiet_sql(), session(config.name) as spark:
        serve(subject_of(spark, config), access, print_line)
    return 0


def require_packages() -> None:
    """Checks that the packages of the page are installed.

    Raises:
        ConfigError: One is not.
    """
    missing = [name for name in ("flask", "flask_wtf", "waitress") if find_spec(name) is None]
    if missing:
        raise ConfigError(
            "the page needs packages that are not installed",
            field="ui",
            value=", ".join(missing),
            hint="pip install 'wheel-udf[ui]'",
        )


def access_of(asked: argparse.Namespace) -> Access:
    """Returns where the page listens, and who may do what.

    Raises:
        ConfigError: The token cannot be read, or a value cannot be used.
    """
    from wheel_udf.page.guard import Access

    filled, faults = resolve({"--token": asked.token})
    for fault in faults.values():
        raise fault
    return Access(asked.address, asked.port, asked.allow_acts, filled["--token"], tuple(asked.host))


def subject_of(spark: SparkSession, config: JobConfig) -> Subject:
    """Returns what the page shows."""
    from wheel_udf.page.subject import Subject

    tiered, purgatory = isinstance(config, TieredConfig), isinstance(config, PurgatoryConfig)
    return Subject(
        name=config.name,
        mode="tiered" if tiered else "purgatory" if purgatory else "direct",
        spark=spark,
        checkpoint=config.checkpoint,
        open_work=_opener(spark, config),
        geometry=config.wheel.wheel(),
        destinations=destinations_of(config),
        rejects=sink_of(config.rejects),
        clock_kind=config.clock.kind,
    )


def _opener(spark: SparkSession, config: JobConfig) -> Callable[[], PendingWork]:
    """Returns an opener of the pending work, cached by thread: an opened store reads only later changes."""
    opened = threading.local()

    def work() -> PendingWork:
        if not hasattr(opened, "work"):
            opened.work = pending_work_of(spark, config)
        found: PendingWork = opened.work
        return found

    return work
