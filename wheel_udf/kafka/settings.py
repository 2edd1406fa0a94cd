"""Settings of librdkafka (confluent-kafka) for options of Kafka's own client: the cluster, and how to log in there.

::

    kafka.bootstrap.servers        bootstrap.servers
    kafka.security.protocol        security.protocol
    kafka.sasl.jaas.config         sasl.username, sasl.password (PLAIN, SCRAM)
    kafka.ssl.truststore.location  ssl.ca.location (type PEM)

Both clients beside Spark's use them: the one that looks at topics (:mod:`wheel_udf.kafka.admin`) and that of
punctual delivery.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from wheel_udf.common.errors import ConfigError

_PREFIX: Final = "kafka."
_SAME: Final = frozenset(
    {
        "bootstrap.servers", "client.id", "sasl.kerberos.service.name", "sasl.mechanism", "security.protocol",
        "ssl.key.password",
    }
)  # fmt: skip
"""Options of the same name and meaning."""

_RENAMED: Final = {
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
_STORES: Final = {
    "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
    "ssl.truststore.location": ("ssl.ca.location",),
}
_LOGIN: Final = re.compile(r"(Plain|Scram)LoginModule\s+required\b(?!.*\btokenauth\b)", re.DOTALL)
_QUOTED: Final = r'{name}\s*=\s*"((?:[^"\\]|\\.)*)"'


def client_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options of Kafka's client among those of Spark's connector, in lower case and without ``kafka.``."""
    named = {name.lower(): value for name, value in options.items()}
    return {name.removeprefix(_PREFIX): value for name, value in named.items() if name.startswith(_PREFIX)}


def is_of_login(name: str) -> bool:
    """Whether :func:`login_settings` takes an option of :func:`client_options` into account."""
    return name in _SAME or name.startswith(("sasl.", "ssl."))


def login_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Translates what a client needs to reach its cluster and to log in.

    Args:
        given: As :func:`client_options` returns them; those of other subjects are left out, and so are those of SASL
            and TLS that ``security.protocol`` does not ask for.

    Raises:
        ConfigError: An option has no counterpart.
    """
    protocol = given.get("security.protocol", "").upper()
    unused = tuple(f"{kind.lower()}." for kind in ("SASL", "SSL") if kind not in protocol.split("_"))
    if "sasl." not in unused:
        # Without this option, Kafka's client reads a file that a property of the JVM names.
        given = {"sasl.jaas.config": "", **given}
    settings: dict[str, str] = {}
    for name, value in given.items():
        if is_of_login(name) and not name.startswith(unused):
            settings |= _setting(name, value, given)
    return settings


def _setting(name: str, value: str, given: Mapping[str, str]) -> dict[str, str]:
    if name in _SAME:
        return {name: value}
    if name in _RENAMED:
        return {_RENAMED[name]: value}
    if name in ("ssl.keystore.type", "ssl.truststore.type"):
        return {}  # looked at with their stores
    if name == "ssl.endpoint.identification.algorithm":
        return {name: value or "none"}
    if name == "sasl.jaas.config":
        return _login(value)
    if name in _STORES:
        kind = name.replace(".location", ".type")
        if given.get(kind, "").upper() != "PEM":
            raise refusal(name, f"{kind}: PEM", f"convert the store to PEM, and set {_PREFIX}{kind}: PEM")
        return dict.fromkeys(_STORES[name], value)
    raise refusal(name)


def _login(text: str) -> dict[str, str]:
    found = {name: re.search(_QUOTED.format(name=name), text) for name in ("username", "password")}
    if not _LOGIN.search(text) or not all(found.values()):
        rule = 'PlainLoginModule or ScramLoginModule with username="..." password="..."'
        raise refusal("sasl.jaas.config", rule, "other logins have no counterpart: leave punctual off")
    return {
        f"sasl.{name}": re.sub(r"\\(.)", r"\1", each.group(1))
        for name, each in found.items()
        if each is not None
    }


def refusal(
    name: str,
    rule: str = "an option that both Kafka's client and librdkafka have",
    hint: str = "leave it out, or punctual off",
) -> ConfigError:
    """The error for an option without a counterpart: punctual delivery raises it, other uses skip the topics."""
    what = "punctual delivery cannot use this option of Kafka"
    return ConfigError(what, field=f"options.{_PREFIX}{name}", rule=rule, hint=hint)
