"""What a peer of the bench is: something that can be installed, started, killed and fed, and that releases what it was
fed. And the processes that it consists of.

One protocol for all. ``feed`` is a process that reads lines ``ID DUE_MS``, puts each of them into the peer with a value
of 100 bytes, tries again until the peer has confirmed it, and exits 0 when its input has ended. ``drain`` is a process
that prints a line ``ID`` for each entry that is released to it, at once. Where the peer is a library (BullMQ,
db-scheduler), ``drain`` is its worker: it is measured and killed with the peer. Where the peer is a broker, ``drain``
is an ordinary consumer.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tests.bench.measure import family_of
from wheel_udf.testing.broker import kill_after_us

SOURCES = Path(__file__).parent
HOST = "127.0.0.1"
VALUE = ("abcdefghij" * 10)[:100]
"""The value of each entry."""

_LONGEST_STOP_S = 20
_LONGEST_START_S = 180
_LONGEST_INSTALL_S = 1_800
_LOOK_S = 0.1
_COPY_JARS = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What a peer promises, in words.

    Attributes:
        delivery: How often an entry is released.
        order: In which order.
        granularity: Of due times.
        durability: What is on the disk when an entry is confirmed.
    """

    delivery: str
    order: str
    granularity: str
    durability: str


class UnavailableError(Exception):
    """A peer cannot be had on this machine; the text says why."""


class Peer(ABC):
    """A peer; see the module.

    Args:
        home: Folder for what is installed; it is kept.

    Attributes:
        name: As for ``--only``.
        title: Heading of its column.
        promise: What it promises.
        is_worker: Whether ``drain`` is a part of the peer.
        environment: Of its processes, beside the present one.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    promise: ClassVar[Promise]
    is_worker: ClassVar[bool] = False

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment: dict[str, str] = {}

    @abstractmethod
    def install(self) -> str:
        """Gets what is missing and returns the versions.

        Raises:
            UnavailableError: It cannot be had.
        """

    @abstractmethod
    def start(self, folder: Path) -> None:
        """Starts it with an empty folder for its data and logs; returns when clients can come."""

    @abstractmethod
    def stop(self) -> None:
        """Stops it for good; no effect if it does not run."""

    @abstractmethod
    def kill(self) -> None:
        """Kills (``kill -9``) what holds the entries; ``drain`` is killed by the bench."""

    @abstractmethod
    def restart(self) -> None:
        """Starts again what was killed."""

    @abstractmethod
    def processes(self) -> list[int]:
        """Ids of its processes, without ``drain``; their descendants belong to it, too."""

    @abstractmethod
    def feed(self) -> list[str]:
        """The command of ``feed``."""

    @abstractmethod
    def drain(self) -> list[str]:
        """The command of ``drain``."""

    def taken_in(self) -> int | None:
        """How many entries have been taken in since the start; None: what is confirmed is taken in."""
        return None


class Program:
    """A process that ends with this one at the latest, and never reads the terminal.

    Args:
        command: What to start.
        log: File for standard error, and for standard output unless that is asked for; it is continued.
        environment: Beside the present one.
        folder: Where it works.
        stdin: As for ``Popen``.
        stdout: As for ``Popen``; None: the log.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
    ) -> None:
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=stdin,
                stdout=errors if stdout is None else stdout,
                stderr=errors,
                cwd=folder,
                env=os.environ | dict(environment or {}),
                start_new_session=True,
            )
        self._guard = kill_after_us(f"-{self.process.pid}")

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def stop(self) -> None:
        """Ends it, with a SIGTERM first; no effect if it has ended."""
        if self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_LONGEST_STOP_S)
        self.kill()

    def kill(self) -> None:
        """Kills it and its descendants (``kill -9``); no effect if it has ended."""
        # The guard first: after the process has ended, its id can belong to another one.
        self._guard.kill()
        self._guard.wait()
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        if self.process.poll() is None:
            kill_family(self.process.pid)
        self.process.wait()


def kill_family(root: int) -> None:
    """Kills a process and its descendants: some are leaders of sessions of their own, so no group has them all."""
    for process in family_of(root):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def free_port() -> int:
    """A port of the loopback address on which no process listens at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def wait_for_port(program: Program, port: int) -> None:
    """Waits until the program takes connections.

    Raises:
        RuntimeError: It has ended, or takes none within three minutes.
    """
    until_s = time.monotonic() + _LONGEST_START_S
    while True:
        with suppress(OSError), socket.create_connection((HOST, port), 1):
            return
        if program.process.poll() is not None or time.monotonic() > until_s:
            raise RuntimeError(f"no answer on port {port}")
        time.sleep(_LOOK_S)


def need(program: str, hint: str) -> str:
    """The path of a program.

    Raises:
        UnavailableError: It is not installed.
    """
    found = shutil.which(program)
    if found is None:
        raise UnavailableError(f"{program} is not installed ({hint})")
    return found


def install_with(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
    """Runs a step of an installation.

    Raises:
        UnavailableError: It fails; with the last line of what it wrote.
    """
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LONGEST_INSTALL_S,
            check=False,
        )
    except subprocess.TimeoutExpired as fault:
        raise UnavailableError(f"{command[0]} was not done in {_LONGEST_INSTALL_S} s") from fault
    if done.returncode:
        raise UnavailableError(f"{Path(command[0]).name} failed: {_last_line(done.stdout + done.stderr)}")


def java_classes(name: str, home: Path) -> str:
    """Gets the jars of ``NAME/pom.xml``, compiles ``NAME/*.java``, and returns the class path.

    Raises:
        UnavailableError: There is no Maven, no compiler, or no jar.
    """
    maven, compiler = need("mvn", "Debian: apt install maven"), need("javac", "a JDK of 17 or newer")
    sources, jars, classes = SOURCES / name, home / "lib", home / "classes"
    pom = home / "pom.xml"
    if not pom.exists() or pom.read_bytes() != (sources / "pom.xml").read_bytes() or not jars.exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        copy = home / "asked.xml"
        shutil.copy(sources / "pom.xml", copy)
        local = f"-Dmaven.repo.local={home.parent / 'maven'}"
        wanted = ["-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        install_with([maven, "--quiet", "--batch-mode", local, "-f", str(copy), _COPY_JARS, *wanted], home)
        copy.rename(pom)  # only a folder that is complete is taken as it is
    shutil.rmtree(classes, ignore_errors=True)
    shutil.copytree(sources, classes, ignore=shutil.ignore_patterns("*.java", "pom.xml"))
    programs = [str(each) for each in sorted(sources.glob("*.java"))]
    install_with([compiler, "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), *programs], home)
    return f"{classes}{os.pathsep}{jars}/*"


def version_of_jar(home: Path, artifact: str) -> str:
    """The version of a jar that :func:`java_classes` has got."""
    (jar,) = (home / "lib").glob(f"{artifact}-[0-9]*.jar")
    return jar.stem.removeprefix(f"{artifact}-")


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip() and "[Help" not in line[:8]]
    errors = [line for line in lines if "rror" in line]
    return (errors or lines or ["no output"])[-1 if not errors else 0].strip()[:200]


class OneServer(Peer):
    """A peer that is one server; ``restart`` starts it."""

    server: Program | None = None

    def running(self) -> Program:
        """The server, which was started."""
        assert self.server is not None, "started"
        return self.server

    def stop(self) -> None:
        """Stops the server."""
        if self.server is not None:
            self.server.stop()

    def kill(self) -> None:
        """Kills the server."""
        self.running().kill()

    def processes(self) -> list[int]:
        """The server."""
        return [self.running().pid]
