"""Producers of the sender: translates settings of Kafka's Java client, as in Spark's sink, to confluent-kafka's
(``producer.toml``; login: :mod:`wheel_udf.kafka.settings`).

An option that librdkafka cannot take is refused, with a hint; so nothing is delivered with settings that differ from
the config.

The defaults are those of Kafka's own client (acks=all, idempotence, two minutes of tries, at most a second between two
tries to connect, a key's partition), except ``linger.ms``. Records wait 10 ms for others to join their batch, unless
the sender calls ``hurry``: it does so when nothing more is due, so a single record hardly ever waits, and a burst goes
in large batches. With a ``kafka.linger.ms`` in the config, ``hurry`` has no effect.

``batch.size`` never exceeds half of the topic's own limit: librdkafka does not split a batch that a topic refuses.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from wheel_udf.common.errors import ConfigError
from wheel_udf.common.package_data import toml_of
from wheel_udf.kafka import settings as kafka_settings

if TYPE_CHECKING:  # a config is checked before Spark is loaded
    from wheel_udf.sinks.kafka_sink import KafkaSink

_log = logging.getLogger(__name__)

_TABLES: Final = toml_of(__name__, "producer.toml")
_NAMES: Final = {name: name for name in _TABLES["same"]} | _TABLES["renamed"]
_DEFAULTS: Final[Mapping[str, Any]] = _TABLES["defaults"]
_HURRY_S: Final = 0.001


def settings_of(options: Mapping[str, str]) -> dict[str, Any]:
    """Translates the options of a Kafka sink to settings of confluent-kafka's producer, without ``batch.size``.

    Raises:
        ConfigError: An option cannot be translated.
    """
    given = kafka_settings.client_options(options)
    settings = {**_DEFAULTS, **kafka_settings.login_settings(given)}
    for name, value in given.items():
        if name in _NAMES:
            settings[_NAMES[name]] = value
        elif name not in _TABLES["without_meaning"] and not kafka_settings.is_of_login(name):
            raise kafka_settings.refusal(name)
    settings.setdefault("enable.idempotence", _may_be_idempotent(settings))
    if "reconnect.backoff.max.ms" not in given:
        least_ms, most_ms = (
            int(settings[name]) for name in ("reconnect.backoff.ms", "reconnect.backoff.max.ms")
        )
        settings["reconnect.backoff.max.ms"] = max(least_ms, most_ms)
    return settings


def _may_be_idempotent(settings: Mapping[str, Any]) -> bool:
    """Whether Kafka's own client would be idempotent by default: it is, unless another option forbids it."""
    in_flight = int(settings.get("max.in.flight.requests.per.connection", 5))
    return str(settings["acks"]) in ("all", "-1") and str(settings.get("retries")) != "0" and in_flight <= 5


class Producer:
    """A producer of confluent-kafka (``produce``, ``poll``, ``flush``, ``purge``) with a ``hurry`` method."""

    def __init__(self, producer: Any, *, hurries: bool) -> None:
        # Its own methods: a record costs no further call.
        self.produce, self.poll = producer.produce, producer.poll
        self.flush, self.purge = producer.flush, producer.purge
        self._hurries = hurries

    def hurry(self) -> None:
        """Sends records that wait for others to join their batch; returns when all are acknowledged, or after 1 ms."""
        if self._hurries:
            # librdkafka takes linger.ms for 0 meanwhile. If its thread does not run within that time, the records wait
            # their 10 ms.
            self.flush(_HURRY_S)


def producer_of(sink: KafkaSink, batch_bytes: int) -> Producer:
    """A producer for topics of a sink.

    Raises:
        ConfigError: confluent-kafka refuses a setting.
    """
    from confluent_kafka import KafkaException, Producer as Client

    hurries = not any(name.lower() == "kafka.linger.ms" for name in sink.options)
    try:
        client = Client({**settings_of(sink.options), "batch.size": batch_bytes}, logger=_log)
    except (KafkaException, ValueError, TypeError) as fault:
        what = f"punctual delivery cannot use the options of a Kafka sink ({fault})"
        raise ConfigError(
            what, field="options", hint="compare them with librdkafka's CONFIGURATION.md"
        ) from None
    return Producer(client, hurries=hurries)
