"""Producers of the sender: settings of Kafka's own client, as Spark's sink has them, as settings of confluent-kafka
(librdkafka).

::

    kafka.bootstrap.servers   bootstrap.servers          kafka.max.request.size            message.max.bytes
    kafka.linger.ms           linger.ms                  kafka.sasl.jaas.config            sasl.username, sasl.password (PLAIN, SCRAM)
    kafka.acks                acks                       kafka.ssl.truststore.location     ssl.ca.location (type PEM)

An option that librdkafka cannot take is refused, with a hint; so nothing is delivered with other settings than the
config says.

The defaults are those of Kafka's own client (acks=all, idempotence, two minutes of tries, at most a second between two
tries to connect, a key's partition), except ``linger.ms``. Records wait 10 ms for others to come into their batch,
unless the sender hurries: it does so when it has nothing more that is due, so what comes alone hardly ever waits, and
a burst goes in large batches. With a ``kafka.linger.ms`` in the config, nothing hurries. Measured, 100,000 records due
at one instant, with the broker on the same 2 cores: out after 1.54, 0.93, 0.79 and 0.84 s; with 1 ms and no hurry
2.35, 1.25, 0.82 and 1.02 s.

``batch.size`` never exceeds half of the topic's own limit: librdkafka does not split a batch that a topic refuses.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from wheel_udf.common.errors import ConfigError
from wheel_udf.common.extras import missing_package

if TYPE_CHECKING:  # a config is checked before Spark is loaded
    from wheel_udf.delivery.kafka_sink import KafkaSink
    from wheel_udf.delivery.sender import Producer

_log = logging.getLogger(__name__)

_PREFIX: Final = "kafka."
_LARGEST_BATCH: Final = 262_144

_SAME: Final = frozenset(
    {
        "acks", "bootstrap.servers", "client.id", "compression.type", "connections.max.idle.ms", "delivery.timeout.ms",
        "enable.idempotence", "linger.ms", "max.in.flight.requests.per.connection", "metadata.max.age.ms",
        "reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.timeout.ms", "retries", "retry.backoff.max.ms",
        "retry.backoff.ms", "sasl.kerberos.service.name", "sasl.mechanism", "security.protocol", "ssl.key.password",
    }
)  # fmt: skip
"""Options of the same name and meaning."""

_RENAMED: Final = {
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
_WITHOUT_MEANING: Final = frozenset(
    {"batch.size", "buffer.memory", "max.block.ms", "ssl.keystore.type", "ssl.truststore.type"}
)
"""Of the memory of Kafka's own client; the sender has bounds of its own. The types are looked at with their stores."""

_DEFAULTS: Final[Mapping[str, Any]] = {
    "acks": "all",
    "delivery.timeout.ms": 120_000,
    "linger.ms": 10,
    "message.max.bytes": 1_048_576,
    "partitioner": "murmur2_random",
    "queue.buffering.max.kbytes": 2_147_483_647,
    "queue.buffering.max.messages": 0,
    "reconnect.backoff.max.ms": 1_000,
    "reconnect.backoff.ms": 50,
    "socket.nagle.disable": True,
}
_HURRY_S: Final = 0.001
_LOGIN: Final = re.compile(r"(Plain|Scram)LoginModule\s+required\b")
_QUOTED: Final = r'{name}\s*=\s*"((?:[^"\\]|\\.)*)"'


def settings_of(options: Mapping[str, str]) -> dict[str, Any]:
    """Translates the options of a Kafka sink.

    Args:
        options: As :attr:`~wheel_udf.delivery.kafka_sink.KafkaSink.options`.

    Returns:
        Settings of confluent-kafka's producer, without ``batch.size``.

    Raises:
        ConfigError: An option cannot be translated.
    """
    given = {
        name.lower().removeprefix(_PREFIX): value
        for name, value in options.items()
        if name.lower().startswith(_PREFIX)
    }
    settings: dict[str, Any] = dict(_DEFAULTS)
    for name, value in given.items():
        settings |= _setting(name, value, given)
    settings.setdefault("enable.idempotence", _may_be_idempotent(settings))
    if "reconnect.backoff.max.ms" not in given:
        least_ms, most_ms = (
            int(settings[name]) for name in ("reconnect.backoff.ms", "reconnect.backoff.max.ms")
        )
        settings["reconnect.backoff.max.ms"] = max(least_ms, most_ms)
    return settings


