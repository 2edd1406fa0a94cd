"""Types of single settings: durations, instants, texts, names and options.

Each type reads the text of the config file, checks it, and has the JSON Schema of what a user may write. The defaults
of the models are written as in a file (``"1 minute"``) and go through the same types.

As JSON, a setting is written as a file would have it (durations in ms), so that the same types read it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, StrictStr, WithJsonSchema
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

DURATION_RULE: Final = "a duration with its unit, such as 1 second, 10 minutes or PT10M"
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


def duration_of(value: object) -> int:
    """Reads a duration of the config in ms. 0 needs no unit."""
    if isinstance(value, int) and not isinstance(value, bool) and value == 0:
        return 0
    try:
        duration_ms = parse_duration_ms(value) if isinstance(value, str) else None
    except ConfigError:
        duration_ms = None
    if duration_ms is None:
        raise fault("not a duration", rule=DURATION_RULE)
    if abs(duration_ms) > MAX_INSTANT_MS:
        raise fault("too long a duration", rule=f"at most {MAX_INSTANT_MS // 86_400_000:,} days")
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
        BeforeValidator(lambda value: None if value == word else duration_of(value)),
        PlainSerializer(lambda ms: word if ms is None else _duration_text(ms), when_used="json"),
        WithJsonSchema({"anyOf": [{"const": word}, *_DURATION]}),
    )


def at_least(lowest_ms: int, rule: str) -> AfterValidator:
    """Refuses shorter durations. None passes."""
    return _refused(lambda duration_ms: duration_ms < lowest_ms, "too short a duration", rule)


def at_most(highest_ms: int, rule: str) -> AfterValidator:
    """Refuses longer durations. None passes."""
    return _refused(lambda duration_ms: duration_ms > highest_ms, "too long a duration", rule)


def _refused(is_wrong: Callable[[int], bool], what: str, rule: str) -> AfterValidator:
    def check(duration_ms: int | None) -> int | None:
        if duration_ms is not None and is_wrong(duration_ms):
            raise fault(what, rule=rule)
        return duration_ms

    return AfterValidator(check)


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


def _destination(value: str) -> str:
    if not is_destination_name(value):
        raise fault("not a destination name", rule=NAME_RULE)
    return value


Span = Annotated[
    int,
    BeforeValidator(duration_of),
    PlainSerializer(_duration_text, when_used="json"),
    WithJsonSchema(_DURATION_SCHEMA),
]
PositiveMs = Annotated[Span, at_least(1, "at least 1 millisecond")]
NotNegativeMs = Annotated[Span, at_least(0, "not negative")]
WaitMs = Annotated[NotNegativeMs, at_most(LONGEST_WAIT_MS, "at most 24 days")]
PositiveWaitMs = Annotated[PositiveMs, at_most(LONGEST_WAIT_MS, "at most 24 days")]
UnboundedMs = Annotated[int | None, *duration_or("unlimited"), at_least(0, "not negative, or unlimited")]
Instant = Annotated[
    int,
    BeforeValidator(_instant_ms),
    PlainSerializer(instant_text_ms, when_used="json"),
    WithJsonSchema({"type": "string", "examples": ["2013-01-01T05:00:00Z", "2013-01-01"]}),
]
Text = Annotated[StrictStr, BeforeValidator(_text)]
FolderPath = Annotated[Text, AfterValidator(_path)]
DestinationName = Annotated[Text, AfterValidator(_destination)]
_Option = Annotated[
    str, BeforeValidator(_option_text), WithJsonSchema({"type": ["string", "number", "boolean"]})
]
Options = dict[StrictStr, _Option]
