"""The rules that a command can break: order, conditions, messages.

:data:`TEXTS` lists all codes in the order in which they are checked; the first broken rule gives the row its
code. Only the first eight apply to a CANCEL or a FIRE_NOW: it needs a readable record, an id, a readable ``seq`` and an
``event_time`` that may move the clock.

The conditions read the columns of the input (:class:`~wheel_udf.commands.inputs.Given`), and what was read from them
(:class:`Read`). A condition that is null counts as false. A rule is left out where the column that could break it is
missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.commands import readers as read
from wheel_udf.commands.contract import Contract, shortened
from wheel_udf.commands.delay_levels import level_name, refused_beyond_ms
from wheel_udf.commands.inputs import Given, Shown
from wheel_udf.commands.values import text_of, utc_text
from wheel_udf.common.command_facts import FIRST_DUE, ID_RULE, MAX_ID_BYTES, REPEAT_RULE
from wheel_udf.common.durations import DURATION_RULE
from wheel_udf.common.instants import MAX_INSTANT_MS
from wheel_udf.common.names import NAME_RULE, AllowList, is_destination_name
from wheel_udf.common.package_data import toml_of

DUE_COLUMNS: Final = ("deliver_at", "delay")
"""The columns that a due time comes from."""

SOURCE: Final = "source_coordinates"
"""Column: where a row came from, for rejects."""

UNREADABLE: Final = "_corrupt_record"
"""Column: not null if the row could not be read at all (as in Spark's own readers)."""

MISREAD: Final = "_misread_columns"
"""Column: the names of columns of a readable record whose values are not of their types; null for none."""

MOST_KEYS: Final = 10_000
"""Most keys of an operation."""

INSTANT_RULE: Final = "a timestamp, a date, or ISO 8601 text with Z, an offset, or no zone for UTC"
_LONGEST_VALUE: Final = 100
_VALUE: Final = "\x1a"
"""The place of the value in the templates of messages; no rule contains it."""

GOOD: Final = -1
"""In place of the number of a rule: none is broken."""
_NOT_YET: Final = -2

_CONSTANTS: Final = {
    "id_rule": ID_RULE,
    "instant_rule": INSTANT_RULE,
    "duration_rule": DURATION_RULE,
    "name_rule": NAME_RULE,
    "first_due": FIRST_DUE,
    "most_keys": MOST_KEYS,
    "repeat_rule": REPEAT_RULE,
    "value": _VALUE,
}
_TEXTS: Final = toml_of(__name__, "texts.toml")
TEXTS: Final[Mapping[str, str]] = _TEXTS["commands"]
"""The messages of :func:`wheel_udf.commands.parse.parse_commands` by their code, in the order of the rules."""

WATCH_TEXTS: Final[Mapping[str, str]] = TEXTS | _TEXTS["watch"]
"""The messages of :mod:`wheel_udf.commands.operations` by their code."""


@dataclass
class Read:
    """What was read from the columns of a batch, an array of n values each; null means missing, null or unreadable.

    Attributes:
        batch_ms: The time of the batch (int64, UTC epoch ms, as all instants).
        made_ms: The event time.
        destination: Text.
        key: Bytes, as ``value``.
        headers: Of type :data:`wheel_udf.commands.readers.HEADERS`.
    """

    batch_ms: pa.Int64Array
    made_ms: pa.Int64Array
    destination: pa.StringArray
    key: pa.BinaryArray
    value: pa.BinaryArray
    headers: pa.ListArray


class Rule(NamedTuple):
    """One rule: its code (none: the row is good), which rows break it, and the value to show."""

    code: str | None
    broken: pa.BooleanArray
    value: Shown


def nothing(_row: int) -> None:
    """The value of a rule that has none to show."""


def values_of(values: pa.Array) -> Shown:
    """The values of an array as texts."""
    return lambda row: text_of(values[row])


def instants_of(instants_ms: pa.Int64Array) -> Shown:
    """Instants (UTC epoch ms) as texts, as far as a timestamp goes."""

    def shown_instant(row: int) -> str | None:
        at_ms = instants_ms[row].as_py()
        return None if at_ms is None else utc_text(max(-MAX_INSTANT_MS, min(MAX_INSTANT_MS, at_ms)) * 1_000)

    return shown_instant


def is_ill_formed(names: pa.BinaryArray) -> pa.BooleanArray:
    """Which ids are too long, not UTF-8, or have a NUL."""
    is_long = pc.greater(pc.binary_length(names), MAX_ID_BYTES)
    return pc.or_(pc.or_(pc.invert(read.is_utf8(names)), is_long), pc.match_substring(names, "\0"))


def record_rules(given: Given) -> list[Rule]:
    """The rules of rows that the source could not read, or not as the types of their columns; they come first."""
    codes = {"bad_type": MISREAD, "unreadable": UNREADABLE}
    return [
        Rule(code, given.is_there(name), given.shown(name))
        for code, name in codes.items()
        if given.has_values(name)
    ]


def id_rules(what: str, names: pa.BinaryArray) -> list[Rule]:
    """The rules of a required id."""
    is_missing = pc.or_kleene(pc.is_null(names), pc.equal(pc.binary_length(names), 0))
    return [
        Rule(f"no_{what}", is_missing, values_of(names)),
        Rule(f"bad_{what}", is_ill_formed(names), values_of(names)),
    ]


def event_time_rules(given: Given, rows: Read, contract: Contract) -> list[Rule]:
    """The rules of ``event_time``, in order."""
    if "event_time" not in given:
        return []
    rules = [Rule("bad_event_time", pc.is_null(rows.made_ms), given.shown("event_time"))]
    if contract.max_ahead_ms is not None:
        ahead = is_ahead(rows, contract.max_ahead_ms)
        rules.append(Rule("event_time_ahead", ahead, instants_of(rows.made_ms)))
    return rules


def is_ahead(rows: Read, max_ahead_ms: int) -> pa.BooleanArray:
    """Which event times are too far after the time of the batch."""
    ahead = pc.greater(pc.subtract(rows.made_ms, rows.batch_ms), max_ahead_ms)
    return pc.fill_null(ahead, fill_value=False)


def is_too_far(rows: Read, due_ms: pa.Int64Array, contract: Contract) -> pa.BooleanArray:
    """Which due times are beyond the last timestamp, or beyond ``max_delay_ms``."""
    too_far = pc.greater(pc.abs(due_ms), MAX_INSTANT_MS)
    if contract.max_delay_ms is None:
        return too_far
    from_ms = pc.min_element_wise(rows.made_ms, rows.batch_ms) if contract.from_batch else rows.made_ms
    return pc.or_kleene(too_far, pc.greater(pc.subtract(due_ms, from_ms), contract.max_delay_ms))


def destination_rules(given: Given, rows: Read, contract: Contract) -> list[Rule]:
    """The rules of ``destination``, in order."""
    if "destination" not in given and contract.default_destination is not None:
        return []
    name, shown_name = rows.destination, values_of(rows.destination)
    # A batch names few destinations, each many times.
    each = name.dictionary_encode()
    names = each.dictionary.to_pylist()
    allowed = None if contract.destinations is None else _allow_list(contract.destinations)
    is_name = pa.array(map(is_destination_name, names), pa.bool_())
    rules = [
        Rule("no_destination", pc.is_null(name), shown_name),
        Rule("bad_destination", pc.invert(is_name).take(each.indices), shown_name),
    ]
    if allowed is not None:
        is_listed = pa.array((each is not None and each in allowed for each in names), pa.bool_())
        rules.append(Rule("unknown_destination", pc.invert(is_listed).take(each.indices), shown_name))
    return rules


@lru_cache(maxsize=8)
def _allow_list(patterns: tuple[str, ...]) -> AllowList:
    """An allow-list, compiled once for all batches of a worker."""
    return AllowList(patterns)


def size_rules(rows: Read, contract: Contract) -> list[Rule]:
    """The rule of value, key and headers, if they have a limit."""
    if contract.max_value_bytes is None:
        return []
    sizes = payload_bytes(rows)
    return [Rule("oversize", pc.greater(sizes, contract.max_value_bytes), values_of(sizes))]


def payload_bytes(rows: Read) -> pa.Int64Array:
    """Bytes of value, key and headers together."""
    total = read.headers_octets(rows.headers)
    for part in (rows.key, rows.value):
        total = pc.add(total, pc.fill_null(pc.binary_length(part), 0))
    return total


def first_broken(rules: Sequence[Rule], rows: int) -> npt.NDArray[np.int64]:
    """The number of the first broken rule of each row; :data:`GOOD` if none is, or the first one has no code."""
    found = np.full(rows, _NOT_YET, np.int64)
    for number, rule in enumerate(rules):
        if pc.any(rule.broken).as_py():
            broken = pc.fill_null(rule.broken, fill_value=False).to_numpy(zero_copy_only=False)
            found[broken & (found == _NOT_YET)] = GOOD if rule.code is None else number
    found[found == _NOT_YET] = GOOD
    return found


class Messages:
    """What is wrong with a row: field, value, rule and hint, in the form of ``WheelError``.

    Args:
        contract: Its limits are in the texts.
        texts: The texts by their codes.
    """

    def __init__(self, contract: Contract, texts: Mapping[str, str]) -> None:
        self._texts: Final = texts
        self._named: Final = _CONSTANTS | {
            "max_ahead_ms": contract.max_ahead_ms,
            "max_value_bytes": contract.max_value_bytes,
            "max_delay": "any time"
            if contract.max_delay_ms is None
            else f"at most {contract.max_delay_ms} ms",
            "counted_from": "event_time"
            + (" and after the time of the batch" if contract.from_batch else ""),
            "allowed": shortened(contract.destinations or ()),
            "last_level": _last_level(contract),
        }

    def of(self, rule: Rule, row: int) -> str:
        """The message of a row that breaks a rule."""
        value = rule.value(row)
        template = self._texts[rule.code or ""].format_map(self._named)
        return template.replace(_VALUE, "null" if value is None else f"'{value[:_LONGEST_VALUE]}'")


def _last_level(contract: Contract) -> str | None:
    last_ms = None if contract.levels is None else refused_beyond_ms(contract.levels)
    return None if last_ms is None else level_name(last_ms)
