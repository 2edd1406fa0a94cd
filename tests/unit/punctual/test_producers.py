"""Options of Kafka's own client as settings of librdkafka: translated, or refused by name."""

from __future__ import annotations

import logging

import pytest

from wheel_udf.common.errors import ConfigError
from wheel_udf.punctual.producers import Producer, producer_of, settings_of
from wheel_udf.sinks.kafka_sink import KafkaSink

SERVERS = {"kafka.bootstrap.servers": "broker-1:9092"}
LOGIN = {"kafka.security.protocol": "SASL_PLAINTEXT"}
TLS = {"kafka.security.protocol": "SSL"}
USER = 'username="ada" password="wonderland"'
DEFAULTS = {
    "acks": "all",
    "bootstrap.servers": "broker-1:9092",
    "delivery.timeout.ms": 120_000,
    "enable.idempotence": True,
    "linger.ms": 10,
    "message.max.bytes": 1_048_576,
    "partitioner": "murmur2_random",
    "queue.buffering.max.kbytes": 2_147_483_647,
    "queue.buffering.max.messages": 0,
    "reconnect.backoff.max.ms": 1_000,
    "reconnect.backoff.ms": 50,
    "socket.nagle.disable": True,
}


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {}),
        ({"kafka.linger.ms": "20", "Kafka.Client.Id": "me"}, {"linger.ms": "20", "client.id": "me"}),
        ({"kafka.max.request.size": "2000000"}, {"message.max.bytes": "2000000"}),
        ({"kafka.acks": "1"}, {"acks": "1", "enable.idempotence": False}),
        ({"kafka.retries": "0"}, {"retries": "0", "enable.idempotence": False}),
        (
            {"kafka.max.in.flight.requests.per.connection": "9"},
            {"max.in.flight.requests.per.connection": "9", "enable.idempotence": False},
        ),
        (
            {"kafka.reconnect.backoff.ms": "3000"},
            {"reconnect.backoff.ms": "3000", "reconnect.backoff.max.ms": 3_000},
        ),
        ({"kafka.batch.size": "1", "kafka.buffer.memory": "9", "includeHeaders": "true"}, {}),
        # Kafka's own client does not look at a login that its protocol does not have.
        ({"kafka.sasl.jaas.config": "x.OtherModule required;", "kafka.ssl.truststore.location": "/ca.jks"}, {}),
        (
            {
                "kafka.security.protocol": "SASL_SSL",
                "kafka.sasl.mechanism": "SCRAM-SHA-512",
                "kafka.sasl.jaas.config": 'x.ScramLoginModule required username="ada" password="a\\"b\\\\c";',
            },
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "ada",
                "sasl.password": 'a"b\\c',
            },
        ),
        (
            TLS | {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": "/ca.pem", "kafka.ssl.endpoint.identification.algorithm": ""},
            {"security.protocol": "SSL", "ssl.ca.location": "/ca.pem", "ssl.endpoint.identification.algorithm": "none"},
        ),
        (
            TLS | {"kafka.ssl.keystore.type": "pem", "kafka.ssl.keystore.location": "/me.pem", "kafka.ssl.key.password": "x"},
            {"security.protocol": "SSL", "ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem", "ssl.key.password": "x"},
        ),
    ],
)  # fmt: skip
def test_options_become_settings(options: dict[str, str], settings: dict[str, object]) -> None:
    assert settings_of(SERVERS | options) == DEFAULTS | settings


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kafka.acks": "0"},
        {"kafka.retries": "0"},
        {"kafka.max.in.flight.requests.per.connection": "9"},
        {"kafka.reconnect.backoff.ms": "3000"},
        {"kafka.delivery.timeout.ms": "4000", "kafka.request.timeout.ms": "2000"},
    ],
)
def test_options_that_kafkas_own_client_takes_are_no_error_of_the_first_batch_that_hands_over(
    options: dict[str, str],
) -> None:
    from confluent_kafka import Producer

    Producer(
        settings_of({"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.client.id": "me"} | options),
        logger=logging.getLogger("quiet"),
    )


@pytest.mark.parametrize(
    ("options", "field", "rule"),
    [
        ({"kafka.interceptor.classes": "x"}, "options.kafka.interceptor.classes", "both"),
        (TLS | {"kafka.ssl.truststore.location": "/ca.jks"}, "options.kafka.ssl.truststore.location", "PEM"),
        (TLS | {"kafka.ssl.provider": "x"}, "options.kafka.ssl.provider", "both"),
        (LOGIN | {"kafka.sasl.jaas.config": "x.OAuthBearerLoginModule required;"}, "options.kafka.sasl.jaas.config", "PlainLoginModule"),
        (LOGIN | {"kafka.sasl.jaas.config": f'x.ScramLoginModule required {USER} tokenauth="true";'}, "options.kafka.sasl.jaas.config", "PlainLoginModule"),
        (LOGIN, "options.kafka.sasl.jaas.config", "PlainLoginModule"),  # a file that the JVM names has it
    ],
)  # fmt: skip
def test_what_librdkafka_does_not_have_is_refused_by_name(
    options: dict[str, str], field: str, rule: str
) -> None:
    with pytest.raises(ConfigError, match=r"punctual delivery cannot use this option of Kafka") as refused:
        settings_of(SERVERS | options)
    assert refused.value.field == field
    assert rule in (refused.value.rule or "")


def test_a_password_is_not_in_the_message_of_a_refusal() -> None:
    with pytest.raises(ConfigError) as refused:
        settings_of(
            SERVERS
            | LOGIN
            | {"kafka.sasl.jaas.config": 'x.OtherModule required username="a" password="hunter2";'}
        )
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "flushed"), [({}, [0.001]), ({"kafka.linger.ms": "20"}, []), ({"Kafka.Linger.Ms": "1"}, [])]
)
def test_records_do_not_wait_for_others_unless_the_config_says_so(
    options: dict[str, str], flushed: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[float] = []

    class Client:
        """In place of confluent-kafka's."""

        produce = poll = purge = None

        def __init__(self, settings: dict[str, object], logger: logging.Logger) -> None:
            pass

        def flush(self, timeout: float) -> int:
            found.append(timeout)
            return 0

    monkeypatch.setattr("confluent_kafka.Producer", Client)
    producer_of(KafkaSink(SERVERS | options), 262_144).hurry()
    assert found == flushed


def test_a_client_that_hurries_does_not_wait_for_its_batch_to_fill() -> None:
    from confluent_kafka import Producer as Client

    acknowledged: list[object] = []
    # librdkafka brings a broker of its own for tests. Records would wait for a minute.
    client = Producer(Client({"test.mock.num.brokers": 1, "linger.ms": 60_000}), hurries=True)
    client.produce("out", key=b"k", value=b"v", on_delivery=lambda fault, _: acknowledged.append(fault))
    tries = 0
    while not acknowledged and tries < 10_000:  # each takes a millisecond; the first ones connect
        client.hurry()
        tries += 1
    assert acknowledged == [None]
