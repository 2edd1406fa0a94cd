"""An S3 server for tests: SeaweedFS, one process on loopback ports."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

BUCKET: Final = "bucket"
KEY, SECRET = "key", "secret"
_PATIENCE_S: Final = 60
_NAMES: Final = (
    *("master.port", "master.port.grpc", "volume.port", "volume.port.grpc"),
    *("filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc", "metricsPort"),
)


def program() -> str | None:
    """The server of this Python environment, or of PATH; None without one."""
    return shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")


@dataclass(frozen=True)
class Server:
    """A running server with one empty bucket."""

    port: int
    filer: int
    metrics: int

    @property
    def settings(self) -> dict[str, str]:
        """Hadoop's settings."""
        return {
            "fs.s3a.endpoint": f"http://127.0.0.1:{self.port}",
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.access.key": KEY,
            "fs.s3a.secret.key": SECRET,
        }

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables by which a client finds the server."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def names(self, folder: str) -> list[str]:
        """What is in a folder of the bucket; a folder has a slash at its end."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.filer}/buckets/{BUCKET}/{folder}/?limit=10000",
            headers={"Accept": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                entries: list[dict[str, Any]] = json.load(answer)["Entries"] or []
        except urllib.error.HTTPError as fault:
            if fault.code == 404:
                return []
            raise
        names = [(entry["FullPath"].rsplit("/", 1)[1], entry["Mode"] >> 31 & 1) for entry in entries]
        return [f"{name}/" if is_folder else name for name, is_folder in names]

    def put(self, name: str, content: str | bytes) -> None:
        """Writes a file into the bucket."""
        data = content.encode() if isinstance(content, str) else content
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.filer}/buckets/{BUCKET}/{name}", data=data, method="PUT"
        )
        urllib.request.urlopen(request, timeout=10).close()

    def requests(self) -> dict[str, int]:
        """How many requests S3 has answered so far, by operation."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        found: dict[str, int] = {}
        for line in lines:
            if line.startswith("SeaweedFS_s3_request_total{"):
                labels, _, value = line.rpartition(" ")
                name = labels.partition('type="')[2].partition('"')[0]
                found[name] = found.get(name, 0) + int(float(value))
        return found


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """Starts the server with its data in a folder, makes the bucket, and kills the server at the end."""
    ports = _free_ports(len(_NAMES))
    named = dict(zip(_NAMES, ports, strict=True))
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    credentials = [{"accessKey": KEY, "secretKey": SECRET}]
    identities = {"identities": [{"name": "tests", "credentials": credentials, "actions": actions}]}
    (folder / "s3.json").write_text(json.dumps(identities))
    (folder / "data").mkdir()
    command = [
        *(str(program()), "-logtostderr=true", "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *("-metricsIp=127.0.0.1", f"-dir={folder}/data", "-volume.max=50", "-master.volumeSizeLimitMB=64"),
        *("-filer", "-s3", f"-s3.config={folder}/s3.json", "-s3.port.iceberg=0", "-s3.port.lance=0"),
        *(f"-{name}={port}" for name, port in named.items()),
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        server = Server(named["s3.port"], named["filer.port"], named["metricsPort"])
        _make_bucket(server, process, folder)
        yield server
    finally:
        process.send_signal(signal.SIGKILL)  # it takes half a minute to end otherwise
        process.wait()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _make_bucket(server: Server, process: subprocess.Popen[bytes], folder: Path) -> None:
    """A folder of the filer is a bucket; with the first file in it there is room to write."""
    begin = time.monotonic()
    while True:
        try:
            server.put(".ready", "ready")
            urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics", timeout=10).close()
            with socket.create_connection(("127.0.0.1", server.port), timeout=1):
                return
        except OSError as fault:
            if process.poll() is not None or time.monotonic() - begin > _PATIENCE_S:
                log = (folder / "log").read_text(errors="replace")[-2_000:]
                raise RuntimeError(f"the S3 server does not start: {log}") from fault
            time.sleep(0.05)
