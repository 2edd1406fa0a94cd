"""The original row of a reject, as JSON: instants in UTC, nulls left out, bytes as text where they are UTF-8
and else as ``base64:...``.

Bytes in structs and in arrays of structs are written the same way. Bytes in other arrays and in maps are
plain base64, and broken text there has U+FFFD in it.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, functions as F, types as T

from wheel_udf.commands.generated_code import evaluate_once
from wheel_udf.commands.inputs import Input

_RECORD_OPTIONS: Final = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_TEXTS: Final = (T.StringType, T.CharType, T.VarcharType, T.BinaryType)


def record_of(original: list[Input], *left_out: str) -> Column:
    """The JSON of a row, as it was received."""
    kept = [each for each in original if each.name.lower() not in left_out]
    texts = [each for each in kept if isinstance(each.kind, _TEXTS)]
    # All texts go through one lambda: an expression for each would be most of the plan of a batch.
    octets = F.array(*(each.column.cast("binary") for each in texts)).cast("array<binary>")
    return evaluate_once(F.transform(octets, readable), lambda words: _json_of(kept, texts, words))


def _json_of(kept: list[Input], texts: list[Input], words: Column) -> Column:
    """The JSON of the columns; ``words`` holds the written form of the texts among them."""
    written = {each.name: F.get(words, F.lit(at)) for at, each in enumerate(texts)}
    columns = (
        (written[each.name] if each.name in written else _recorded(each.column, each.kind)).alias(each.name)
        for each in kept
    )
    return F.to_json(F.struct(*columns), _RECORD_OPTIONS)


def _recorded(column: Column, kind: T.DataType) -> Column:
    """Texts and bytes, in structs and arrays of structs too, unchanged, or in base64 where JSON would not keep them."""
    if isinstance(kind, T.StructType):
        fields = (_recorded(column.getField(each.name), each.dataType).alias(each.name) for each in kind)
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(kind, T.ArrayType) and not isinstance(kind.elementType, T.AtomicType):
        return F.transform(column, lambda each: _recorded(each, kind.elementType))
    if not isinstance(kind, _TEXTS):
        return column
    return readable(column.cast("binary"))


def readable(octets: Column) -> Column:
    """Bytes as text where they are UTF-8, else as ``base64:...``."""
    words = octets.cast("string")
    plain = F.is_valid_utf8(words) & ~F.startswith(words, F.lit("base64:"))
    return F.when(plain, words).otherwise(F.concat(F.lit("base64:"), F.base64(octets)))
