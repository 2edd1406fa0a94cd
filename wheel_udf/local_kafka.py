"""A real Kafka broker for tests and demos: one JVM, one node, on this machine only, gone when you are done.

::

    with LocalKafka() as kafka:
        create_topics(kafka.bootstrap, ["orders"])   of wheel_udf.kafka_topics
        ...                                          any client: bootstrap.servers = kafka.bootstrap

    jars (configuration "broker" of conf/ivy.xml, downloaded when first needed)
      |  kafka.tools.StorageTool format     about 2 s
      |  kafka.Kafka                        about 3 s: broker and controller in one, 512 MiB of heap
      v
    127.0.0.1:PORT   listener CLIENT, free port        folder/   server.properties, broker.log, data/

Invariants. Nothing listens beyond loopback. Topics are never made by writing to them. The broker is ended by its own process id,
never by a name, and does not outlive this process: it is stopped at interpreter exit, and when this process is killed (``kill -9``
too) a shell that waits on a pipe from it sees the pipe close and kills the broker. Ctrl-C does not reach the broker, so what still
writes to it can end in order.

A broker that runs already is used instead if the environment variable ``WHEEL_UDF_KAFKA`` names its bootstrap servers; it is never
stopped, killed or reconfigured from here. Whoever asks for ``properties`` always gets a broker of their own.

TLS or SASL for clients: give the listener CLIENT another protocol, for example ``listener.security.protocol.map``
= ``CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT`` with ``sasl.enabled.mechanisms``, ``sasl.mechanism.inter.broker.protocol`` and
``listener.name.client.plain.sasl.jaas.config``.

Caveats. A free port is looked for and then given to the broker; if another process takes it in between, another one is tried.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from wheel_udf import jars
from wheel_udf.broker_settings import HOST, STARTED, is_port_taken, last_lines, write_settings
from wheel_udf.errors import SessionError

EXTERNAL_VARIABLE = "WHEEL_UDF_KAFKA"
"""Environment variable with the bootstrap servers of a running broker that is to be used instead."""

_CLUSTER_ID = "d2hlZWxfdWRmLWxvY2FsLQ"  # any 16 bytes as base64
_POLL_S = 0.1
_LONGEST_START_POLLS = 1200  # two minutes: five seconds are usual, a loaded machine of two cores may stall
_LONGEST_STOP_S = 20.0
_PORT_ATTEMPTS = 3


class LocalKafka:
    """A broker of its own, or the external one; a context manager.

    Args:
        folder: Where settings, log and data go; kept, and taken up again by the next start. Default: a temporary folder that
            :meth:`stop` removes.
        properties: Broker settings over the ones here, such as ``{"message.max.bytes": "2000"}``.
        heap: Of the JVM, as for ``-Xmx``.
    """

    def __init__(
        self,
        folder: Path | None = None,
        properties: Mapping[str, str] | None = None,
        heap: str = "512m",
    ) -> None:
        self._given_folder, self._properties, self._heap = folder, dict(properties or {}), heap
        self._folder: Path | None = None
        self._ports: tuple[int, int] | None = None
        self._broker: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._external = "" if properties else os.environ.get(EXTERNAL_VARIABLE, "").strip()

    @property
    def bootstrap(self) -> str:
        """What clients put into ``bootstrap.servers``; the same after a restart.

        Raises:
            SessionError: The broker has never been started.
        """
        if self._external:
            return self._external
        if self._ports is None:
            raise SessionError(
                "the broker is not started", field="LocalKafka", hint="with LocalKafka() as kafka:"
            )
        return f"{HOST}:{self._ports[0]}"

    @property
    def pid(self) -> int | None:
        """The process id of the broker; None if it is an external one, or does not run."""
        return None if self._broker is None else self._broker.pid

    def start(self) -> Self:
        """Starts the broker and returns when it serves; after :meth:`kill` or :meth:`stop` once more, on the same port.

        Raises:
            SessionError: No Java, no jars, or a broker that did not come up (with the last lines of its log).
        """
        if self._external or self._broker is not None:
            return self
        java, class_path = jars.find_java(), _class_path()
        self._folder = self._given_folder or self._folder or Path(tempfile.mkdtemp(prefix="wheel-kafka-"))
        self._folder.mkdir(parents=True, exist_ok=True)
        atexit.register(self.stop)
        try:
            self._start_on_some_port([str(java), "-cp", class_path], self._folder)
        except BaseException:
            self.stop()
            raise
        return self

    def _start_on_some_port(self, java: Sequence[str], folder: Path) -> None:
        attempts = 1 if self._ports else _PORT_ATTEMPTS  # clients know the port of an earlier start
        for attempt in range(1, attempts + 1):
            ports = self._ports or free_ports()
            settings = write_settings(folder, ports, self._properties)
            _format(java, folder, settings)
            if self._launch(java, folder, settings):
                self._ports = ports
                return
            self._end(self._broker_process())
            log = (folder / "broker.log").read_text(encoding="utf-8", errors="replace")
            if attempt == attempts or not is_port_taken(log):
                kept = (
                    "LocalKafka(folder=...) keeps its log"
                    if self._given_folder is None
                    else f"see {folder}/broker.log"
                )
                raise SessionError(
                    f"the Kafka broker did not come up; its last lines: {last_lines(log)}", hint=kept
                )

    def _broker_process(self) -> subprocess.Popen[bytes]:
        assert self._broker is not None, "launched"
        return self._broker

    def _launch(self, java: Sequence[str], folder: Path, settings: Path) -> bool:
        """Starts the JVM; whether it says within two minutes that it serves."""
        log = folder / "broker.log"
        options = [
            f"-Xmx{self._heap}",
            "-XX:+UseSerialGC",
            f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        ]
        with log.open("wb") as out:
            # A session of its own: Ctrl-C in the terminal is for us, and we stop the broker when its users are through.
            self._broker = subprocess.Popen(
                [java[0], *options, *java[1:], "kafka.Kafka", str(settings)],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._guard = kill_after_us(str(self._broker.pid))
        for _ in range(_LONGEST_START_POLLS):
            with suppress(subprocess.TimeoutExpired):
                self._broker.wait(_POLL_S)
                return False
            if STARTED in log.read_text(encoding="utf-8", errors="replace"):
                return True
        return False

    def stop(self) -> None:
        """Ends the broker and, if the folder was a temporary one, removes it; harmless when repeated, or external."""
        if self._broker is not None:
            self._broker.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._broker.wait(_LONGEST_STOP_S)
            self._end(self._broker)
        if self._folder is not None and self._given_folder is None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        atexit.unregister(self.stop)

    def kill(self) -> None:
        """``kill -9``: no flush, no goodbye. The data stay, also in a temporary folder; :meth:`start` goes on with them.

        Raises:
            SessionError: The broker is an external one.
        """
        if self._external:
            raise SessionError(
                "an external broker is not ours to kill", field=EXTERNAL_VARIABLE, value=self._external
            )
        if self._broker is not None:
            self._end(self._broker)

    def _end(self, broker: subprocess.Popen[bytes]) -> None:
        if self._guard is not None:
            # First: once the broker's process id is free, nobody may send it a signal.
            self._guard.kill()
            self._guard.communicate()
        broker.kill()
        broker.wait()
        self._broker = self._guard = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def free_ports() -> tuple[int, int]:
    """Two ports of the loopback that nobody listens on at this moment, different from each other."""
    with socket.socket() as one, socket.socket() as other:
        one.bind((HOST, 0))
        other.bind((HOST, 0))
        return one.getsockname()[1], other.getsockname()[1]


def _class_path() -> str:
    folder = jars.jars_folder("broker")
    if not any(folder.glob("*.jar")):
        jars.resolve("broker")
    # The broker's jars leave the choice of a logger to their user, and say nothing without one. Spark's own is at hand.
    shipped = jars.pyspark_folder() / "jars"
    loggers = [
        path
        for name in ("slf4j-api", "log4j-slf4j2-impl", "log4j-api", "log4j-core")
        for path in _newest(shipped, name)
    ]
    return os.pathsep.join([*loggers, f"{folder}/*"])


def _newest(folder: Path, name: str) -> list[str]:
    return [str(path) for path in sorted(folder.glob(f"{name}-[0-9]*.jar"))[-1:]]


def _format(java: Sequence[str], folder: Path, settings: Path) -> None:
    tool = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(settings), "--ignore-formatted"]
    quiet = f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}"
    run = subprocess.run(
        [java[0], quiet, *java[1:], *tool],
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if run.returncode != 0:
        what = f"the broker's folder cannot be formatted; the tool's last lines: {last_lines(run.stdout + run.stderr)}"
        raise SessionError(what, field=str(folder), hint="check the broker's properties")


def kill_after_us(target: str) -> subprocess.Popen[bytes]:
    """A shell that kills a process when this one is gone: then, however it ended, the pipe to the shell closes.

    Args:
        target: As for ``kill``: a process id, or ``-`` and the id of a process group.

    Returns:
        The shell; to be killed once the target has ended in another way, and before its id can be given to another process.
    """
    shell = shutil.which("sh") or "/bin/sh"
    return subprocess.Popen(
        [shell, "-c", f"read _; kill -9 {target}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
