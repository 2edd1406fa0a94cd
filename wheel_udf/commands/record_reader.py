"""Reads batches of Kafka records as commands: the presets ``native`` and ``scheduler``. What the columns are, and which
header or part of a record holds them: :mod:`wheel_udf.commands.kafka_presets`.

::

    key value topic partition offset timestamp headers batch_ms --NativeReader--> schedule_id op ... kafka
                                                                --SchedulerReader-->

It runs in Spark's Python workers, all records of an Arrow batch at a time. No data raises an error: what cannot be read
is passed on unchanged, and the rule of its column rejects it. A text may be no UTF-8, as in Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from wheel_udf.commands import readers as read
from wheel_udf.commands.header_names import CONSTANT, KEY, OFFSET, HeaderNames, header_of
from wheel_udf.commands.inputs import SOURCE_DELIVER_AT, SOURCE_EVENT_TIME, SOURCE_SEQ, UnfitTypeError
from wheel_udf.commands.record_headers import RecordHeaders
from wheel_udf.commands.records import KAFKA
from wheel_udf.commands.rules import SOURCE
from wheel_udf.commands.values import utc_text
from wheel_udf.common.command_facts import COMMAND_HEADERS, OUR_PREFIX, RETRY_FIELDS, SERIES_FIELDS
from wheel_udf.common.durations import BLANKS
from wheel_udf.common.instants import MAX_INSTANT_MS

RECORD: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
"""The connector's columns that are read, in this order."""

_SCHEDULERS: Final = "scheduler-"
_EPOCH, _TARGET, _TARGET_KEY = (f"{_SCHEDULERS}{name}" for name in ("epoch", "target-topic", "target-key"))
_LAST_EPOCH_S: Final = 10**12 - 1

_OF_RETRY: Final = tuple(name for name in RETRY_FIELDS if name != "attempt")
_OF_SERIES: Final = tuple(name for name in SERIES_FIELDS if name not in ("spread", "repeat"))
_BESIDE: Final = {"repeat": _OF_SERIES, "attempt": _OF_RETRY}
"""Columns that are read only beside the header of another one."""

_SECONDS: Final = (10**9, 10**10)
_BEYOND_MS: Final = 10**15
"""So many digits has another unit."""
_BLANK: Final = rf"\A[{BLANKS}]*(?i:null)?[{BLANKS}]*\z"
_WITHOUT_UNIT: Final = rf"\A[{BLANKS}]*(?P<number>[+-]?[0-9.]+)[{BLANKS}]*\z"
_UTC: Final = pa.timestamp("us", "UTC")
_YEARS_MS: Final = (-62_135_596_800_000, 253_402_300_799_999)
"""The years 1 to 9999, which Arrow writes as Spark does."""


