"""Types of single settings: durations, instants, texts, names and options.

Each type reads the text of the config file, checks it, and has the JSON Schema of what a user may write. The defaults
of the models are written as in a file (``"1 minute"``) and go through the same types.

As JSON, a setting is written as a file would have it (durations in ms), so that the same types read it again.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, StrictStr, WithJsonSchema
from pydantic_core import InitErrorDetails, PydanticCustomError

from wheel_udf.common.durations import parse_duration_ms
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.instants import (
    INSTANT_RULE,
    LONGEST_WAIT_MS,
    MAX_INSTANT_MS,
    instant_text_ms,
    parse_instant_ms,
)
from wheel_udf.common.names import NAME_RULE, is_destination_name
from wheel_udf.common.paths import require_path
from wheel_udf.common.table_names import table_name
from wheel_udf.recurrence.local_times import zone_of

_DURATION_RULE: Final = "a duration with its unit, such as 1 second, 10 minutes or PT10M"
_PLACEHOLDER: Final = r"\$\{"
_DURATION: Final = [{"type": "string", "pattern": rf"[0-9]|{_PLACEHOLDER}"}, {"const": 0}]
_DURATION_SCHEMA: Final = {"anyOf": _DURATION, "examples": ["1 second", "10 minutes", "PT10M"]}


def fault(what: str, *, rule: str | None = None, hint: str | None = None) -> PydanticCustomError:
    """Builds the error of a validator: what is wrong, and what would be right."""
    context = {key: text for key, text in (("rule", rule), ("hint", hint)) if text is not None}
    # The message goes in as a context value: as a template it would be searched for braces.
    return PydanticCustomError("setting", "{what}", {"what": what, **context})


def fault_at(
    *location: str, what: str, value: object = None, rule: str | None = None, hint: str | None = None
) -> InitErrorDetails:
    """Builds the error of a rule of a section, at a location inside the section."""
    return InitErrorDetails(type=fault(what, rule=rule, hint=hint), loc=location, input=value)


def as_written(default: object) -> Any:
    """A default in the form of the file; the type of the field reads it."""
    return default


def _duration_of(value: object, other: str = "") -> int:
    """Reads a duration of the config in ms. 0 needs no unit; `other` begins the rule."""
    if isinstance(value, int) and not isinstance(value, bool) and value == 0:
        return 0
    try:
        duration_ms = parse_duration_ms(value) if isinstance(value, str) else None
    except ConfigError:
        duration_ms = None
    if duration_ms is None:
        raise fault("not a duration", rule=f"{other}{_DURATION_RULE}")
    if not 0 <= duration_ms <= MAX_INSTANT_MS:
        raise fault("no such duration", rule=f"from 0 to {MAX_INSTANT_MS // 86_400_000:,} days")
    return duration_ms


def _instant_ms(value: object) -> int:
    try:
        if isinstance(value, str):
            return parse_instant_ms(value)
    except ValueError:
        pass
    raise fault("not an instant", rule=INSTANT_RULE)


def _duration_text(duration_ms: int) -> str:
    return f"{duration_ms} ms"


def duration_or(word: str) -> tuple[Any, ...]:
    """Metadata of a duration in ms that is None where this word is given."""
    return (
        BeforeValidator(lambda value: None if value == word else _duration_of(value, f"{word}, or ")),
        PlainSerializer(lambda ms: word if ms is None else _duration_text(ms), when_used="json"),
        WithJsonSchema({"anyOf": [{"const": word}, *_DURATION]}),
    )


def _option_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise fault("not an option value", rule="a text, a number, true or false")


def _text(value: object) -> object:
    if isinstance(value, str) and not value.strip():
        raise fault("empty text", rule="at least one character")
    return value


def _path(value: str) -> str:
    try:
        require_path(value)
    except ConfigError as error:
        raise fault(error.what, rule=error.rule, hint=error.hint) from None
    return value


def _table(value: str) -> str:
    try:
        table_name(value)
    except ConfigError as error:
        raise fault(error.what, rule=error.rule, hint=error.hint) from None
    return value


def _destination(value: str) -> str:
    if not is_destination_name(value):
        raise fault("not a name", rule=NAME_RULE)
    return value


def _time_zone(value: str) -> str:
    try:
        zone_of(value)
    except ConfigError as error:
        raise fault("not a time zone", rule=error.rule, hint=error.hint) from None
    return value


def _not_empty(value: object) -> object:
    if value in ({}, [], ()):
        raise fault("empty", rule="at least one")
    return value


Span = Annotated[
    int,
    BeforeValidator(_duration_of),
    PlainSerializer(_duration_text, when_used="json"),
    WithJsonSchema(_DURATION_SCHEMA),
]
PositiveMs = Annotated[Span, Field(ge=1)]
WaitMs = Annotated[Span, Field(le=LONGEST_WAIT_MS)]
PositiveWaitMs = Annotated[WaitMs, Field(ge=1)]
UnboundedMs = Annotated[int | None, *duration_or("unlimited")]
Instant = Annotated[
    int,
    BeforeValidator(_instant_ms),
    PlainSerializer(instant_text_ms, when_used="json"),
    WithJsonSchema({"type": "string", "examples": ["2013-01-01T05:00:00Z", "2013-01-01"]}),
]
NOT_EMPTY: Final = BeforeValidator(_not_empty)
"""Refuses an empty list or section. (The bound of pydantic counts only valid items.)"""
Text = Annotated[StrictStr, BeforeValidator(_text)]
FolderPath = Annotated[Text, AfterValidator(_path)]
TableText = Annotated[Text, AfterValidator(_table)]
DestinationName = Annotated[Text, AfterValidator(_destination)]
TimeZone = Annotated[Text, AfterValidator(_time_zone)]
_Option = Annotated[
    str, BeforeValidator(_option_text), WithJsonSchema({"type": ["string", "number", "boolean"]})
]
Options = dict[StrictStr, _Option]
