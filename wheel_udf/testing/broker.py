"""A real Kafka broker for tests and demos: one JVM, one node, reachable from this machine only.

::

    jars (configuration "broker" of conf/ivy.xml, downloaded when first needed)
      |  kafka.tools.StorageTool format     about 2 s
      |  kafka.Kafka                        about 3 s: broker and controller in one process, 512 MiB of heap
      v
    127.0.0.1:PORT   listener CLIENT, free port        folder/   server.properties, broker.log, data/

Invariants

* The broker listens on the loopback address only. Writing to a missing topic does not create it.
* The broker is ended by its process id, never by name, and never outlives this process. It is stopped at interpreter
  exit. If this process is killed (also by ``kill -9``), a shell that waits on a pipe from it sees the pipe close and
  kills the broker.
* Ctrl-C in the terminal does not reach the broker, so clients that are still writing can finish first.

An external broker: if the environment variable ``WHEEL_UDF_KAFKA`` names bootstrap servers, that broker is used. It is
never stopped, killed or reconfigured from here. With ``properties`` a broker of its own is started in any case.

TLS or SASL for clients: set another protocol for the listener CLIENT, for example ``listener.security.protocol.map`` =
``CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT`` with ``sasl.enabled.mechanisms``,
``sasl.mechanism.inter.broker.protocol`` and ``listener.name.client.plain.sasl.jaas.config``.

Caveat: a free port is found first and given to the broker later. If another process takes it in between, the start is
repeated with another port.
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

from wheel_udf.common.errors import SessionError
from wheel_udf.spark import jars, java, versions
from wheel_udf.testing.settings import HOST, STARTED, is_port_taken, last_lines, write_settings

EXTERNAL_VARIABLE = "WHEEL_UDF_KAFKA"
"""Environment variable with the bootstrap servers of an external broker to use instead of starting one."""

_CLUSTER_ID = "d2hlZWxfdWRmLWxvY2FsLQ"  # any 16 bytes as base64
_POLL_S = 0.1
_LONGEST_START_POLLS = 1200  # two minutes; usual are 5 s, a loaded machine with two cores can take far longer
_LONGEST_STOP_S = 20.0
_PORT_ATTEMPTS = 3
_PAUSES = ("-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
"""As in Kafka's start script, for Java's default collector, G1. The serial one stops a broker under load for longer;
tests, with many brokers and little load, choose it (``JDK_JAVA_OPTIONS``)."""


class LocalKafka:
    """A broker in a JVM of its own, or the external one; a context manager.

    Args:
        folder: Folder for settings, log and data; it is kept, and the next start continues with it. Default: a
            temporary folder that :meth:`stop` removes.
        properties: Broker settings that override the defaults, such as ``{"message.max.bytes": "2000"}``.
        heap: Heap of the JVM, as for ``-Xmx``.
        port: Port for clients; default: a free one.
    """

    def __init__(
        self,
        folder: Path | None = None,
        properties: Mapping[str, str] | None = None,
        heap: str = "512m",
        port: int | None = None,
    ) -> None:
        self._given_folder, self._properties, self._heap = folder, dict(properties or {}), heap
        self.folder: Path | None = None
        self._ports: tuple[int, int] | None = None if port is None else (port, free_ports()[1])
        self._broker: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._external = "" if properties else os.environ.get(EXTERNAL_VARIABLE, "").strip()

    @property
    def bootstrap(self) -> str:
        """The value of ``bootstrap.servers`` for clients; the same after a restart.

        Raises:
            SessionError: The broker has never been started.
        """
        if self._external:
            return self._external
        if self._ports is None:
            raise SessionError(
                "the broker has not been started", field="LocalKafka", hint="with LocalKafka() as kafka:"
            )
        return f"{HOST}:{self._ports[0]}"

    @property
    def is_running(self) -> bool:
        """Whether the broker runs, as far as can be known from here: always True of an external one."""
        return bool(self._external) or (self._broker is not None and self._broker.poll() is None)

    @property
    def pid(self) -> int | None:
        """The process id of the broker; None if it is external or not running."""
        return None if self._broker is None else self._broker.pid

    def start(self) -> Self:
        """Starts the broker and returns when it accepts clients; after :meth:`kill` or :meth:`stop`, restarts it on the
        same port.

        Raises:
            SessionError: Java or the jars are missing, or the broker did not start (with the last lines of its log).
        """
        if self._external or self._broker is not None:
            return self
        program, class_path = java.find_java(), _class_path()
        self.folder = self._given_folder or self.folder or Path(tempfile.mkdtemp(prefix="wheel-kafka-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        atexit.register(self.stop)
        try:
            self._start_on_some_port([str(program), "-cp", class_path], self.folder)
        except BaseException:
            self.stop()
            raise
        return self

    def _start_on_some_port(self, java: Sequence[str], folder: Path) -> None:
        attempts = 1 if self._ports else _PORT_ATTEMPTS  # a restart keeps the port that clients know
        for attempt in range(1, attempts + 1):
            ports = self._ports or free_ports()
            settings = write_settings(folder, ports, self._properties)
            _format(java, folder, settings)
            if self._launch(java, folder, settings):
                self._ports = ports
                return
            self._end()
            log = (folder / "broker.log").read_text(encoding="utf-8", errors="replace")
            if attempt == attempts or not is_port_taken(log):
                what = f"the Kafka broker did not start; last lines of its log: {last_lines(log)}"
                raise SessionError(what, hint="LocalKafka(folder=...) keeps the log, broker.log")

    def _launch(self, java: Sequence[str], folder: Path, settings: Path) -> bool:
        """Starts the JVM; returns whether its log reports within two minutes that it is up."""
        log = folder / "broker.log"
        options = [
            f"-Xmx{self._heap}",
            *_PAUSES,
            f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        ]
        with log.open("wb") as out:
            # A session of its own: Ctrl-C in the terminal reaches this process only, which stops the broker after its
            # clients.
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
        """Stops the broker and removes a temporary folder. No effect on an external or a stopped broker."""
        if self._broker is not None:
            self._broker.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._broker.wait(_LONGEST_STOP_S)
            self._end()
        if self.folder is not None and self._given_folder is None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None
        atexit.unregister(self.stop)

    def kill(self) -> None:
        """Kills the broker (``kill -9``), without a flush. The data stay, also in a temporary folder; :meth:`start`
        continues with them.

        Raises:
            SessionError: The broker is an external one.
        """
        if self._external:
            raise SessionError(
                "an external broker is not killed from here", field=EXTERNAL_VARIABLE, value=self._external
            )
        self._end()

    def _end(self) -> None:
        # The guard first: after the broker has ended, its process id can belong to another process.
        for process in (self._guard, self._broker):
            if process is not None:
                process.kill()
                process.communicate()
        self._broker = self._guard = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def free_ports() -> tuple[int, int]:
    """Returns two different ports of the loopback address on which no process listens at this moment."""
    with socket.socket() as one, socket.socket() as other:
        one.bind((HOST, 0))
        other.bind((HOST, 0))
        return one.getsockname()[1], other.getsockname()[1]


def _class_path() -> str:
    folder = jars.jars_folder("broker")
    if not any(folder.glob("*.jar")):
        jars.resolve(["broker"])
    # The broker's jars bring no logging backend and log nothing without one; Spark's jars have one.
    shipped = versions.pyspark_folder() / "jars"
    names = ("slf4j-api", "log4j-slf4j2-impl", "log4j-api", "log4j-core")
    loggers = [str(path) for name in names for path in shipped.glob(f"{name}-[0-9]*.jar")]
    return os.pathsep.join([*loggers, f"{folder}/*"])


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
        what = f"the broker's folder cannot be formatted; last lines of the tool: {last_lines(run.stdout + run.stderr)}"
        raise SessionError(what, field=str(folder), hint="check the broker's properties")


def kill_after_us(target: str) -> subprocess.Popen[bytes]:
    """Starts a shell that kills a process when this one ends: the pipe to the shell closes, however this process ended.

    Args:
        target: As for ``kill``: a process id, or ``-`` and the id of a process group.

    Returns:
        The shell. Kill it once the target has ended otherwise, before the target's id can be reused.
    """
    shell = shutil.which("sh") or "/bin/sh"
    return subprocess.Popen(
        [shell, "-c", f"read _; kill -9 {target}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
