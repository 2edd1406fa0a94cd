r"""Reads records that are one JSON object each, and keeps the bytes of the producer.

A field that is a text gives its characters. A field that is an object, an array, a number, true or false gives its
JSON exactly as it was written: white space, digits, escapes, repeated names. Null is a missing field. ``headers`` is
an object (a name may be repeated) or an array of objects with ``key`` and ``value``; the values follow the same rule.

A record is UTF-8 and strict JSON (RFC 8259): nothing behind the object, no byte order mark, no raw control character
in a text, no NaN, numbers of at most 1,000 digits, at most 999 levels. Otherwise it is unreadable: null, never an
error. Of a repeated field the last one counts. A name may be written with escapes. In a text a surrogate without its
partner (``\ud800``) has no UTF-8 and becomes ``?``.

``from_json`` has no byte positions, and writes anew what is not a text (0.10 becomes 0.1, 1E400 ``"Infinity"``); a
Python UDF would send every record through a Python process. So the records that ``from_json`` may have changed, and no
others, are cut by a regular expression into pieces, which are made an array of texts; ``from_json`` then finds which
belong together::

    the record    {"id": "a", "value": [0.10, 2]}
    its pieces    ["{", "\"id\": \"a\", \"value\": ", ["[", "0.10, 2", "]"], "}"]
    elements      bracket, text up to the inner value, the pieces of the inner value, bracket
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, functions as F

from wheel_udf.commands.columns import HEADERS, LONG_JSON, readable
from wheel_udf.commands.generated_code import evaluate_once, interpreted
from wheel_udf.commands.rules import UNREADABLE
from wheel_udf.common.command_facts import RETRY_FIELDS, SERIES_FIELDS

COMMAND_FIELDS: Final = (
    *("schedule_id", "op", "seq", "deliver_at", "delay", "event_time"),
    *("destination", "key", "value", "headers", "max_lateness"),
    *SERIES_FIELDS,
    *RETRY_FIELDS,
)
_EXACT: Final = ("schedule_id", "op_id", "group", "keys", "key", "value")
_STRICT: Final = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false", **LONG_JSON}
_OF_PIECES: Final = {**_STRICT, "allowUnquotedControlChars": "true"}
_PAIRS: Final = "array<struct<key: string, value: string>>"

# Possessive (*+, ++): Java repeats such a group in a loop, others by recursion, which would overflow its stack.
_BLANK: Final = r"[ \t\r\n]*+"
_TEXT: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# A text where each backslash and quote has got a backslash.
_ESCAPED: Final = r'\\"[^\\]*+(?:\\\\(?:\\.|[^\\])[^\\]*+)*+\\"'
_RUNS: Final = rf"(?:[^\\{{}}\[\]]++|{_ESCAPED})++|[{{}}\[\]]"
_NAME: Final = rf"[ \t\r\n,]*+{_ESCAPED}{_BLANK}:{_BLANK}"
_TOKENS: Final = rf"{_NAME}|{_ESCAPED}|[{{}}\[\]]|[ \t\r\n,]++|[-+.\w]++"
_SEAM: Final = r'"(?<!\\")[\],\[]*+"'  # between two pieces
# What from_json makes of objects, arrays, fractions, -0 and 1E400; of other whole numbers it keeps all digits.
_REWRITTEN: Final = r'\A(?:[{\["]|-?[0-9]+\.|0\z)'
_REWRITTEN_HEADER: Final = r'":[ \t\r\n]*+(?:[-0-9{\[]|"-?Inf)'


def with_json_object(frame: DataFrame, record: Column, names: Sequence[str] = COMMAND_FIELDS) -> DataFrame:
    """Reads a column of records, binary or string; takes the fields of these names.

    Returns:
        The frame with ``_object``, a struct of texts (``headers`` of type
        :data:`~wheel_udf.commands.readers.HEADERS`), and ``_corrupt_record``, the text of an unreadable record. One of
        both is null.
    """
    text = record.cast("string")
    # All texts: no type makes Spark drop half of a row. In brackets: of a value Spark ignores what follows it, but it
    # reads an array to its end.
    kind = f"array<struct<{', '.join(f'`{name}`: string' for name in names)}>>"
    in_brackets = F.when(F.is_valid_utf8(text), F.concat(F.lit("["), text, F.lit("]")))
    frame = frame.select("*", F.from_json(in_brackets, kind, _STRICT).alias("_parsed"))
    trimmed = _trimmed(text)
    is_one = (F.size("_parsed") == 1) & F.startswith(trimmed, F.lit("{")) & F.endswith(trimmed, F.lit("}"))
    frame = frame.select("*", F.when(is_one, F.get("_parsed", F.lit(0))).alias("_read"))
    fields = {name: F.col(f"_read.{name}") for name in names}
    rewritten = {name: fields[name].rlike(_REWRITTEN) for name in names if name in _EXACT}
    if "headers" in names:
        rewritten["headers"] = fields["headers"].rlike(_REWRITTEN_HEADER)
    is_cut = F.lit(False)
    for name, maybe in rewritten.items():
        is_no_text = F.lit(name == "headers") | text.rlike(rf'{_name_of(name)}[^" \t\r\n]')
        rewritten[name] = maybe & is_no_text & ~_is_as_written(text, name, fields[name])
        is_cut |= rewritten[name]
    exact = evaluate_once(
        _pieces(text, _RUNS),
        lambda pieces: F.struct(
            *(F.when(maybe, _text_of(_member(pieces, name))).alias(name) for name, maybe in rewritten.items())
        ),
    )
    frame = frame.select("*", interpreted(exact, is_cut).alias("_exact"))
    fields |= {name: F.coalesce(f"_exact.{name}", fields[name]) for name in rewritten}
    is_readable = F.col("_read").isNotNull()
    if "headers" in names:
        frame = frame.select("*", fields["headers"].alias("_headers_json"))
        frame = frame.select("*", _pairs(F.col("_headers_json")).alias("_pairs"))
        values = interpreted(
            _exact_pairs(F.col("_pairs"), F.col("_headers_json")), F.col("_exact.headers").isNotNull()
        )
        fields["headers"] = F.coalesce(values, "_pairs").cast(HEADERS)
        is_readable &= F.col("_headers_json").isNull() | F.col("_pairs").isNotNull()
    whole = F.struct(*(column.alias(name) for name, column in fields.items()))
    corrupt = F.when(~is_readable, F.coalesce(readable(record.cast("binary")), F.lit("null")))
    return frame.select("*", F.when(is_readable, whole).alias("_object"), corrupt.alias(UNREADABLE))


def exact_texts(array: Column) -> Column:
    """The elements of a JSON array, each as a field of a record; null if it is not an array."""
    are_texts = array.rlike(rf"\A\[{_BLANK}(?:{_TEXT}[ \t\r\n,]*+)*+\]")
    elements = F.filter(_pieces(array, _TOKENS), lambda each: ~each.rlike(r"\A[ \t\r\n,\[\]]*+\z"))
    exact = interpreted(F.transform(elements, lambda each: _text_of(_json_of(each))), ~are_texts)
    return F.coalesce(exact, F.from_json(array, "array<string>", _STRICT))


def _pairs(headers: Column) -> Column:
    """Names and values of headers, as ``from_json`` writes them; null if they are not headers."""
    array = F.from_json(headers, _PAIRS, _STRICT)
    named = evaluate_once(
        array, lambda all_: F.when(~F.exists(all_, lambda each: each.getField("key").isNull()), all_)
    )
    of_array = interpreted(named, F.startswith(_trimmed(headers), F.lit("[")))
    return F.coalesce(
        F.map_entries(F.from_json(headers, "map<string, string>", _STRICT)).cast(_PAIRS), of_array
    )


def _exact_pairs(pairs: Column, headers: Column) -> Column:
    def values(pieces: Column) -> Column:
        of_object = F.filter(pieces, lambda each, at: (at > 0) & (at % 2 == 0) & (each != F.lit("}")))
        objects = F.filter(pieces, lambda each: F.startswith(each, F.lit('["')))
        return F.when(
            F.startswith(_trimmed(headers), F.lit("{")), F.transform(of_object, _json_of)
        ).otherwise(F.transform(objects, lambda each: _member(_pieces(_json_of(each), _RUNS), "value")))

    return F.zip_with(
        pairs,
        evaluate_once(_pieces(headers, _TOKENS), values),
        lambda pair, json: F.struct(
            pair.getField("key").alias("key"),
            F.coalesce(_text_of(json), pair.getField("value")).alias("value"),
        ),
    )


# --- pieces ---------------------------------------------------------------------------------------


def _pieces(json: Column, pattern: str) -> Column:
    """The outermost pieces of an object or array: brackets, matches of the pattern, pieces of inner ones as JSON."""
    escaped = F.replace(_trimmed(json), F.lit("\\"), F.lit("\\\\"))
    escaped = F.replace(escaped, F.lit('"'), F.lit('\\"'))
    nested = F.regexp_replace(escaped, pattern, ',"$0"')
    for bracket in "{[":
        nested = F.replace(nested, F.lit(f',"{bracket}"'), F.lit(f',["{bracket}"'))
    for bracket in "}]":
        nested = F.replace(nested, F.lit(f',"{bracket}"'), F.lit(f',"{bracket}"]'))
    return _array(F.substring(nested, 2, 2**31 - 1))


def _trimmed(json: Column) -> Column:
    return F.btrim(json, F.lit(" \t\r\n"))


def _array(json: Column) -> Column:
    return F.from_json(json, "array<string>", _OF_PIECES)


def _json_of(piece: Column) -> Column:
    """The JSON that a piece stands for."""

    def joined(each: Column) -> Column:
        inside = F.regexp_replace(F.substring(each, F.lit(3), F.length(each) - 4), _SEAM, "")
        inside = F.concat(F.lit('["'), inside, F.lit('"]'))
        return F.when(F.startswith(each, F.lit('["')), F.get(_array(inside), F.lit(0))).otherwise(each)

    return evaluate_once(piece, joined)


def _text_of(json: Column) -> Column:
    """The characters of a text, other JSON as it is; null for null."""

    def read(each: Column) -> Column:
        text = F.get(_array(F.concat(F.lit("["), each, F.lit("]"))), F.lit(0))
        return F.when(F.startswith(each, F.lit('"')), text).otherwise(F.nullif(each, F.lit("null")))

    return evaluate_once(json, read)


def _member(pieces: Column, name: str) -> Column:
    """The JSON of the last member of a name, from the runs of its object; null where there is none."""
    last = rf"(?s)\A.*{_name_of(name)}({_TEXT}|[-+.\w]*+)"

    def found(place: Column) -> Column:  # counted from the end
        scalar = F.regexp_extract(F.try_element_at(pieces, -place), last, 1)
        inner = _json_of(F.try_element_at(pieces, 1 - place))
        return F.when(place > 1, F.coalesce(F.nullif(scalar, F.lit("")), inner))

    has_name = F.transform(pieces, lambda each: each.rlike(_name_of(name)))
    return evaluate_once(F.array_position(F.reverse(has_name), F.lit(True)).cast("int"), found)


def _is_as_written(text: Column, name: str, json: Column) -> Column:
    """Whether the only member of a name is the JSON that ``from_json`` makes of it, as most libraries write it."""
    member = F.concat(F.lit(f'"{name}":'), json)
    is_there = F.contains(text, F.concat(member, F.lit(","))) | F.contains(text, F.concat(member, F.lit("}")))
    return is_there & (F.regexp_count(text, F.lit(_name_of(name))) == 1)


def _name_of(name: str) -> str:
    """The pattern of a name with its colon; each letter may be an escape."""
    letters = (rf"(?:{each}|\\u00(?i:{ord(each):02x}))" for each in name)
    return f'"{"".join(letters)}"{_BLANK}:{_BLANK}'
