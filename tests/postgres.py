"""A real PostgreSQL for tests: a server of its own in a temporary folder, on the loopback address, as a user that is
not root.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Self

from wheel_udf.testing.broker import kill_after_us

PASSWORD = "pg-s3cr3t"
"""Of the user ``wheel``."""


def missing_reason() -> str | None:
    """Why there is no server to start; None if there is one."""
    if _programs() is None:
        return "PostgreSQL is not installed: its tests are skipped (Debian: apt-get install postgresql)"
    return None


def _programs() -> Path | None:
    """The folder of ``initdb`` and ``postgres``; Debian keeps them off the path."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((each for each in folders if (each / "postgres").exists()), None)


def program(name: str) -> str:
    """The path of one of its programs."""
    folder = _programs()
    assert folder is not None, missing_reason()
    return str(folder / name)


class LocalPostgres:
    """A server; started and stopped by a ``with`` block.

    Args:
        folder: An empty folder for its data.
        durable: With fsync, and with few lines in its log, which nobody reads: for hours, and for kills.

    Attributes:
        port: Its port on 127.0.0.1; the same after a restart.
    """

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        programs = _programs()
        assert programs is not None, missing_reason()
        self._programs, self._folder = programs, folder
        quiet = ("-c", "log_min_messages=log", "-c", "log_checkpoints=off")
        self._more = quiet if durable else ("-F",)
        # PostgreSQL refuses to run as root.
        self._user = "postgres" if os.geteuid() == 0 else None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._server: subprocess.Popen[str] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The JDBC URL."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int | None:
        """The process id of the server; None if it does not run."""
        return None if self._server is None else self._server.pid

    def start(self) -> None:
        """Starts the server; returns when it takes connections."""
        # On the command line, so that no file of settings has to be written as the other user.
        options = ("-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self._folder}")
        self._server = subprocess.Popen(
            [
                str(self._programs / "postgres"),
                "-D",
                str(self._folder / "data"),
                "-p",
                str(self.port),
                *self._more,
                *options,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            user=self._user,
            cwd=self._folder,
            start_new_session=True,
        )
        self._guard = kill_after_us(str(self._server.pid))
        assert self._server.stderr is not None
        lines = []
        for line in self._server.stderr:
            lines.append(line)
            if "ready to accept connections" in line:
                return
        raise AssertionError("".join(lines))

    def stop(self) -> None:
        """Stops the server at once; sessions are cut off."""
        if self._server is None:
            return
        assert self._guard is not None
        # The guard first: after the server has ended, its process id can belong to another process.
        self._guard.kill()
        self._guard.wait()
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._server.send_signal(3)  # SIGQUIT: immediate shutdown
        assert self._server.stderr is not None
        with suppress(ValueError):
            self._server.stderr.read()
        self._server.wait(60)
        self._server.stderr.close()
        self._server = None

    def __enter__(self) -> Self:
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        options = [
            "-U",
            "wheel",
            "-A",
            "scram-sha-256",
            f"--pwfile={secret}",
            "-E",
            "UTF8",
            "--no-sync",
            "--locale=C",
        ]
        initdb = [str(self._programs / "initdb"), "-D", str(self._folder / "data"), *options]
        subprocess.run(initdb, check=True, capture_output=True, user=self._user, cwd=self._folder)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
