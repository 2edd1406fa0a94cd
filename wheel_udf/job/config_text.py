"""The text of a config file as a mapping: YAML, and ``--set``. Loads no pydantic, so that a question to a running job
does not wait for it.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from wheel_udf.common.errors import ConfigError


def text_of(path: Path) -> str:
    """The text of a config file.

    Raises:
        ConfigError: There is none, or it is not text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError("there is no such config file", field=str(path)) from None
    except UnicodeDecodeError:
        raise ConfigError("the config file is not text", field=str(path), rule="UTF-8") from None
    except OSError as error:
        raise ConfigError(f"the config file cannot be read ({error.strerror})", field=str(path)) from None


class _Loader(yaml.SafeLoader):
    """Safe YAML: instants stay texts, a duplicate key is an error, and so is all that PyYAML itself stumbles over."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002  # as PyYAML's
        try:
            return super().construct_object(node, deep=deep)
        except (
            ValueError,
            LookupError,
            AttributeError,
        ):  # 0x_, a number of 5000 digits, !!bool of a word, !!int ""
            problem = f"not a value of the type {node.tag.rpartition(':')[2]}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None


# A copy without timestamps: an instant is text here, so that 2013-01-01 and 2013-01-01T00:00Z are read by one rule.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _construct_mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    seen = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, Hashable):
            raise yaml.MarkedYAMLError(problem="a key must be a text", problem_mark=key_node.start_mark)
        if key in seen:
            raise yaml.MarkedYAMLError(
                problem=f"the key {key!r} occurs twice", problem_mark=key_node.start_mark
            )
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)


def _yaml(text: str) -> Any:
    """The value of a YAML text; raises YAMLError for other texts."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506  (a SafeLoader)
    except RecursionError:
        raise yaml.MarkedYAMLError(problem="nested too deeply") from None


def mapping_of_text(text: str, origin: str) -> dict[str, Any]:
    """The settings in the text of a config; `origin` names it in errors."""
    try:
        settings = _yaml(text)
    except yaml.YAMLError as error:
        # Only the problem and its place: the line itself may hold a password.
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "unreadable"
        raise ConfigError(
            f"the config file is not valid YAML ({problem})", field=f"{origin}{place}"
        ) from None
    if not isinstance(settings, dict):
        found = "nothing" if settings is None else f"a {type(settings).__name__}"
        raise ConfigError(
            f"the config file holds {found}", field=origin, rule="a mapping of settings at the top"
        )
    return settings


_KEY = r'(?:"[^"]+"|[^."=\s]+)'
_PATH = re.compile(rf"\s*({_KEY}(?:\.{_KEY})*)\s*=")


def apply_override(settings: dict[str, Any], override: str) -> None:
    """Puts the value of a ``--set`` into settings."""
    path, value = _split(override)
    section = settings
    for depth, key in enumerate(path[:-1], start=1):
        inner = section.setdefault(key, {})
        if inner is None:
            inner = section[key] = {}
        if not isinstance(inner, dict):
            raise ConfigError(
                "--set names a key inside a value that is not a section", field=".".join(path[:depth])
            )
        section = inner
    if value is None:
        section.pop(path[-1], None)
    else:
        section[path[-1]] = value


def _split(override: str) -> tuple[list[str], Any]:
    match = _PATH.match(override)
    if match is None:
        hint = 'a key with dots goes in double quotes: destinations."a.b".path=out'
        raise ConfigError(
            "--set cannot be read", field=override.partition("=")[0] or "--set", rule="a.b=c", hint=hint
        )
    keys = [key.strip('"') for key in re.findall(_KEY, match[1])]
    try:
        return keys, _yaml(override[match.end() :])
    except yaml.YAMLError:
        raise ConfigError("the value of --set is not valid YAML", field=".".join(keys)) from None
