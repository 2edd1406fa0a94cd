"""Checks the SQL expressions that are typed into the page: conditions and due times, and nothing that reads or calls
beyond them.

Spark's SQL can do more than compare columns: ``java_method`` calls any static method of the JVM, and a subquery reads
any file. On the command line that is the power of a shell that the user has anyway. A page must not give it to
everybody who can open it, so an expression may call the functions of :data:`FUNCTIONS` only, and has no subquery,
comment or backslash (with which a text could end elsewhere for Spark than it does here).
"""

from __future__ import annotations

import re
from typing import Final

from wheel_udf.common.errors import ActError

FUNCTIONS: Final = frozenset(
    {
        "abs", "cast", "coalesce", "concat", "contains", "current_date", "current_timestamp", "date", "date_add",
        "date_sub", "date_trunc", "dayofweek", "decode", "endswith", "greatest", "hour", "if", "ifnull", "isnotnull",
        "isnull", "least", "left", "length", "lower", "make_interval", "minute", "nullif", "now", "octet_length",
        "right", "second", "startswith", "string", "substr", "substring", "timestamp", "timestamp_millis",
        "timestamp_seconds", "timestampadd", "to_date", "to_timestamp", "trim", "try_cast", "unix_millis",
        "unix_seconds", "upper",
    }
)  # fmt: skip
"""The functions that an expression may call."""

_KEYWORDS: Final = frozenset(
    {
        "and", "or", "not", "in", "between", "like", "ilike",
        "when", "then", "else", "case", "is", "interval", "any", "all",
    }
)  # fmt: skip
"""Words that may stand before a parenthesis and are no functions."""

_TEXT: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
_CALL: Final = re.compile(r"([^\s(),=<>!+*/%|&^~\[\]-]+)\s*\(")
_NEVER: Final = re.compile(
    r"/\*|--|;|\b(?:select|from|with|table|values|exists|lateral|identifier)\b", re.IGNORECASE
)


def require_plain(field: str, text: str) -> None:
    """Refuses an expression that could do more than compute from the columns of an entry.

    Args:
        field: Its name in the form.
        text: The expression.

    Raises:
        ActError: It has a subquery, a comment, a backslash, an open text, or a function that is not allowed.
    """
    fault = _fault(text)
    if fault is not None:
        raise ActError(
            f"not an expression for this page: {fault}",
            field=field,
            value=text,
            rule="columns, texts, numbers, operators and common functions",
            hint="the command line takes any SQL: wheel-udf ACT --where",
        )


def _fault(text: str) -> str | None:
    if "\\" in text or "$" in text or "\0" in text:
        return "it has a backslash, a dollar sign or a NUL"
    bare = _TEXT.sub(" '' ", text)
    if "'" in bare.replace("''", "") or '"' in bare:
        return "a text in it is not closed"
    if "`" in bare:
        return "it has a name in backquotes"
    if found := _NEVER.search(bare):
        return f"it has {found[0]}"
    called = {name.lower() for name in _CALL.findall(bare)} - _KEYWORDS - FUNCTIONS
    return f"it calls {', '.join(sorted(called))}" if called else None