def _may_be_idempotent(settings: Mapping[str, Any]) -> bool:
    """Whether Kafka's own client would be idempotent without being told: it is, unless another option forbids it."""
    in_flight = int(settings.get("max.in.flight.requests.per.connection", 5))
    return str(settings["acks"]) in ("all", "-1") and str(settings.get("retries")) != "0" and in_flight <= 5


def _setting(name: str, value: str, given: Mapping[str, str]) -> dict[str, Any]:
    if name in _SAME:
        return {name: value}
    if name in _RENAMED:
        return {_RENAMED[name]: value}
    if name in _WITHOUT_MEANING:
        return {}
    if name == "ssl.endpoint.identification.algorithm":
        return {name: value or "none"}
    if name == "sasl.jaas.config":
        return _login(value)
    if name in ("ssl.truststore.location", "ssl.keystore.location"):
        store = name.removesuffix(".location")
        if given.get(f"{store}.type", "").upper() != "PEM":
            raise _refusal(
                name, f"{store}.type: PEM", f"convert the store to PEM, and set {_PREFIX}{store}.type: PEM"
            )
        own = "ssl.ca.location" if "trust" in name else ("ssl.certificate.location", "ssl.key.location")
        return dict.fromkeys((own,) if isinstance(own, str) else own, value)
    raise _refusal(
        name, "an option that both Kafka's client and librdkafka have", "leave it out, or punctual off"
    )


def _login(text: str) -> dict[str, str]:
    found = {name: re.search(_QUOTED.format(name=name), text) for name in ("username", "password")}
    if not _LOGIN.search(text) or not all(found.values()):
        hint = "other logins have no counterpart in librdkafka: leave punctual off"
        raise _refusal(
            "sasl.jaas.config",
            'PlainLoginModule or ScramLoginModule with username="..." password="..."',
            hint,
        )
    return {
        f"sasl.{name}": re.sub(r"\\(.)", r"\1", each.group(1))
        for name, each in found.items()
        if each is not None
    }


def _refusal(name: str, rule: str, hint: str) -> ConfigError:
    what = "punctual delivery cannot use this option of Kafka"
    return ConfigError(what, field=f"options.{_PREFIX}{name}", rule=rule, hint=hint)


class Producers:
    """The producers of a sender: one for each cluster, and one more for topics with a small limit."""

    def __init__(self) -> None:
        self._made: dict[tuple[KafkaSink, int], Producer] = {}

    def of(self, sink: KafkaSink, limit: int) -> Producer:
        """The producer for topics of a sink.

        Args:
            sink: The sink.
            limit: Bytes of the largest record that they take.

        Raises:
            ConfigError: confluent-kafka is not installed, or refuses a setting.
        """
        batch_bytes = min(_LARGEST_BATCH, max(1, limit // 2))
        if (sink, batch_bytes) not in self._made:
            settings = {**settings_of(sink.options), "batch.size": batch_bytes}
            hurries = not any(name.lower() == "kafka.linger.ms" for name in sink.options)
            self._made[sink, batch_bytes] = _Client(_made(settings), hurries=hurries)
        return self._made[sink, batch_bytes]


class _Client:
    """A producer of confluent-kafka that can be told to hurry."""

    def __init__(self, producer: Any, *, hurries: bool) -> None:
        # Its own methods: a record costs no further call.
        self.produce, self.poll = producer.produce, producer.poll
        self.flush, self.purge = producer.flush, producer.purge
        self._hurries = hurries

    def hurry(self) -> None:
        """Sends what waits for others to come into its batch; returns when all is acknowledged, or after 1 ms."""
        if self._hurries:
            # librdkafka takes linger.ms for 0 meanwhile. If its thread does not run within that time, the records wait
            # their 10 ms.
            self.flush(_HURRY_S)


def require_client() -> None:
    """Raises ConfigError if confluent-kafka is not installed."""
    if (fault := missing_package("confluent_kafka", "kafka", "delivery.punctual")) is not None:
        raise fault


def _made(settings: dict[str, Any]) -> Any:
    require_client()
    from confluent_kafka import KafkaException, Producer as KafkaProducer

    try:
        return KafkaProducer(settings, logger=_log)
    except (KafkaException, ValueError, TypeError) as fault:
        what = f"punctual delivery cannot use the options of a Kafka sink ({fault})"
        raise ConfigError(
            what, field="options", hint="compare them with librdkafka's CONFIGURATION.md"
        ) from None
