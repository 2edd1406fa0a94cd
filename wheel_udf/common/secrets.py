"""Secrets of the config: fills them in from variables and files, and hides them in all output.

In any text of the config, and in ``--set``, ``${env:NAME}`` stands for an environment variable and ``${file:/path}``
for the text of a file (without the line break at its end); :func:`resolve` fills them in when the config is read. The
process remembers each of these values, and each value of a setting whose name marks it as a secret. :func:`hide`
replaces them in any text::

    kafka.sasl.jaas.config: ...PlainLoginModule required username="wheel" password="${env:KAFKA_PASSWORD}";
    error: ... Login failed for wheel with 's3cr3t'      ->      error: ... Login failed for wheel with '***'

All output of the process passes through :func:`hide`: error lines and stack traces, progress, reasons of rejects.
Names of secrets contain password, secret, token, jaas, credential, authorization, api-key or cookie, or are the
``key`` of a keystore. Of a JAAS text the quoted values of such names are remembered one by one, since Kafka may quote
one alone.

Caveats: values of fewer than 4 characters are not searched for in running text, or every "1" of a progress line
would be replaced. A value from ``${...}`` is hidden even if it is not secret. The logs of Spark's JVM do not pass
through here; neither Spark nor Kafka writes these values there at the level of ``conf/log4j2.properties``.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from wheel_udf.common.errors import ConfigError

HIDDEN: Final = "***"
SHORTEST: Final = 4
"""Values of fewer characters are not searched for in running text."""

_NAME: Final = re.compile(
    r"password|secret|token|jaas|credential|keystore\.key$|authorization|api[-_]?key|cookie", re.IGNORECASE
)
_PART: Final = re.compile(
    r"""(?<![\w.-])([\w.-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))"""
)
_PLACEHOLDER: Final = re.compile(r"\$\{(env|file):([^}]*)\}")

_known: set[str] = set()
_known_lock: Final = threading.Lock()


def is_secret_name(name: object) -> bool:
    """Whether the name of a setting marks its value as a secret."""
    return isinstance(name, str) and _NAME.search(name) is not None


def hide_from_now_on(text: str) -> None:
    """Remembers a text as a secret, in all forms in which it may be quoted."""
    if len(text.strip()) < SHORTEST:
        return
    forms = {text, text.strip(), repr(text)[1:-1], json.dumps(text)[1:-1], " ".join(text.split())}
    with _known_lock:
        _known.update(forms)


def in_short(fault: BaseException) -> str:
    """The first line of an error, without secrets: those of some libraries go on for pages, with what a server said."""
    return hide(str(fault).strip().partition("\n")[0]) or type(fault).__name__


@contextmanager
def forget_at_end() -> Iterator[None]:
    """What is first seen as a secret inside is forgotten at the end."""
    before = set(_known)
    try:
        yield
    finally:
        with _known_lock:
            _known.intersection_update(before)


def remember_options(options: Mapping[str, Any]) -> None:
    """Remembers the values of all options whose names mark them as secrets."""
    for name, value in options.items():
        if is_secret_name(name) and isinstance(value, str | int | float):
            _remember_with_parts(str(value))


def _remember_with_parts(text: str) -> None:
    hide_from_now_on(text)
    for name, *values in _PART.findall(text):
        if is_secret_name(name):
            hide_from_now_on("".join(values))


def hide(text: str) -> str:
    """The text with ``***`` in place of all secrets that this process remembers."""
    with _known_lock:
        secrets = sorted(_known, key=len, reverse=True)  # a secret may hold another
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def redacted(value: Any) -> Any:
    """A value of the config for display: secrets, and all values under a secret's name, are ``***``."""
    if isinstance(value, Mapping):
        return {key: HIDDEN if is_secret_name(key) else redacted(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(inner) for inner in value]
    return hide(value) if isinstance(value, str) else value


def resolve(settings: Any) -> tuple[Any, dict[tuple[str, ...], ConfigError]]:
    """Fills in variables and files for ``${...}``, and remembers all secrets of a config.

    Args:
        settings: A mapping of the config, of texts, numbers, lists and mappings; not modified.

    Returns:
        The mapping with the values filled in, and the error of each text (by its path of keys) that could not be
        filled in; such a text is unchanged.
    """
    faults: dict[tuple[str, ...], ConfigError] = {}

    def walk(value: Any, path: tuple[str, ...], *, secret: bool) -> Any:
        if isinstance(value, dict):
            return {
                key: walk(inner, (*path, str(key)), secret=secret or is_secret_name(key))
                for key, inner in value.items()
            }
        if isinstance(value, list):
            return [
                walk(inner, (*path, str(position)), secret=secret) for position, inner in enumerate(value)
            ]
        if isinstance(value, str):
            value, reason = _filled(value)
            if reason is not None:
                faults[path] = ConfigError(reason, field=_shown(path))
        if secret and isinstance(value, str | int | float):
            _remember_with_parts(str(value))
        return value

    return walk(settings, (), secret=False), faults


def _filled(text: str) -> tuple[str, str | None]:
    """The text with its placeholders filled, or as it was and why that cannot be done."""
    reasons: list[str] = []

    def fill(found: re.Match[str]) -> str:
        kind, name = found.groups()
        value = os.environ.get(name) if kind == "env" else _file_text(name)
        if value is None:
            what = "there is no environment variable" if kind == "env" else "there is no readable text file"
            reasons.append(f"{what} {name or '(no name)'}")
            return found[0]
        hide_from_now_on(value)
        return value

    filled = _PLACEHOLDER.sub(fill, text)
    return (text, "; ".join(reasons)) if reasons else (filled, None)


def _file_text(name: str) -> str | None:
    try:
        return Path(name).read_text(encoding="utf-8").rstrip("\r\n") if name else None
    except (OSError, ValueError):
        return None


def _shown(path: tuple[str, ...]) -> str:
    return ".".join(f'"{part}"' if "." in part else part for part in path)
