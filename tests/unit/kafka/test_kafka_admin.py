"""Clusters that do not answer, and those that are not asked. With a broker: tests/kafka/job/test_source.py,
tests/kafka/job/test_secrets.py.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator

import pytest

from wheel_udf.common.errors import ConfigError, SinkError
from wheel_udf.kafka import admin as kafka_admin
from wheel_udf.kafka.admin import TopicInfo, UncheckedError

AWAY = {"kafka.bootstrap.servers": "127.0.0.1:1"}
SASL = AWAY | {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}


@pytest.fixture
def unwilling() -> Iterator[str]:
    """A server for TLS with which no client can agree: it has no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            while True:
                try:
                    context.wrap_socket(server.accept()[0], server_side=True)
                except ssl.SSLError:
                    continue
                except OSError:  # closed
                    return

        thread = threading.Thread(target=refuse)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_cluster_that_is_not_there_is_told_in_seconds_with_the_reason_and_without_secrets() -> None:
    options = AWAY | {"kafka.sasl.jaas.config": 'x password="canary";'}
    with pytest.raises(
        SinkError, match=r"the Kafka cluster does not answer \(_TRANSPORT: .*Connection refused"
    ) as caught:
        kafka_admin.describe(options, ["t"], timeout_ms=500)
    assert "kafka.bootstrap.servers = '127.0.0.1:1'" in str(caught.value)
    assert "canary" not in str(caught.value)
    assert kafka_admin.open_clients == {}


def test_a_file_of_certificates_that_is_not_there_is_told() -> None:
    store = {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": "/none/ca.pem"}
    what = r"no client can be made from the options of Kafka \(_INVALID_ARG: .*ssl\.ca\.location failed"
    with pytest.raises(SinkError, match=what):
        kafka_admin.topic_names(AWAY | {"kafka.security.protocol": "SSL"} | store)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (SASL, "kafka.sasl.jaas.config"),
        (SASL | {"kafka.sasl.jaas.config": "x.IAMLoginModule required;"}, "kafka.sasl.jaas.config"),
        (AWAY | {"kafka.security.protocol": "ssl", "kafka.ssl.truststore.location": "/x.jks"}, "ssl.truststore.type: PEM"),
        (AWAY | {"kafka.security.protocol": "SSL", "kafka.ssl.engine.factory.class": "x"}, "kafka.ssl.engine.factory.class"),
    ],
)  # fmt: skip
def test_a_cluster_that_only_sparks_client_can_log_in_to_is_not_asked_and_the_log_says_so_once(
    options: dict[str, str], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    kafka_admin.close_all()
    assert kafka_admin.describe(options, ["a", "b"]) == {"a": TopicInfo(1), "b": TopicInfo(1)}
    assert kafka_admin.missing_topics(options, ["a"]) == []
    assert kafka_admin.topic_names(options) == []
    with pytest.raises(UncheckedError):
        kafka_admin.offsets(options, ["a"])
    (line,) = caplog.messages
    assert "librdkafka cannot ask the Kafka cluster 127.0.0.1:1" in line
    assert "its topics are neither checked nor created" in line
    assert why in line


def test_a_cluster_whose_certificate_only_the_jvm_may_trust_is_not_asked(
    unwilling: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"kafka.bootstrap.servers": unwilling, "kafka.security.protocol": "SSL"}
    assert kafka_admin.describe(options, ["a"]) == {"a": TopicInfo(partitions=1)}
    (line,) = caplog.messages
    assert "(_SSL: " in line
    assert kafka_admin.open_clients == {}


def test_without_confluent_kafka_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wheel_udf.common.extras.find_spec", lambda _: None)
    with pytest.raises(
        ConfigError, match=r"confluent_kafka is not installed.*pip install 'wheel-udf\[kafka\]'"
    ):
        kafka_admin.describe(AWAY, ["t"])
