"""Begins a run: takes its leases before anything else, and loads the program while Spark starts.

::

    0.0 s   config, leases            a second start on the checkpoint ends here, with the holder's process id
            |
            +-- Spark's JVM           on this thread, which mostly waits
            +-- imports               on another one: pandas, the rooms, the sinks
            |
            +-- Python processes      on another one: those of the first batch
            |
            source, plan, query       wheel_udf.job.attempts

The leases are of the folders of the checkpoint. The lease of a slot store is checked here and taken when the store is
opened or made: a folder without a table must stay empty until then. A start that is refused later removes what it has
made for its leases on a local path; elsewhere one record stays.

A folder that only Spark can open (HDFS) has its lease taken when Spark runs (:mod:`wheel_udf.checkpoint.lease`).

On a terminal one line says what is done and for how long; elsewhere a phase that takes longer than 5 s has a line that
names it (:mod:`wheel_udf.job.phases`).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Final

from wheel_udf.checkpoint.identity import check_tiered_folder
from wheel_udf.checkpoint.lease import Leases
from wheel_udf.common.progress import PrintLine
from wheel_udf.job.phases import Phases
from wheel_udf.job.sessions import session
from wheel_udf.spark.files import local_folder
from wheel_udf.store.lease import leased

if TYPE_CHECKING:
    from wheel_udf.job.models.purgatory import AnyConfig

_PROGRAM: Final = "wheel_udf.job.attempts"


def run(config: AnyConfig, until_ms: int | None, print_line: PrintLine) -> int:
    """Runs the job until its input ends, ``until`` is reached, or a signal comes.

    Args:
        config: The checked config.
        until_ms: The instant to which the clock runs (UTC epoch ms), or None.
        print_line: Takes the progress lines and the summary.

    Returns:
        0; after a signal that cut a batch off 128 + its number.

    Raises:
        WheelError: Config, source, checkpoint or lease do not allow the start.
        StreamingQueryException: The query failed, and new starts did not help.
    """
    with leases_of(config) as leases, closing(Phases(print_line, sys.stderr)) as phases:
        print_line = phases.around(print_line)
        check_port(config)
        phases.begin("starting Spark")
        import_module("pyspark.sql")  # before the other thread, which imports more of it
        with loading(_PROGRAM), session(config.name, config.checkpoint, phases):
            phases.begin("loading the program")
            from wheel_udf.job import attempts

            return attempts.run_held(config, until_ms, print_line, leases, phases)


def leases_of(config: AnyConfig) -> Leases:
    """Returns the leases of a config's checkpoint, to be entered.

    Raises:
        GeometryChangedError, CheckpointError: The folder cannot hold a checkpoint of the tiered mode.
    """
    store = getattr(config, "store", None)
    if store is not None and local_folder(config.checkpoint) is not None:
        check_tiered_folder(config.checkpoint)
    later = [] if store is None or store.path is None else [leased(store.path)]
    return Leases(config.checkpoints, config.lease.timeout_ms, later)


@contextmanager
def loading(module: str) -> Iterator[None]:
    """Imports a module on another thread meanwhile. What the import raises is raised by the next one."""
    thread = threading.Thread(target=_load, args=(module,), name="wheel-loading", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _load(module: str) -> None:
    with suppress(Exception):
        import_module(module)


def check_port(config: AnyConfig) -> None:
    """Checks that a run could listen where the config says.

    Raises:
        ConfigError: The port is in use, or the address is not one of this machine.
    """
    if config.api.address_is_chosen:
        from wheel_udf.api.http_server import HttpServer

        HttpServer(config.api.address, config.api.port).close()
