"""The base of all models of the config: a section with its rules.

A field's type checks one setting; a *rule* checks several. A rule is a function whose parameters are names of fields::

    def _keeps_its_share(limits, wheel): ...            # yields a fault for each thing that is wrong

    class DirectConfig(SchedulerConfig):
        rules = (*SchedulerConfig.rules, _keeps_its_share)

A rule runs if the fields that it names are valid (unknown keys in them do not count), whatever else is wrong. So one
validation reports all errors together, and a rule only ever sees models, never the raw file. Of a large section a rule
may look at some settings (:func:`looks_at`): then only those have to be valid. A parameter with the default None is
optional: it is None if its field is not valid, or not one of the model.

The root of a config is a section too; its rules are those across sections.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from functools import cache
from typing import Any, ClassVar, Final, Self, TypeVar, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

Location = tuple[str, ...]
Rule = Callable[..., Iterable[InitErrorDetails]]
_UNKNOWN: Final = "extra_forbidden"
_R = TypeVar("_R", bound=Callable[..., object])


class Section(BaseModel):
    """A section of the config: unknown keys are errors, and it is immutable."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,  # it may hold secrets
    )

    rules: ClassVar[tuple[Rule, ...]] = ()
    discriminator: ClassVar[str | None] = None
    """The key that selects the variant of a section, if it has several."""

    kinds: ClassVar[tuple[str, ...]] = ()
    """The values of that key; by default those of its type."""

    not_here: ClassVar[Mapping[str, str]] = {}
    """Keys that users may look for in this section, and why it has none."""

    @model_validator(mode="wrap")
    @classmethod
    def _with_rules(cls, given: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(given, cls):
            return given
        try:
            section = validate(given)
        except ValidationError as error:
            faults = [_once_more(each) for each in error.errors(include_url=False)]
            fields, wrong = cls._valid_fields(given, faults)
            broken = cls._broken(fields, wrong)
            raise ValidationError.from_exception_data(cls.__name__, [*faults, *broken]) from None
        if faults := list(cls._broken(dict(section), set())):
            raise ValidationError.from_exception_data(cls.__name__, faults)
        return section

    @classmethod
    def _valid_fields(
        cls, given: Any, faults: list[InitErrorDetails]
    ) -> tuple[dict[str, Any], set[Location]]:
        """The fields that are valid once all wrong settings are removed, and what was removed."""
        fields: dict[str, Any] = {}
        if not isinstance(given, Mapping):
            return fields, set()
        settings, removed = _without_faults(given, faults)
        for name, field in cls.model_fields.items():
            key = field.alias or name
            if (key,) not in removed and (key in settings or not field.is_required()):
                value = settings[key] if key in settings else field.get_default(call_default_factory=True)
                read = adapters_of(cls)[name].validate_python
                try:
                    fields[name] = read(value)
                except ValidationError as error:
                    # A rule of the section misses what was removed: without the setting that holds it, too.
                    again = [_once_more(each, key) for each in error.errors(include_url=False)]
                    smaller, more = _without_faults({key: value}, again)
                    removed |= more
                    with suppress(ValidationError):
                        fields[name] = read(smaller.get(key))
        return fields, removed

    @classmethod
    def _broken(cls, fields: Mapping[str, Any], wrong: set[Location]) -> Iterator[InitErrorDetails]:
        """The errors of the rules, without rules about a setting that is wrong by itself."""
        for rule in cls.rules:
            seen = {}
            for name, parameter in inspect.signature(rule).parameters.items():
                settings = vars(rule).get("looks_at", {}).get(name, ("",))
                if name in fields and not any(cls._is_wrong(name, setting, wrong) for setting in settings):
                    seen[name] = fields[name]
                elif parameter.default is None:
                    seen[name] = None
                else:
                    break
            else:
                yield from rule(**seen)

    @classmethod
    def _is_wrong(cls, name: str, setting: str, wrong: set[Location]) -> bool:
        """Whether a setting is wrong, what holds it, or something in it; of names alone (``*``) not what is in them."""
        at = (cls.model_fields[name].alias or name, *filter(None, setting.split(".")))
        return any(
            all(part in ("*", key) for part, key in zip(at, each, strict=False))
            for each in wrong
            if at[-1] != "*" or len(each) <= len(at)
        )


def looks_at(**settings: str | tuple[str, ...]) -> Callable[[_R], _R]:
    """Names the only settings that a rule checks. The rule then runs even if others are wrong.

    Of a section whose keys are names: ``*`` for the names alone, ``*.path`` for a setting of each.
    """

    def mark(rule: _R) -> _R:
        vars(rule)["looks_at"] = {
            name: (which,) if isinstance(which, str) else which for name, which in settings.items()
        }
        return rule

    return mark


def all_defaults(section: type[Section]) -> Any:
    """A field whose default is this section with all its defaults."""
    return Field(default_factory=lambda: section.model_validate({}))


def keys_of(model: type[BaseModel]) -> dict[str, str]:
    """Returns the keys of a section as they stand in the file, each with the name of its attribute."""
    return {field.alias or name: name for name, field in model.model_fields.items()}


def _without_faults(
    given: Mapping[str, Any], faults: list[InitErrorDetails]
) -> tuple[dict[str, Any], set[Location]]:
    """The settings without those that are wrong, and the keys of what was removed, except unknown keys."""
    settings: dict[str, Any] = deepcopy(dict(given))
    removed: set[Location] = set()
    for fault in faults:
        holder: Any = settings
        value, keys, last = holder, tuple[str, ...](), None
        for part in fault.get("loc", ()):
            if isinstance(value, dict) and part in value:  # else the name of the chosen variant of a section
                holder, last, value, keys = value, part, value[part], (*keys, str(part))
        if keys and fault["type"] != "missing":
            del holder[last]  # which may be no text
        if fault["type"] != _UNKNOWN:
            removed.add(keys)
    return settings, removed - {()}


@cache
def adapters_of(model: type[BaseModel]) -> dict[str, TypeAdapter[Any]]:
    """Returns what reads each field of a section, by the name of its attribute."""
    hints = get_type_hints(model, include_extras=True)
    return {name: TypeAdapter(hints[name]) for name in model.model_fields}


def _once_more(error: ErrorDetails, *section: str) -> InitErrorDetails:
    """An error that was reported, as one to report."""
    context = error.get("ctx", {})
    kind = PydanticCustomError("setting", "{what}", context) if error["type"] == "setting" else error["type"]
    return InitErrorDetails(type=kind, loc=(*section, *error["loc"]), input=error["input"], ctx=context)
