"""Settings of the local Kafka broker, and errors read from its log.

Used by :mod:`wheel_udf.testing.broker`, which runs the broker. Pure functions, except for :func:`write_settings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

HOST = "127.0.0.1"
STARTED = "Kafka Server started"
"""The line of the broker's log that reports that it is up."""

_LAST_LINES = 4
_LONGEST_LINE = 200
_LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
# Logs when the broker is up.
logger.raft.name = kafka.server.KafkaRaftServer
logger.raft.level = info
"""


def broker_settings(folder: Path, ports: tuple[int, int], properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the broker's settings.

    Args:
        folder: Folder of the broker; the data go below it.
        ports: Ports of the listeners CLIENT and CONTROLLER.
        properties: Settings that override these.
    """
    client, controller = ports
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listeners": f"CLIENT://{HOST}:{client},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"CLIENT://{HOST}:{client}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder / "data"),
        # Writing to a missing topic is an error, as on production clusters.
        "auto.create.topics.enable": "false",
        # One node: internal topics have one replica, and few partitions make a fast start.
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        # A consumer group of a test has one member; there are no others to wait for.
        "group.initial.rebalance.delay.ms": "0",
        # The default of 128 MB is a quarter of the heap.
        "log.cleaner.dedupe.buffer.size": str(8 * 2**20),
        "num.network.threads": "2",
        "num.io.threads": "2",
        **properties,
    }


def write_settings(folder: Path, ports: tuple[int, int], properties: Mapping[str, str]) -> Path:
    """Writes ``server.properties`` (for its owner only: passwords) and the log settings; returns the former."""
    settings = folder / "server.properties"
    lines = [f"{key}={escaped(value)}\n" for key, value in broker_settings(folder, ports, properties).items()]
    settings.touch(mode=0o600)
    settings.write_text("".join(lines), encoding="utf-8")
    (folder / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")
    return settings


def escaped(value: str) -> str:
    """Escapes a value for the Java properties format: backslashes and line breaks."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def is_port_taken(log: str) -> bool:
    """Returns whether a broker's log reports that one of its ports is in use."""
    return "Address already in use" in log or "java.net.BindException" in log


def last_lines(log: str) -> str:
    """Returns the last lines of a broker's log without stack frames, each of bounded length."""
    lines = [line.strip() for line in log.splitlines()]
    telling = [line[:_LONGEST_LINE] for line in lines if line and not line.startswith(("at ", "..."))]
    return " | ".join(telling[-_LAST_LINES:]) or "the log is empty"
