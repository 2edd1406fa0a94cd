"""Turns each error of pydantic into a :class:`ConfigError` with the field as in the file, the value and the rule.

A location of pydantic also names the chosen variant of a section (``source.kafka.path``). The walk over the models
(:func:`_walk`) removes it, and remembers the variants that were not chosen. So the error of an unknown key shows
whether the key exists in another variant::

    source.path with format: kafka   ->   not a setting of format kafka: ...; rule: only with format: delta, ...
    source.pth                       ->   unknown key: source.pth; hint: did you mean path?

If the key that chooses the variant is missing or wrong, everything is reported that is wrong with all variants.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from wheel_udf.common.errors import ConfigError
from wheel_udf.common.secrets import HIDDEN, is_secret_name, redacted
from wheel_udf.job.models.section import Section, keys_of
from wheel_udf.job.models.sink import NAMED

Location = tuple[int | str, ...]
"""Keys of the file, from the outermost section on."""


def faults_of(error: ValidationError, model: Any) -> Iterator[tuple[Location, ConfigError]]:
    """Yields the location in the file and the error of everything that is wrong."""
    for detail in error.errors(include_url=False):
        spot = _walk(model, detail["loc"])
        fault = _in_words(spot, detail)
        yield spot.path, fault
        if detail["type"].startswith("union_tag") and not fault.what.startswith(_ELSEWHERE):
            yield from _faults_of_all(spot, detail["input"])


def path_text(path: Iterable[int | str]) -> str:
    """Returns a location as text; a key that holds dots is in double quotes."""
    return ".".join(f'"{part}"' if isinstance(part, str) and "." in part else str(part) for part in path)


# --- where ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Choice:
    """A section with variants.

    Attributes:
        at: How many parts of the path lead to it.
        variants: All of them.
        key: The key that chooses one.
        value: Its value in the file.
    """

    at: int
    variants: tuple[type[Section], ...]
    key: str
    value: str


@dataclass(frozen=True)
class _Spot:
    """A location in the file.

    Attributes:
        path: Its keys, without the names of variants.
        choices: The sections with variants on the way, outermost first.
        sections: The models that describe the section which holds the last key: one, or the variants where none is
            chosen.
        description: Of the setting.
    """

    path: Location = ()
    choices: tuple[_Choice, ...] = ()
    sections: tuple[type[Section], ...] = ()
    description: str | None = None


def _models_in(annotation: Any) -> tuple[type[Section], ...]:
    """The sections that an annotation allows at its own level."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return (annotation,)
    if get_origin(annotation) in (dict, tuple):
        return ()
    return tuple(model for argument in get_args(annotation) for model in _models_in(argument))


def _value_annotation(annotation: Any) -> Any:
    """The annotation of the values, if an annotation is that of a mapping."""
    if get_origin(annotation) is dict:
        return get_args(annotation)[1]
    if get_origin(annotation) is Annotated:
        return _value_annotation(get_args(annotation)[0])
    return None


def _values_of(model: type[Section]) -> tuple[str, ...]:
    """The values of the key that chooses this variant."""
    assert model.discriminator is not None, "it is a variant"
    return model.kinds or get_args(model.model_fields[model.discriminator].annotation)


def _walk(annotation: Any, location: Location) -> _Spot:
    spot, rest = _Spot(), location[:-1] if location[-1:] == ("[key]",) else location
    while rest:
        models = _models_in(annotation)
        if len(models) > 1 and rest[0] == NAMED:
            rest = rest[1:]
            continue
        if len(models) > 1 and (chosen := [each for each in models if rest[0] in _values_of(each)]):
            choice = _Choice(len(spot.path), models, chosen[0].discriminator or "", str(rest[0]))
            spot = replace(spot, choices=(*spot.choices, choice))
            annotation, rest = chosen[0], rest[1:]
            continue
        key, rest = rest[0], rest[1:]
        field = models[0].model_fields.get(keys_of(models[0]).get(str(key), "")) if len(models) == 1 else None
        spot = replace(
            spot,
            path=(*spot.path, key),
            sections=models or spot.sections,
            description=field.description if field is not None else None,
        )
        annotation = _value_annotation(annotation) if field is None else field.annotation
    if models := _models_in(annotation):
        spot = replace(spot, sections=models)
    return spot


def _holds(annotation: Any, path: Location) -> bool:
    """Whether some variant below an annotation has a key at this path."""
    if not path:
        return True
    if (inner := _value_annotation(annotation)) is not None:
        return _holds(inner, path[1:])
    fields = [
        model.model_fields[name]
        for model in _models_in(annotation)
        if (name := keys_of(model).get(str(path[0]))) is not None
    ]
    return any(_holds(field.annotation, path[1:]) for field in fields)


# --- what -----------------------------------------------------------------------------------------


