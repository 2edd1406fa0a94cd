"""The values that settings have: durations, instants, texts, names; each with the rule that a wrong one is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, StrictStr
from pydantic_core import PydanticCustomError

from wheel_udf.contract import NAME_RULE, is_well_named
from wheel_udf.durations import parse_duration_ms
from wheel_udf.errors import ConfigError


def fault(what: str, *, rule: str | None = None, hint: str | None = None) -> PydanticCustomError:
    """The error of a rule: what is wrong, and what would be right."""
    context = {key: text for key, text in (("rule", rule), ("hint", hint)) if text is not None}
    # The message goes in as a context value: as a template it would be searched for braces.
    return PydanticCustomError("setting", "{what}", {"what": what, **context})


DURATION_RULE = "a duration with its unit, such as 1 second, 10 minutes or PT10M"


def duration_of(value: object) -> int:
    """A duration in ms; 0 needs no unit."""
    if isinstance(value, int) and not isinstance(value, bool) and value == 0:
        return 0  # the one number that needs no unit
    try:
        if isinstance(value, str):
            return parse_duration_ms(value)
    except ConfigError:
        pass
    raise fault("not a duration", rule=DURATION_RULE)


def parse_instant_ms(text: str) -> int:
    """Reads an ISO instant such as ``2013-01-01T05:00:00Z``, ``2013-01-01 05:00`` or ``2013-01-01``.

    Args:
        text: The instant; UTC where it names no zone.

    Returns:
        UTC epoch ms; a fraction of a millisecond is cut off.

    Raises:
        ValueError: If it is not an ISO instant of the years 1 to 9999.
    """
    instant = datetime.fromisoformat(text.strip())
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _instant_ms(value: object) -> int:
    try:
        if isinstance(value, str):
            return parse_instant_ms(value)
    except ValueError:
        pass
    raise fault(
        "not an instant", rule="an ISO instant such as 2013-01-01T05:00:00Z (UTC where it names no zone)"
    )


def none_for(word: str) -> BeforeValidator:
    """A duration in ms, or None where the word stands."""
    return BeforeValidator(lambda value: None if value == word else duration_of(value))


def at_least(lowest_ms: int, rule: str) -> AfterValidator:
    """Refuses shorter durations; None is none."""

    def check(duration_ms: int | None) -> int | None:
        if duration_ms is not None and duration_ms < lowest_ms:
            raise fault("too short a duration", rule=rule)
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


def _destination(value: str) -> str:
    if not is_well_named(value):
        raise fault("not a destination name", rule=NAME_RULE)
    return value


Span = BeforeValidator(duration_of)
PositiveMs = Annotated[int, Span, at_least(1, "at least 1 millisecond")]
UnboundedMs = Annotated[int | None, none_for("unlimited"), at_least(0, "not negative, or unlimited")]
NotNegativeMs = Annotated[int, Span, at_least(0, "not negative")]
Instant = Annotated[int, BeforeValidator(_instant_ms)]
Text = Annotated[StrictStr, BeforeValidator(_text)]
DestinationName = Annotated[Text, AfterValidator(_destination)]
Options = dict[StrictStr, Annotated[str, BeforeValidator(_option_text)]]


class Section(BaseModel):
    """A section of the config: unknown keys are errors, and nothing of it changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)
