"""BullMQ on Redis (``bullmq/peer.mjs``). Redis is the installed one, or Debian's package unpacked in the build folder."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import ClassVar

from tests.bench.peers.peer import (
    HOST,
    SOURCES,
    VALUE,
    OneServer,
    Program,
    Promise,
    UnavailableError,
    free_port,
    install_with,
    need,
    wait_for_port,
)

_PACKAGES = ("redis-server", "redis-tools", "libjemalloc2", "liblzf1")


class BullMq(OneServer):
    """One Redis with an append-only file, and one worker."""

    name = "bullmq"
    title = "BullMQ"
    is_worker = True
    promise: ClassVar[Promise] = Promise(
        delivery="at least once (a lock of 30 s; a stalled job is given to another worker once)",
        order="by due time into the queue; none between jobs that run at the same time",
        granularity="ms",
        durability="in the append-only file, fsync each second (its default)",
    )

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._redis = ""
        self._libraries: dict[str, str] = {}
        self._port = 0
        self._folder = home

    def install(self) -> str:
        """Gets the packages of npm, and Redis if need be."""
        npm, _ = need("npm", "with Node.js 20 or newer"), need("node", "20 or newer")
        self.home.mkdir(parents=True, exist_ok=True)
        for file in ("package.json", "peer.mjs"):
            shutil.copy(SOURCES / "bullmq" / file, self.home / file)
        # A lock file would name a registry; the versions are exact, and so are those that BullMQ asks for.
        options = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline"]
        install_with([npm, "install", *options], self.home)
        version = self._find_redis()
        return f"BullMQ {self._version('bullmq')}, ioredis {self._version('ioredis')}, Redis {version}"

    def _version(self, package: str) -> str:
        found = json.loads((self.home / "node_modules" / package / "package.json").read_text())
        return str(found["version"])

    def _find_redis(self) -> str:
        installed = shutil.which("redis-server")
        if installed is not None:
            self._redis = installed
        else:
            root = self.home.parent / "redis"
            if not (root / "usr/bin/redis-server").exists():
                _unpack(root)
            self._redis = str(root / "usr/bin/redis-server")
            self._libraries = {"LD_LIBRARY_PATH": ":".join(map(str, sorted(root.glob("usr/lib/*-linux-*"))))}
        told = subprocess.run(
            [self._redis, "--version"], env=self._libraries, capture_output=True, text=True, check=False
        )
        if told.returncode:
            raise UnavailableError(f"redis-server does not start: {told.stderr.strip()[:200]}")
        return next(word for word in told.stdout.split() if word.startswith("v=")).removeprefix("v=")

    def start(self, folder: Path) -> None:
        """Starts Redis."""
        self._folder, self._port = folder, free_port()
        (folder / "data").mkdir()
        self.restart()

    def restart(self) -> None:
        """Starts Redis on the same port, with the same files."""
        settings = {
            "port": str(self._port),
            "bind": HOST,
            "dir": str(self._folder / "data"),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
        }
        options = [part for name, value in settings.items() for part in (f"--{name}", value)]
        self.server = Program(
            [self._redis, *options], self._folder / "redis.log", environment=self._libraries
        )
        wait_for_port(self.server, self._port)

    def feed(self) -> list[str]:
        """Adds jobs in bulk."""
        return ["node", str(self.home / "peer.mjs"), "feed", str(self._port), VALUE]

    def drain(self) -> list[str]:
        """The worker."""
        return ["node", str(self.home / "peer.mjs"), "drain", str(self._port)]


def _unpack(root: Path) -> None:
    """Unpacks Redis from Debian's packages; nothing is installed, and no right is needed."""
    apt, dpkg = (need(each, "or install redis-server") for each in ("apt-get", "dpkg"))
    packages = root.with_name("redis-packages")
    packages.mkdir(parents=True, exist_ok=True)
    install_with([apt, "--quiet", "download", *_PACKAGES], packages)
    for package in sorted(packages.glob("*.deb")):
        install_with([dpkg, "--extract", str(package), str(root)], packages)