def _in_words(spot: _Spot, detail: ErrorDetails) -> ConfigError:
    kind, given, context = detail["type"], detail["input"], detail.get("ctx", {})
    value = HIDDEN if any(is_secret_name(part) for part in spot.path) else redacted(given)
    if kind == "extra_forbidden":
        return _unknown_key(spot, value)
    if kind.startswith("union_tag"):
        return _wrong_choice(spot, given)
    hint: str | None = None
    match kind:
        case "setting":
            what, rule, hint = context["what"], context.get("rule"), context.get("hint")
            value = None if isinstance(given, Mapping | BaseModel) else value
        case "missing":
            what, rule, value = "a required setting is missing", _first_sentence(spot), None
        case "literal_error":
            what, rule = "not one of the known values", context["expected"]
        case "greater_than" | "greater_than_equal" | "less_than_equal":
            what, words, name = _BOUNDS[kind]
            bound = context[name]
            rule = (
                f"{words} {bound:,} ms" if isinstance(given, str) else f"{words} {bound}"
            )  # a text: a duration
        case "string_pattern_mismatch":
            what, rule = "not allowed", f"a text that matches {context['pattern']}"
        case _:
            what, rule = _TYPE_WORDS.get(kind, ("not a good value", detail["msg"]))
            if value == HIDDEN and kind in ("float_type", "int_type", "bool_type"):
                hint = "${env:...} and ${file:...} stand in texts; for another value: --set"
    return ConfigError(what, field=path_text(spot.path), value=value, rule=rule, hint=hint)


_ELSEWHERE = "not available with"
_SECTION = ("not a section", "keys with values")
_BOUNDS = {
    "greater_than": ("too small", "above", "gt"),
    "greater_than_equal": ("too small", "at least", "ge"),
    "less_than_equal": ("too large", "at most", "le"),
}
_TYPE_WORDS = {
    "float_type": ("not a number", "a number"),
    "int_type": ("not a whole number", "a whole number"),
    "string_type": ("not a text", "a text (in quotes if it looks like a number)"),
    "bool_type": ("not true or false", "true or false"),
    "invalid_key": ("not a key", "a text (in quotes if it looks like a number)"),
    "tuple_type": ("not a list", "a list"),
    "dict_type": _SECTION,
    "model_type": _SECTION,
    "model_attributes_type": _SECTION,
}


def _first_sentence(spot: _Spot) -> str | None:
    text = (spot.description or "").split(". ")[0].rstrip(".")
    return text[:1].lower() + text[1:] or None


def _one_of(values: Iterable[str]) -> str:
    *others, final = values
    return f"{', '.join(others)} or {final}" if others else final


def _choices_of(variants: Iterable[type[Section]]) -> list[str]:
    return [value for model in variants for value in _values_of(model)]


def _wrong_choice(spot: _Spot, given: Any) -> ConfigError:
    """The key that chooses a variant is missing, or has a value of no variant."""
    key = spot.sections[0].discriminator or ""
    value = given.get(key) if isinstance(given, Mapping) else None
    field, rule = path_text((*spot.path, key)), f"one of {', '.join(_choices_of(spot.sections))}"
    if value is None:
        return ConfigError("a required setting is missing", field=field, rule=rule)
    for choice in spot.choices:
        others = [model for model in choice.variants if _allows(model, spot.path[choice.at :], key, value)]
        if others:
            what = f"{_ELSEWHERE} {choice.key}: {choice.value}"
            return ConfigError(what, field=field, value=redacted(value), rule=rule, hint=spot.description)
    return ConfigError("not one of the known values", field=field, value=redacted(value), rule=rule)


def _allows(model: type[Section], path: Location, key: str, value: object) -> bool:
    sections = _walk(model, path).sections
    return any(each.discriminator == key and value in _values_of(each) for each in sections)


def _unknown_key(spot: _Spot, value: object) -> ConfigError:
    field, key = path_text(spot.path), str(spot.path[-1])
    for choice in reversed(spot.choices):
        others = [model for model in choice.variants if _holds(model, spot.path[choice.at :])]
        if others:
            what = f"not a setting of {choice.key} {choice.value}"
            rule = f"only with {choice.key}: {_one_of(_choices_of(others))}"
            return ConfigError(what, field=field, value=value, rule=rule)
    known = sorted({name for section in spot.sections for name in keys_of(section)})
    for section in spot.sections:
        if key in section.not_here:
            return ConfigError("does not belong here", field=field, rule=section.not_here[key])
    close = difflib.get_close_matches(key, known, n=1) or [name for name in known if key == f"{name}_ms"]
    hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}"
    return ConfigError("unknown key", field=field, hint=hint)


def _faults_of_all(spot: _Spot, given: Any) -> Iterator[tuple[Location, ConfigError]]:
    """The errors of a section that all its variants have in common."""
    if not isinstance(given, Mapping):
        return
    found = [
        {str(fault.field): (path, fault) for path, fault in _faults_of_variant(model, given)}
        for model in spot.sections
    ]
    for field, (path, fault) in found[0].items():
        if all(field in others and others[field][1].what == fault.what for others in found[1:]):
            same_hint = all(others[field][1].hint == fault.hint for others in found[1:])
            yield (
                (*spot.path, *path),
                ConfigError(
                    fault.what,
                    field=f"{path_text(spot.path)}.{field}" if spot.path else field,
                    value=fault.value,
                    rule=fault.rule,
                    hint=fault.hint if same_hint else None,
                ),
            )


def _faults_of_variant(
    model: type[Section], given: Mapping[str, Any]
) -> Iterator[tuple[Location, ConfigError]]:
    try:
        model.model_validate({**given, model.discriminator: _values_of(model)[0]})
    except ValidationError as error:
        yield from faults_of(error, model)
