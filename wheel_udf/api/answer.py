"""What a job answers to a question."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self

from wheel_udf.api.words import MOST_BYTES
from wheel_udf.common import errors
from wheel_udf.common.errors import WheelError

_PARTS = ("field", "value", "rule", "hint")


@dataclass(frozen=True)
class Answer:
    """Rows, counts, and what is said to a person.

    Attributes:
        rows: Rows, as the values of JSON objects.
        counts: Numbers by name, such as ``pending`` or ``changed``.
        lines: Sentences, which a command line prints after the rows.
    """

    rows: Sequence[Mapping[str, Any]] = ()
    counts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    lines: Sequence[str] = ()

    @classmethod
    def of_counts(cls, **counts: int) -> Self:
        """Counts, each of them a line, too."""
        return cls(counts=counts, lines=[f"{name} {count}" for name, count in counts.items()])

    def printed(self) -> Iterator[str]:
        """The lines of a command line: a JSON object for each row, then the sentences."""
        for row in self.rows:
            yield json.dumps(row, ensure_ascii=False, separators=(",", ":"))
        yield from self.lines

    def to_json(self) -> str:
        """The answer as the text of a JSON object."""
        parts = {"rows": list(self.rows), "counts": dict(self.counts), "lines": list(self.lines)}
        return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def of_json(cls, text: str | bytes) -> Self:
        """Reads :meth:`to_json`.

        Raises:
            ValueError: The text is not one of an answer.
        """
        parts = json.loads(text)
        if not isinstance(parts, dict) or parts.keys() != {"rows", "counts", "lines"}:
            message = f"not an answer: {str(parts)[:100]}"
            raise ValueError(message)
        return cls(**parts)


class RefusedError(Exception):
    """A question that could not be answered, as it travels.

    Attributes:
        sentence: Why, as a sentence without secrets.
        exit_code: That of a command line.
        kind: The name of the error's class in :mod:`wheel_udf.common.errors`, or of another one.
        parts: ``what``, ``field``, ``value`` (as text), ``rule`` and ``hint`` of an error of this package, those that
            it has.
    """

    def __init__(
        self,
        sentence: str,
        exit_code: int,
        kind: str = "WheelError",
        parts: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(sentence)
        self.sentence, self.exit_code, self.kind, self.parts = sentence, exit_code, kind, parts

    def to_json(self) -> str:
        """The refusal as the text of a JSON object."""
        named = {
            "error": self.sentence,
            "exit_code": self.exit_code,
            "kind": self.kind,
            "parts": dict(self.parts),
        }
        return json.dumps(named)  # in ASCII: it may tell of a text that is no UTF-8

    @classmethod
    def of_json(cls, text: str | bytes) -> Self:
        """Reads :meth:`to_json`.

        Raises:
            ValueError: The text is not one of a refusal.
        """
        try:
            found = json.loads(text)
            return cls(found["error"], int(found["exit_code"]), found["kind"], found["parts"])
        except (KeyError, TypeError) as fault:
            message = f"not a refusal: {text[:100]!r}"
            raise ValueError(message) from fault

    def to_error(self) -> WheelError:
        """The error for a program: of the same class, if it is one of this package."""
        kind = getattr(errors, self.kind, WheelError)
        if not (isinstance(kind, type) and issubclass(kind, WheelError)) or "what" not in self.parts:
            return WheelError(self.sentence)
        return kind(self.parts["what"], **{name: self.parts.get(name) for name in _PARTS})


def too_long(length: int) -> RefusedError:
    """The refusal of arguments of so many bytes."""
    sentence = (
        f"the arguments of a question are too long: {length:,} bytes; rule: up to {MOST_BYTES:,}; hint: fewer ids at a "
        "time, or a condition"
    )
    return RefusedError(sentence, 2)


def parts_of(error: BaseException) -> dict[str, str]:
    """The parts of an error of this package, for :class:`RefusedError`; empty for others."""
    if not isinstance(error, WheelError):
        return {}
    named = {name: getattr(error, name) for name in ("what", *_PARTS)}
    return {name: str(value) for name, value in named.items() if value is not None}
