"""A Spark Connect server for tests: Spark's own, in a process of its own, with Delta."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.settings import INTERPRETED, SMALL
from wheel_udf.spark.session import local_settings

ROOT: Final = Path(__file__).parents[2]
_MAIN: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
_PATIENCE_S: Final = 180


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@dataclass
class Server:
    """A server; its tables are in its folder. The catalog does not outlive it: see :meth:`tests.connect.world.World.restart`.

    Attributes:
        folder: Its folder.
        port: Its port, on the loopback.
    """

    folder: Path
    port: int = field(default_factory=_free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def warehouse(self) -> Path:
        """The folder of the tables."""
        return self.folder / "warehouse"

    @property
    def url(self) -> str:
        """What a client asks for."""
        return f"sc://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts it and waits until it listens."""
        command = [str(Path(sys.executable).with_name("spark-submit")), "--class", _MAIN]
        for name, value in _settings(self.folder, self.port).items():
            command += ["--conf", f"{name}={value}"]
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(self.folder),
        }
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "spark-internal"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.folder, env=environment, start_new_session=True,
            )  # fmt: skip
        begin_s = time.monotonic()
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() - begin_s > _PATIENCE_S:
                said = (self.folder / "log").read_text(errors="replace")[-3_000:]
                raise RuntimeError(f"the Connect server does not start: {said}")
            time.sleep(0.1)

    def kill(self) -> None:
        """Kills it, with its Python processes, as a machine that loses its power."""
        assert self._process is not None, "started"
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _listens(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """Starts a server with its data in a folder, and kills it at the end."""
    server = Server(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def _settings(folder: Path, port: int) -> dict[str, str]:
    small = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (SMALL | INTERPRETED).items()
    }
    return local_settings(
        {
            **small,
            "spark.master": "local[2]",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
        }
    )
