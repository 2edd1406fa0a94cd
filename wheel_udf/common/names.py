"""Names of destinations and topics, and the allow-list that they are matched against.

::

    is_destination_name(name)         may this be a name at all
    AllowList(patterns).first(name)   which pattern of the list matches it
              name in AllowList(...)  whether one does
                       .expression    its patterns for Spark's rlike (connect/routing)

A name is checked against the rule before any pattern of an allow-list is tried. So no pattern, however wide,
lets a path or a piece of SQL through.

In a pattern ``*`` stands for any text (also the empty one) and ``?`` for any one character; case counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from wheel_udf.common.paths import inside

LONGEST_NAME: Final = 249
"""In characters, of a destination or a topic."""

KAFKA_SERVERS: Final = "kafka.bootstrap.servers"
"""The option of Spark's Kafka source and sink that names the brokers."""

NAME_RULE: Final = f"1 to {LONGEST_NAME} of A-Z a-z 0-9 . _ -, not . or .."
PATTERN_RULE: Final = f"{NAME_RULE}; * for any text, ? for any one character"

_WILDCARDS: Final = frozenset("*?")
_NAME: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{LONGEST_NAME}}}")
_NOT_NAMES: Final = (".", "..")
"""Folders, not names."""


def is_destination_name(name: object) -> bool:
    """Whether a destination or a topic may have this name."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None and name not in _NOT_NAMES


def is_destination_pattern(pattern: object) -> bool:
    """Whether this is a name, or a pattern that a name can match."""
    return isinstance(pattern, str) and is_destination_name(pattern.replace("*", "_").replace("?", "_"))


class AllowList:
    """Names and patterns that destinations are allowed to match.

    Args:
        patterns: Names and patterns, each a valid one (:func:`is_destination_pattern`), in order.

    Attributes:
        patterns: As given.
        names: Those without a wildcard.
        expression: The others as one regular expression of Python and Java, for a full match; None if there
            are none.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns: Final = tuple(patterns)
        self.names: Final = tuple(each for each in self.patterns if not _WILDCARDS & set(each))
        wild = [_expression(each) for each in self.patterns if each not in self.names]
        self.expression: Final = "|".join(wild) or None
        self._names: Final = frozenset(self.names)
        self._wild: Final = None if self.expression is None else re.compile(self.expression)
        self._compiled: Final = [(each, re.compile(_expression(each))) for each in self.patterns]

    def __contains__(self, name: str) -> bool:
        """Whether a well-formed name matches."""
        return name in self._names or (self._wild is not None and self._wild.fullmatch(name) is not None)

    def first(self, name: str) -> str | None:
        """The first name or pattern that a well-formed name matches; None if no one does."""
        return next((each for each, compiled in self._compiled if compiled.fullmatch(name)), None)


def shares_a_folder(rejects: str, pattern: str, root: str) -> bool:
    """Whether rejects at a path would be in the folder of a destination, or of all of a sink, or have it inside.

    ::

        rejects              pattern         root
        data/tables          reminders_*     data/tables    yes: the folder of the tables would be a table
        data/tables/orders   o*, orders, *   data/tables    yes: there a destination may have its own table
        data/tables/x        o*, orders      data/tables    no: no destination has this name
        data                 o*, orders, *   data/tables    yes

    Args:
        rejects: The path of the rejects.
        pattern: A name or pattern of the allow-list.
        root: The path of its sink.
    """
    names = inside(root, rejects)
    if names is None:
        return inside(rejects, root) is not None
    return not names or AllowList([pattern]).first(names[0]) is not None


def _expression(pattern: str) -> str:
    """The pattern as a regular expression that takes the first place where each part fits, and looks for no other.

    With a plain ``.*`` for each star, a name of 249 characters takes years against ``*a*a*a*a*a*a*a*b``, and names
    come from producers.
    """
    first, *others = (_part(part) for part in pattern.split("*"))
    if not others:
        return first
    between = "".join(f"(?>.*?{part})" for part in others[:-1] if part)
    return f"{first}{between}.*{others[-1]}"


def _part(part: str) -> str:
    return "".join("." if char == "?" else re.escape(char) for char in part)
