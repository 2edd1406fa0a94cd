"""The pure parts of the local broker: its settings, its ports, the faults in its log."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from wheel_udf.common.errors import SessionError
from wheel_udf.testing import broker as local_kafka
from wheel_udf.testing.broker import EXTERNAL_VARIABLE, LocalKafka
from wheel_udf.testing.settings import (
    escaped,
    is_port_taken,
    last_lines,
    write_settings,
)

LOG = """\
2026-01-01T10:00:00,000 ERROR Exiting Kafka due to fatal exception (kafka.Kafka$)
org.apache.kafka.common.KafkaException: Socket server failed to bind to 127.0.0.1:4711: Address already in use.
\tat kafka.network.Acceptor.openServerSocket(SocketServer.scala:742)
Caused by: java.net.BindException: Address already in use
\t... 12 more
"""


def settings_of(folder: Path, properties: dict[str, str]) -> dict[str, str]:
    """The settings as Java reads them: of one key, the last line counts."""
    lines = write_settings(folder, (4711, 4712), properties).read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def test_nothing_listens_beyond_the_loopback_and_topics_are_not_made_by_writing(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, {})

    assert settings["listeners"] == "CLIENT://127.0.0.1:4711,CONTROLLER://127.0.0.1:4712"
    assert settings["advertised.listeners"] == "CLIENT://127.0.0.1:4711"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:4712"
    assert settings["log.dirs"] == f"{tmp_path}/data"
    assert settings["auto.create.topics.enable"] == "false"


def test_own_properties_win(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, {"message.max.bytes": "2000", "num.io.threads": "1"})

    assert (settings["message.max.bytes"], settings["num.io.threads"]) == ("2000", "1")


def test_settings_with_passwords_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    path = write_settings(
        tmp_path, (1, 2), {"listener.name.client.plain.sasl.jaas.config": 'x password="a\\b"\n;'}
    )

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert 'listener.name.client.plain.sasl.jaas.config=x password="a\\\\b"\\n;\n' in path.read_text(
        encoding="utf-8"
    )
    assert (tmp_path / "log4j2.properties").is_file()


@pytest.mark.parametrize(
    ("value", "text"), [("plain", "plain"), ("a\\b", "a\\\\b"), ("a\nb", "a\\nb"), ("", "")]
)
def test_values_in_the_form_of_java_properties(value: str, text: str) -> None:
    assert escaped(value) == text


def test_a_log_tells_its_reason_without_stack_frames() -> None:
    assert last_lines(LOG) == (
        "2026-01-01T10:00:00,000 ERROR Exiting Kafka due to fatal exception (kafka.Kafka$) | "
        "org.apache.kafka.common.KafkaException: Socket server failed to bind to 127.0.0.1:4711: Address already in use. | "
        "Caused by: java.net.BindException: Address already in use"
    )
    assert last_lines("\n") == "the log is empty"
    assert last_lines("x" * 1_000) == "x" * 200


@pytest.mark.parametrize(("log", "taken"), [(LOG, True), ("ERROR Invalid value", False), ("", False)])
def test_a_port_that_is_taken_is_told_from_other_faults(log: str, taken: bool) -> None:
    assert is_port_taken(log) is taken


def test_free_ports_are_two() -> None:
    one, other = local_kafka.free_ports()

    assert 1024 <= one <= 65535
    assert 1024 <= other <= 65535
    assert one != other


def test_a_broker_that_was_never_started_has_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(EXTERNAL_VARIABLE, raising=False)
    broker = LocalKafka()

    with pytest.raises(SessionError, match="the broker has not been started"):
        _ = broker.bootstrap
    assert broker.pid is None
    broker.stop()  # harmless
    broker.kill()


def test_an_external_broker_is_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXTERNAL_VARIABLE, " kafka-1:9092,kafka-2:9092 ")

    assert LocalKafka().start().bootstrap == "kafka-1:9092,kafka-2:9092"
    with pytest.raises(SessionError, match="the broker has not been started"):
        _ = LocalKafka(properties={"num.io.threads": "1"}).bootstrap


def test_java_that_is_missing_is_told_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(EXTERNAL_VARIABLE, raising=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    folder = tmp_path / "broker"

    with pytest.raises(SessionError, match="there is no Java where JAVA_HOME points"):
        LocalKafka(folder).start()
    assert not folder.exists()


def test_jars_that_are_missing_are_fetched_and_a_failure_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []

    def resolve(configurations: list[str]) -> None:
        asked.extend(configurations)
        raise SessionError("the JVM jars cannot be downloaded", hint="check the network")

    monkeypatch.delenv(EXTERNAL_VARIABLE, raising=False)
    monkeypatch.setattr(local_kafka.java, "find_java", lambda: Path("java"))
    monkeypatch.setattr(local_kafka.jars, "jars_folder", lambda _: tmp_path / "no jars")
    monkeypatch.setattr(local_kafka.jars, "resolve", resolve)

    with pytest.raises(SessionError, match="cannot be downloaded: hint: check the network"):
        LocalKafka(tmp_path / "broker").start()
    assert asked == ["broker"]