@dataclass(frozen=True)
class NativeReader:
    """Reads records by their ``wheel-*`` headers.

    Args:
        names: The headers of other systems that are read, too.
    """

    names: HeaderNames

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Reads a batch of :data:`RECORD`.

        Raises:
            UnfitTypeError: A column has not the connector's type.
        """
        record = _record(batch)
        headers = RecordHeaders(record["headers"], (*COMMAND_HEADERS.values(), *self.names.headers))
        columns = _own_columns(headers)
        for column, values in self._named_columns(record, headers).items():
            columns[column] = pc.coalesce(columns[column], values)
        due, made = columns["deliver_at"], columns["event_time"]
        made_at = pc.if_else(pc.is_null(made), record["timestamp"], _instants(epochs_ms(made)))
        own_key = _part(self.names.key_from, record, headers)
        columns |= {name: _text(_utc_texts(columns[name])) for name in ("starts_at", "until")}
        columns |= {
            "deliver_at": _text(due),
            "event_time": _text(made),
            SOURCE_DELIVER_AT: _instants(epochs_ms(due)),
            SOURCE_EVENT_TIME: made_at,
            "key": record["key"] if own_key is None else pc.coalesce(own_key, read.octets(record["key"])),
            "value": record["value"],
            "headers": headers.others([OUR_PREFIX], self.names.times),
        }
        columns |= _origin(record, *([] if own_key is None else ["key"]), "headers")
        return pa.RecordBatch.from_pydict(columns)

    def _named_columns(
        self, record: Mapping[str, pa.Array], headers: RecordHeaders
    ) -> dict[str, pa.BinaryArray]:
        """The columns that other headers, or other parts of the record, hold."""
        names = self.names
        columns = {
            "schedule_id": _part(names.id_from, record, headers),
            "destination": _part(names.destination_from, record, headers),
            "seq": _part(names.seq_from, record, headers),
        }
        if (name := header_of(names.due_from)) is not None:
            columns["deliver_at"] = _none_if_blank(headers.value(name))
        if (name := header_of(names.delay_from)) is not None:
            columns["delay"] = _with_unit(headers.value(name), names)
        return {column: values for column, values in columns.items() if values is not None}


@dataclass(frozen=True)
class SchedulerReader:
    """Reads records by their ``scheduler-*`` headers."""

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Reads a batch of :data:`RECORD`.

        Raises:
            UnfitTypeError: A column has not the connector's type.
        """
        record = _record(batch)
        headers = RecordHeaders(record["headers"], (_EPOCH, _TARGET, _TARGET_KEY), last=False)
        columns = {
            "schedule_id": record["key"],
            "op": pc.if_else(pc.is_null(record["value"]), "CANCEL", pa.scalar(None, pa.string())),
            "deliver_at": _text(_of_seconds(headers.value(_EPOCH))),
            "event_time": record["timestamp"],
            "destination": headers.value(_TARGET),
            "key": headers.value(_TARGET_KEY),
            "value": record["value"],
            "headers": headers.others([_SCHEDULERS, OUR_PREFIX]),
        }
        return pa.RecordBatch.from_pydict(columns | _origin(record, "headers"))


# --- parts of a record ----------------------------------------------------------------------------


