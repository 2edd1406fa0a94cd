"""Makes dataclasses from JSON that may be damaged."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final, TypeVar

Record = TypeVar("Record")

_INT64: Final = range(-(2**63), 2**63)


def typed_record(kind: type[Record], found: object) -> Record | None:
    """The record of a JSON value; None if a field is missing, unknown, of another type, or beyond 64 bits.

    Args:
        kind: A dataclass whose fields are ``int``, ``str``, ``dict``, or one of these ``| None``.
        found: The value.
    """
    if not isinstance(found, dict):
        return None
    try:
        record = kind(**found)
    except TypeError:
        return None
    described: Any = kind
    is_sound = all(_fits(getattr(record, each.name), str(each.type)) for each in fields(described))
    return record if is_sound else None


def _fits(value: object, kind: str) -> bool:
    if value is None:
        return kind.endswith("| None")
    if isinstance(value, bool) or not isinstance(value, int):
        return type(value).__name__ == kind.partition("[")[0]
    return kind.startswith("int") and value in _INT64
