"""Settings of the local Kafka broker, and errors read from its log.

Used by :mod:`wheel_udf.testing.broker`, which runs the broker. Pure functions, except for :func:`write_settings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template

from wheel_udf.common.package_data import content_of

HOST = "127.0.0.1"
STARTED = "Kafka Server started"
"""The line of the broker's log that reports that it is up."""

_LAST_LINES = 4
_LONGEST_LINE = 200


def write_settings(folder: Path, ports: tuple[int, int], properties: Mapping[str, str]) -> Path:
    """Writes ``server.properties`` (for its owner only: passwords) and the log settings; returns the former.

    Args:
        folder: Folder of the broker; the data go below it.
        ports: Ports of the listeners CLIENT and CONTROLLER.
        properties: Settings that override those of this package: of one key, the last line counts.
    """
    client, controller = ports
    given = Template(content_of(__name__, "server.properties").decode()).substitute(
        host=HOST, client=client, controller=controller, folder=escaped(str(folder))
    )
    settings = folder / "server.properties"
    settings.touch(mode=0o600)
    more = (f"{key}={escaped(value)}\n" for key, value in properties.items())
    settings.write_text("".join([given, *more]), encoding="utf-8")
    (folder / "log4j2.properties").write_bytes(content_of(__name__, "log4j2.properties"))
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