def _record(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """The columns of records by name. Spark hands instants over in the zone of the session; only the zone differs."""
    record = dict(zip(RECORD, batch.columns, strict=False))
    for name in ("key", "value"):
        if not read.are_octets(record[name].type):
            raise UnfitTypeError(name, "binary or string")
    if not kinds.is_timestamp(record["timestamp"].type):
        raise UnfitTypeError("timestamp", "timestamp")
    return record | {"timestamp": record["timestamp"].cast(_UTC)}


def _own_columns(headers: RecordHeaders) -> dict[str, pa.BinaryArray]:
    """The columns that ``wheel-*`` headers hold."""
    columns = {column: headers.value(name) for column, name in COMMAND_HEADERS.items()}
    for first, others in _BESIDE.items():
        are_there = headers.are_there(COMMAND_HEADERS[first])
        nothing = pa.nulls(len(columns[first]), pa.binary())
        for other in others:
            columns[other] = nothing if are_there is None else pc.if_else(are_there, columns[other], None)
    return columns


def _part(
    setting: str | None, record: Mapping[str, pa.Array], headers: RecordHeaders
) -> pa.BinaryArray | None:
    """The part of the records that a setting names; None if it names none."""
    if setting == KEY:
        return read.octets(record["key"])
    if setting == OFFSET:
        return _coordinates(record).cast(pa.binary())
    if setting == CONSTANT:
        return pa.repeat(pa.scalar(b"0"), len(record["key"]))
    name = header_of(setting)
    return None if name is None else headers.value(name)


def _coordinates(record: Mapping[str, pa.Array]) -> pa.StringArray:
    parts = (record[name].cast(pa.string()) for name in ("topic", "partition", "offset"))
    return pc.binary_join_element_wise(*parts, "/", null_handling="skip")


def _origin(record: Mapping[str, pa.Array], *parts: str) -> dict[str, pa.Array]:
    """The origin of the rows, and the parts of the records that the other columns do not hold."""
    names = ("topic", "partition", "offset", "timestamp", *parts)
    return {
        SOURCE: _coordinates(record),
        SOURCE_SEQ: record["offset"],
        KAFKA: pa.StructArray.from_arrays([record[name] for name in names], names=names),
    }


# --- texts of headers -----------------------------------------------------------------------------


def _text(octets: pa.BinaryArray) -> pa.StringArray:
    """Bytes as text as they are, as Spark casts them: what reads a text looks whether it is UTF-8."""
    return octets.view(pa.string())


def _none_if_blank(texts: pa.BinaryArray) -> pa.BinaryArray:
    return pc.if_else(pc.match_substring_regex(texts, _BLANK), None, texts)


def _with_unit(texts: pa.BinaryArray, names: HeaderNames) -> pa.BinaryArray:
    """Delays; a number without a unit gets that of the settings."""
    if names.delay_unit is None:
        return _none_if_blank(texts)
    number = pc.struct_field(pc.extract_regex(texts, _WITHOUT_UNIT), 0)
    if names.delay_unit == "level":
        spans = [f"{span_ms} ms".encode() for span_ms in (0, *names.levels_ms)]
        level = pc.index_in(number, value_set=pa.array([str(each).encode() for each in range(len(spans))]))
        is_none = pc.binary_join_element_wise(b"level", number, b" ")
        number = pc.coalesce(pa.array(spans, pa.binary()).take(level), is_none)
    else:
        number = pc.binary_join_element_wise(number, names.delay_unit.encode(), b" ")
    return pc.coalesce(number, _none_if_blank(texts))


def _of_seconds(texts: pa.BinaryArray) -> pa.BinaryArray:
    """Whole epoch seconds as text; other text must not be read as another instant: with the header's name in front it
    is none.
    """
    number = read.whole_number(texts)
    is_instant = pc.and_(pc.greater_equal(number, -_LAST_EPOCH_S), pc.less_equal(number, _LAST_EPOCH_S))
    number = pc.if_else(is_instant, number, None)
    other = pc.binary_join_element_wise(f"{_EPOCH} ".encode(), texts, b", not whole seconds", b"")
    return pc.coalesce(_utc_text_of(pc.multiply(number, 1_000)).cast(pa.binary()), other)


# --- instants -------------------------------------------------------------------------------------


def epochs_ms(texts: pa.BinaryArray) -> pa.Int64Array:
    """The instants of whole numbers (UTC epoch ms); null for other text, another unit, or beyond any timestamp."""
    number = read.whole_number(texts)
    # Of ten digits it is in seconds. Before 1970 any number counts: there are no negative seconds to be taken for ms.
    first, last = _SECONDS
    is_seconds = pc.and_(pc.greater_equal(number, first), pc.less(number, last))
    within = pc.and_(pc.greater_equal(number, -MAX_INSTANT_MS), pc.less(number, _BEYOND_MS))
    return pc.if_else(pc.and_not(within, is_seconds), number, None)


def _instants(instants_ms: pa.Int64Array) -> pa.TimestampArray:
    return pc.multiply(instants_ms, 1_000).cast(_UTC)


def _utc_texts(texts: pa.BinaryArray) -> pa.BinaryArray:
    """Texts, and whole numbers (UTC epoch ms) as texts."""
    if texts.null_count == len(texts):
        return texts
    return pc.coalesce(_utc_text_of(epochs_ms(texts)).cast(pa.binary()), texts)


def _utc_text_of(instants_ms: pa.Int64Array) -> pa.StringArray:
    """Instants (UTC epoch ms) such as ``2026-01-01 10:00:00.5Z``."""
    first, last = _YEARS_MS
    is_plain = pc.and_(pc.greater_equal(instants_ms, first), pc.less_equal(instants_ms, last))
    words = pc.if_else(is_plain, instants_ms, None).cast(pa.timestamp("ms")).cast(pa.string())
    words = pc.utf8_rtrim(pc.utf8_rtrim(words, "0"), ".")
    words = pc.binary_join_element_wise(words, "Z", "")
    left = pc.fill_null(pc.invert(is_plain), fill_value=False)
    if not pc.any(left).as_py():
        return words
    far = [utc_text(each * 1_000) for each in instants_ms.filter(left).to_pylist()]
    return pc.replace_with_mask(words, left, pa.array(far, pa.string()))
