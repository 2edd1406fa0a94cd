"""RocketMQ 5: timer messages. Name server and broker are started from their Maven artifacts, the ends are
``rocketmq/RocketMq.java``.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from tests.bench.peers.peer import (
    HOST,
    VALUE,
    Peer,
    Program,
    Promise,
    free_port,
    java_classes,
    need,
    version_of_jar,
    wait_for_port,
)

_HEAP = "-Xmx1g"
# As in RocketMQ's own scripts for Java 17.
_OPENINGS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
)


class RocketMq(Peer):
    """One name server and one broker without replicas."""

    name = "rocketmq"
    title = "RocketMQ"
    promise: ClassVar[Promise] = Promise(
        delivery="at least once (acknowledged by the consumer)",
        order="none",
        granularity="1 s by default; here its finest, 100 ms",
        durability="written to a mapped file, flushed each 0.5 s (its default, ASYNC_FLUSH)",
    )

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._java = ""
        self._class_path = ""
        self._folder = home
        self._names_port = 0
        self._port = 0
        self._names: Program | None = None
        self._broker: Program | None = None

    def install(self) -> str:
        """Gets the jars and compiles both ends."""
        self._java = need("java", "17 or newer")
        self._class_path = java_classes("rocketmq", self.home)
        return f"RocketMQ {version_of_jar(self.home, 'rocketmq-broker')}"

    def start(self, folder: Path) -> None:
        """Starts the name server and the broker."""
        self._folder, self._names_port, self._port = folder, free_port(), free_port()
        names = {"listenPort": str(self._names_port), "bindAddress": HOST}
        _write(folder / "names.properties", names)
        store = folder / "store"
        broker = {
            "brokerClusterName": "bench",
            "brokerName": "bench",
            "brokerId": "0",
            "namesrvAddr": self._names_address,
            "brokerIP1": HOST,
            "bindAddress": HOST,
            "listenPort": str(self._port),
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            "mappedFileSizeCommitLog": str(256 << 20),
            "autoCreateTopicEnable": "true",
            "timerWheelEnable": "true",
            "timerPrecisionMs": "100",
            # By default a send that waits for 200 ms is refused; on a busy machine that is most of them.
            "waitTimeMillsInSendQueue": "5000",
            # By default the broker refuses to work on a disk that is 75 % full.
            "diskMaxUsedSpaceRatio": "95",
        }
        _write(folder / "broker.properties", broker)
        self._names = self._server("namesrv.NamesrvStartup", "names")
        wait_for_port(self._names, self._names_port)
        self.restart()

    def restart(self) -> None:
        """Starts the broker on the same port, with the same files."""
        self._broker = self._server("broker.BrokerStartup", "broker")
        wait_for_port(self._broker, self._port)

    @property
    def _names_address(self) -> str:
        return f"{HOST}:{self._names_port}"

    def _server(self, main: str, name: str) -> Program:
        settings = str(self._folder / f"{name}.properties")
        command = [*self._command(), f"org.apache.rocketmq.{main}", "-c", settings]
        return Program(command, self._folder / f"{name}.log")

    def _command(self) -> list[str]:
        homes = [f"-D{name}={self._folder}" for name in ("user.home", "rocketmq.home.dir")]
        return [self._java, _HEAP, *_OPENINGS, *homes, "-cp", self._class_path]

    def stop(self) -> None:
        """Stops both."""
        for each in (self._broker, self._names):
            if each is not None:
                each.stop()

    def kill(self) -> None:
        """Kills the broker."""
        assert self._broker is not None, "started"
        self._broker.kill()

    def processes(self) -> list[int]:
        """Both."""
        assert self._names is not None, "started"
        assert self._broker is not None, "started"
        return [self._names.pid, self._broker.pid]

    def feed(self) -> list[str]:
        """A producer that waits for the broker's confirmations."""
        return [*self._command(), "RocketMq", "feed", self._names_address, VALUE]

    def drain(self) -> list[str]:
        """A push consumer."""
        return [*self._command(), "RocketMq", "drain", self._names_address]


def _write(file: Path, settings: dict[str, str]) -> None:
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
