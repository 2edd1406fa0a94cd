"""NATS: scheduled messages of JetStream. The server is a Go program that embeds nats-server (``nats/main.go``)."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import ClassVar

from tests.bench.peers.peer import (
    SOURCES,
    VALUE,
    OneServer,
    Program,
    Promise,
    free_port,
    install_with,
    need,
    wait_for_port,
)


class Nats(OneServer):
    """One server with files."""

    name = "nats"
    title = "NATS"
    promise: ClassVar[Promise] = Promise(
        delivery="at least once (acknowledged by the consumer)",
        order="that of their release, by due time; none between equal ones",
        granularity="ns in the server, whole seconds in its Go client; here ms",
        durability="written to a file, fsync each 2 minutes (its default)",
    )

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._program = str(home / "peer")
        self._port = 0
        self._folder = home

    def install(self) -> str:
        """Builds the program."""
        go = need("go", "1.26 or newer")
        self.home.mkdir(parents=True, exist_ok=True)
        caches = {
            "GOPATH": str(self.home.parent / "go"),
            "GOCACHE": str(self.home.parent / "go-cache"),
            "GOFLAGS": "-modcacherw -mod=readonly -buildvcs=false",
        }
        install_with([go, "build", "-o", self._program, "."], SOURCES / "nats", caches)
        version = subprocess.run([self._program, "version"], check=True, capture_output=True, text=True)
        return f"nats-server {version.stdout.strip()}"

    def start(self, folder: Path) -> None:
        """Starts the server."""
        self._folder, self._port = folder, free_port()
        self.restart()

    def restart(self) -> None:
        """Starts the server on the same port, with the same files."""
        command = [self._program, "server", str(self._port), str(self._folder / "data")]
        self.server = Program(command, self._folder / "server.log")
        wait_for_port(self.server, self._port)

    def feed(self) -> list[str]:
        """A publisher that waits for the server's confirmations."""
        return [self._program, "feed", str(self._port), VALUE]

    def drain(self) -> list[str]:
        """A durable pull consumer."""
        return [self._program, "drain", str(self._port)]
