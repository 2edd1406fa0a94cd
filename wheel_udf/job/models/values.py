"""Types of single settings: durations, instants, texts, names and options.

Each type reads the text of the config file, checks it, and has the JSON Schema of what a user may write. The defaults
of the models are written as in a file (``"1 minute"``) and go through the same types.

A start of the job records the settings that determine the rows of a batch (:mod:`wheel_udf.job.replay`). There a
duration is a number of ms, an instant UTC epoch ms, and no bound is null. The same types read that form when the
validation context is :data:`RECORDED`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, StrictStr, ValidationInfo, WithJsonSchema
from pydantic_core import InitErrorDetails, PydanticCustomError

from wheel_udf.common.durations import parse_duration_ms
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.instants import INSTANT_RULE, LONGEST_WAIT_MS, MAX_INSTANT_MS, parse_instant_ms
from wheel_udf.common.names import NAME_RULE, is_destination_name
from wheel_udf.common.paths import require_path

RECORDED: Final[Mapping[str, Any]] = {"recorded": True}
"""Validation context for settings that a checkpoint has recorded; see the module."""

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


def is_recorded(info: ValidationInfo) -> bool:
    """Returns whether recorded settings are read, and not a file."""
    return bool(info.context and info.context.get("recorded"))


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


def _duration_ms(value: object, info: ValidationInfo) -> int:
    return value if is_recorded(info) and isinstance(value, int) else duration_of(value)


def _instant_ms(value: object, info: ValidationInfo) -> int:
    if is_recorded(info) and isinstance(value, int):
        return value
    try:
        if isinstance(value, str):
            return parse_instant_ms(value)
    except ValueError:
        pass
    raise fault("not an instant", rule=INSTANT_RULE)


def none_for(word: str) -> BeforeValidator:
    """Reads a duration in ms, or None where this word is given."""

    def read(value: object, info: ValidationInfo) -> int | None:
        if value == word or (value is None and is_recorded(info)):
            return None
        return _duration_ms(value, info)

    return BeforeValidator(read)


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


def duration_or(word: str) -> WithJsonSchema:
    """The JSON Schema of a duration or this word."""
    return WithJsonSchema({"anyOf": [{"const": word}, *_DURATION]})


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


Span = Annotated[int, BeforeValidator(_duration_ms), WithJsonSchema(_DURATION_SCHEMA)]
PositiveMs = Annotated[Span, at_least(1, "at least 1 millisecond")]
NotNegativeMs = Annotated[Span, at_least(0, "not negative")]
WaitMs = Annotated[NotNegativeMs, at_most(LONGEST_WAIT_MS, "at most 24 days")]
PositiveWaitMs = Annotated[PositiveMs, at_most(LONGEST_WAIT_MS, "at most 24 days")]
UnboundedMs = Annotated[
    int | None, none_for("unlimited"), at_least(0, "not negative, or unlimited"), duration_or("unlimited")
]
Instant = Annotated[
    int,
    BeforeValidator(_instant_ms),
    WithJsonSchema({"type": "string", "examples": ["2013-01-01T05:00:00Z", "2013-01-01"]}),
]
Text = Annotated[StrictStr, BeforeValidator(_text)]
FolderPath = Annotated[Text, AfterValidator(_path)]
DestinationName = Annotated[Text, AfterValidator(_destination)]
_Option = Annotated[
    str, BeforeValidator(_option_text), WithJsonSchema({"type": ["string", "number", "boolean"]})
]
Options = dict[StrictStr, _Option]
