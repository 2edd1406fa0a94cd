"""db-scheduler on PostgreSQL: both ends are ``db_scheduler/DbScheduler.java``; the server is that of the tests."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import ClassVar

from tests.bench.peers.peer import (
    VALUE,
    Peer,
    Promise,
    UnavailableError,
    java_classes,
    kill_family,
    need,
    version_of_jar,
)
from tests.postgres import PASSWORD, LocalPostgres, missing_reason, program


class DbScheduler(Peer):
    """One PostgreSQL with fsync, and one scheduler that polls ten times a second."""

    name = "db-scheduler"
    title = "db-scheduler"
    is_worker = True
    promise: ClassVar[Promise] = Promise(
        delivery="at least once (what a dead scheduler had picked is picked again: after 8 s here, 30 min by default)",
        order="picked by due time; none between threads",
        granularity="ms; polled each 10 s by default, here each 100 ms",
        durability="committed, fsync",
    )

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._java = ""
        self._class_path = ""
        self._server: LocalPostgres | None = None

    def install(self) -> str:
        """Gets the jars and compiles both ends."""
        reason = missing_reason()
        if reason is not None:
            raise UnavailableError(reason)
        self._java = need("java", "17 or newer")
        self._class_path = java_classes("db_scheduler", self.home)
        told = subprocess.run([program("postgres"), "--version"], check=True, capture_output=True, text=True)
        version = told.stdout.split()[2]
        return f"db-scheduler {version_of_jar(self.home, 'db-scheduler')}, PostgreSQL {version}"

    def start(self, folder: Path) -> None:
        """Starts PostgreSQL."""
        place = folder / "postgres"
        place.mkdir()
        self._server = LocalPostgres(place, durable=True).__enter__()

    def restart(self) -> None:
        """Starts PostgreSQL on the same port, with the same files."""
        assert self._server is not None, "started"
        self._server.start()

    def stop(self) -> None:
        """Stops PostgreSQL."""
        if self._server is not None:
            self._server.stop()

    def kill(self) -> None:
        """Kills PostgreSQL, sessions included."""
        assert self._server is not None, "started"
        assert self._server.pid is not None, "running"
        kill_family(self._server.pid)
        self._server.stop()

    def processes(self) -> list[int]:
        """PostgreSQL."""
        assert self._server is not None, "started"
        return [] if self._server.pid is None else [self._server.pid]

    def feed(self) -> list[str]:
        """Schedules executions in batches."""
        return self._end("feed", VALUE)

    def drain(self) -> list[str]:
        """The scheduler."""
        return self._end("drain")

    def _end(self, role: str, *more: str) -> list[str]:
        assert self._server is not None, "started"
        arguments = [role, self._server.url, "wheel", PASSWORD, *more]
        return [self._java, "-Xmx1g", "-cp", self._class_path, "DbScheduler", *arguments]
