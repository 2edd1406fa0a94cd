"""As much of PromQL as the alert rules use, over series with a sample each minute. Where promtool is installed, a test
compares the two.

::

    or  <-  and on (labels)  <-  > < ==  <-  + -  <-  * / [ignoring (labels)]  <-  number, selector, increase(selector[10m]), ( ... )

``increase`` is the last value minus the first, without Prometheus' extrapolation; the thresholds of the rules are far
from the difference.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Series = Mapping[tuple[str, Labels], Sequence[float | None]]
"""(name, labels) to a value for each minute; None: there was no sample."""

_TOKEN = re.compile(r"\s*([a-zA-Z_]\w*|\d[\d.e]*[smhd]?|==|\"[^\"]*\"|[-+*/<>(){}\[\],=])")
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
}
_MINUTES = {"m": 1, "h": 60}


def evaluate(expression: str, series: Series, minute: int) -> Vector:
    """The result of an expression at a minute, by labels; a number has none."""
    parser = _Parser(_TOKEN.findall(expression), series, minute)
    result = parser.any_of()
    assert not parser.tokens, f"not read: {parser.tokens}"
    assert isinstance(result, dict)
    return result


class _Parser:
    def __init__(self, tokens: list[str], series: Series, minute: int) -> None:
        self.tokens, self.series, self.minute = tokens, series, minute

    def take(self, *wanted: str) -> str | None:
        return self.tokens.pop(0) if self.tokens and (not wanted or self.tokens[0] in wanted) else None

    def labels_in_brackets(self) -> set[str]:
        assert self.take("(")
        names = set()
        while not self.take(")"):
            names.add(self.tokens.pop(0))
            self.take(",")
        return names

    def any_of(self) -> Vector | float:
        left = self.all_of()
        while self.take("or"):
            left = self.all_of() | left  # type: ignore[operator]
        return left

    def all_of(self) -> Vector | float:
        left = self.comparison()
        while self.take("and"):
            assert self.take("on")
            names = self.labels_in_brackets()
            right = {_only(labels, names) for labels in self.comparison()}  # type: ignore[union-attr]
            left = {labels: value for labels, value in left.items() if _only(labels, names) in right}  # type: ignore[union-attr]
        return left

    def comparison(self) -> Vector | float:
        left = self.sum_of()
        if (sign := self.take(*_COMPARE)) is None:
            return left
        bound = self.sum_of()
        assert isinstance(left, dict)
        assert isinstance(bound, float)
        return {labels: value for labels, value in left.items() if _COMPARE[sign](value, bound)}

    def sum_of(self) -> Vector | float:
        left = self.product_of()
        while sign := self.take("+", "-"):
            left = _each(operator.add if sign == "+" else operator.sub, left, self.product_of(), set())
        return left

    def product_of(self) -> Vector | float:
        left = self.operand()
        while sign := self.take("*", "/"):
            ignored = self.labels_in_brackets() if self.take("ignoring") else set()
            left = _each(operator.mul if sign == "*" else _divide, left, self.operand(), ignored)
        return left

    def operand(self) -> Vector | float:
        token = self.tokens.pop(0)
        if token == "(":
            inner = self.any_of()
            assert self.take(")")
            return inner
        if token[0].isdigit():
            return float(token)
        if token == "increase":
            assert self.take("(")
            found = self.selected(self.tokens.pop(0))
            assert self.take("[")
            span = self.tokens.pop(0)
            assert self.take("]")
            assert self.take(")")
            return self.increase(found, int(span[:-1]) * _MINUTES[span[-1]])
        return {
            labels: value
            for labels, values in self.selected(token).items()
            if (value := values[self.minute]) is not None
        }

    def selected(self, name: str) -> dict[Labels, Sequence[float | None]]:
        wanted = set()
        if self.take("{"):
            while not self.take("}"):
                label, equals, text = (self.tokens.pop(0) for _ in range(3))
                assert equals == "="
                wanted.add((label, text.strip('"')))
                self.take(",")
        return {
            labels: values
            for (found, labels), values in self.series.items()
            if found == name and wanted <= labels
        }

    def increase(self, found: dict[Labels, Sequence[float | None]], minutes: int) -> Vector:
        result = {}
        for labels, values in found.items():
            window = [
                value
                for value in values[max(0, self.minute - minutes) : self.minute + 1]
                if value is not None
            ]
            if len(window) > 1:
                result[labels] = window[-1] - window[0]
        return result


def _only(labels: Labels, names: set[str]) -> Labels:
    return frozenset(pair for pair in labels if pair[0] in names)


def _without(labels: Labels, names: set[str]) -> Labels:
    return frozenset(pair for pair in labels if pair[0] not in names)


def _divide(left: float, right: float) -> float:
    return left / right if right else float("nan")


def _each(
    act: Callable[[float, float], float], left: Vector | float, right: Vector | float, ignored: set[str]
) -> Vector | float:
    if isinstance(left, float):
        assert isinstance(right, dict)
        return {labels: act(left, value) for labels, value in right.items()}
    if isinstance(right, float):
        return {labels: act(value, right) for labels, value in left.items()}
    matched = {_without(labels, ignored): value for labels, value in right.items()}
    return {
        key: act(value, matched[key])
        for labels, value in left.items()
        if (key := _without(labels, ignored)) in matched
    }
