"""The arguments of the command line: one parser for all verbs, from ``verbs.toml``. Read without Spark, pydantic."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from wheel_udf import __version__
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.instants import parse_instant_ms, require_ms
from wheel_udf.common.package_data import toml_of
from wheel_udf.common.rates import per_second, require_per_second

PROGRAM: Final = "wheel-udf"

_FILE: Final = toml_of(__name__, "verbs.toml")
VERBS: Final[Mapping[str, Mapping[str, Any]]] = _FILE["verbs"]
"""What ``verbs.toml`` says of each verb."""
ASKED: Final[Sequence[str]] = [name for name, verb in VERBS.items() if verb.get("asks")]
"""The verbs that a running job answers."""
WITH_ROWS: Final = ("pending", "forecast")
"""Of these, those whose rows also come as Arrow."""
SHARED: Final[Mapping[str, Mapping[str, Any]]] = _FILE["shared"]
"""Likewise, of options that several verbs have."""


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parses the arguments without the program's name.

    Raises:
        SystemExit: The usage is wrong, or help or version was printed.
    """
    return _parser().parse_args(argv)


def options_of(verb: str) -> dict[str, Mapping[str, Any]]:
    """The options of a verb, with the keywords that ``verbs.toml`` gives them."""
    return {option: SHARED[option] for option in VERBS[verb].get("uses", ())} | dict(
        VERBS[verb].get("options", {})
    )


def dest_of(option: str, keywords: Mapping[str, Any]) -> str:
    """The name of an option's value."""
    found: str = keywords.get("dest", option.lstrip("-").replace("-", "_"))
    return found


_LOCAL: Final[Mapping[str, frozenset[str]]] = {
    "": frozenset({"--config", "--set", "--png"}),
    "next": frozenset({"--repeat", "--time-zone", "--on-gap", "--on-fold", "--from"}),
}
"""Options that are for the command line alone: of all verbs, and of one."""


def asked_options(verb: str) -> dict[str, Mapping[str, Any]]:
    """The options of a verb that a running job is asked with, by their names without dashes in front."""
    local = _LOCAL[""] | _LOCAL.get(verb, frozenset())
    return {
        option.lstrip("-").replace("-", "_"): {"dest": dest_of(option, keywords), **keywords}
        for option, keywords in options_of(verb).items()
        if option not in local
    }


def to_question(asked: argparse.Namespace) -> dict[str, Any]:
    """The arguments of a command line as those of a question: the reverse of :func:`of_question`."""
    named = {name: getattr(asked, option["dest"]) for name, option in asked_options(asked.verb).items()}
    return {name: value for name, value in named.items() if value is not None}


def of_question(verb: str, arguments: Mapping[str, Any]) -> argparse.Namespace:
    """The arguments of a question as those of the command line.

    Args:
        verb: The verb.
        arguments: Values by the names of the options without dashes. Instants are ISO texts or UTC epoch ms, rates
            texts (``100/s``) or numbers a second.

    Raises:
        ConfigError: An argument is not known, is missing, or is of another type.
    """
    options = asked_options(verb)
    for name, value in arguments.items():
        if name not in options:
            raise ConfigError("no such argument", field=name, value=value, rule=", ".join(options))
    found = argparse.Namespace(verb=verb, debug=False)
    for option, keywords in options_of(verb).items():
        setattr(found, dest_of(option, keywords), keywords.get("default", _default_of(keywords)))
    for name, keywords in options.items():
        if arguments.get(name) is not None:
            setattr(found, keywords["dest"], _value_of(name, arguments[name], keywords))
        elif keywords.get("required"):
            raise ConfigError("an argument is missing", field=name, rule=str(keywords["help"]))
    return found


def _default_of(keywords: Mapping[str, Any]) -> Any:
    return False if keywords.get("action") == "store_true" else None


_JSON_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "int": (int,),
    "float": (int, float),
    "instant": (int, str),
    "rate": (int, float, str),
}


def _value_of(name: str, value: Any, keywords: Mapping[str, Any]) -> Any:
    action, kind = keywords.get("action"), str(keywords.get("type", ""))
    if action == "store_true":
        allowed, rule = isinstance(value, bool), "true or false"
    elif action == "append":
        value = [value] if isinstance(value, str) else value
        allowed, rule = (
            isinstance(value, list) and all(isinstance(each, str) for each in value),
            "a list of texts",
        )
    else:
        types = _JSON_TYPES.get(kind, (str,))
        allowed = isinstance(value, types) and not isinstance(value, bool)
        rule = {"int": "a whole number", "instant": "an ISO instant, or UTC epoch ms"}.get(kind, "a text")
    if not allowed:
        raise ConfigError("an argument of another type", field=name, value=value, rule=rule)
    if isinstance(value, str) and kind in _TYPES:
        try:
            return _TYPES[kind](value)
        except argparse.ArgumentTypeError as fault:
            raise ConfigError(str(fault), field=name) from None
    elif kind in _BOUNDS:
        _BOUNDS[kind](name, value)
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        usage=f"{PROGRAM} VERB --config FILE [options]",
        description=_description(),
        epilog=_FILE["epilog"].replace("<until>", _FILE["until"]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    verbs = parser.add_subparsers(
        dest="verb", prog=PROGRAM, required=True, metavar="VERB", help=argparse.SUPPRESS
    )
    for name, verb in VERBS.items():
        options = options_of(name)
        added = verbs.add_parser(
            name,
            description=f"{verb['help'][0].upper()}{verb['help'][1:]}.",
            epilog=_FILE["until"] if "--until" in options else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        for option, keywords in options.items():
            kind = {"type": _TYPES[keywords["type"]]} if "type" in keywords else {}
            added.add_argument(option, **{**keywords, **kind})
        added.add_argument(
            "--debug",
            action="store_true",
            help="shows the stack trace of an error, and all warnings of Spark",
        )
    return parser


def _description() -> str:
    lines = [
        "A delay scheduler on Spark: commands wait in a timing wheel and go to their destination when they are due."
    ]
    for task in dict.fromkeys(verb["task"] for verb in VERBS.values()):
        of_task = (name for name, verb in VERBS.items() if verb["task"] == task)
        lines += ["", f"{task}:", *(f"  {name:<10} {VERBS[name]['help']}" for name in of_task)]
    return "\n".join([*lines, "", f"{PROGRAM} VERB --help shows the options of a verb."])


def _instant(text: str) -> int:
    """An ISO instant in UTC epoch ms."""
    try:
        return parse_instant_ms(text)
    except ValueError:
        message = f"not an ISO instant such as 2014-01-02T00:00:00Z: {text!r}"
        raise argparse.ArgumentTypeError(message) from None


def _per_s(text: str) -> float:
    """A rate a second."""
    try:
        return per_second(text)
    except ConfigError as fault:
        raise argparse.ArgumentTypeError(f"not a rate: {text!r}; rule: {fault.rule}") from None


_BOUNDS: Final[Mapping[str, Callable[[str, Any], None]]] = {
    "instant": require_ms,
    "rate": lambda _, per_s: require_per_second(per_s),
}
"""What is asked of a number that stands for a text."""
_TYPES: Final[Mapping[str, Callable[[str], Any]]] = {
    "Path": Path,
    "float": float,
    "instant": _instant,
    "int": int,
    "rate": _per_s,
}
