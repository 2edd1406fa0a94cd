"""The arguments of the command line: one parser for all verbs, from ``verbs.toml``. Read without Spark, pydantic."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from wheel_udf import __version__
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.instants import parse_instant_ms
from wheel_udf.common.package_data import toml_of
from wheel_udf.common.rates import per_second

PROGRAM: Final = "wheel-udf"

_FILE: Final = toml_of(__name__, "verbs.toml")
VERBS: Final[Mapping[str, Mapping[str, Any]]] = _FILE["verbs"]
"""What ``verbs.toml`` says of each verb."""
SHARED: Final[Mapping[str, Mapping[str, Any]]] = _FILE["shared"]
"""Likewise, of options that several verbs have."""


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parses the arguments without the program's name.

    Raises:
        SystemExit: The usage is wrong, or help or version was printed.
    """
    return _parser().parse_args(argv)


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
        options = {option: SHARED[option] for option in verb.get("uses", ())}
        options |= verb.get("options", {})
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
        added.add_argument("--debug", action="store_true", help="shows the stack trace of an error")
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


_TYPES: Final = {"Path": Path, "float": float, "instant": _instant, "int": int, "rate": _per_s}
