"""The original row of a reject, as JSON: instants in UTC, nulls left out, bytes as text where they are UTF-8
and else as ``base64:...``.

Bytes in structs and in arrays of structs are written the same way. Bytes in other arrays and in maps are
plain base64, and broken text there has U+FFFD in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from wheel_udf.commands.values import json_of_fields

PAYLOAD: Final = ("key", "value", "headers")
KAFKA: Final = "kafka"
"""The column in which presets keep the record, with parts of the payload."""


class Records:
    """The rows of a batch, as they were received.

    Args:
        names: Of all columns, as the user spells them.
        columns: Their values; further ones are not the user's.
        left_out: Names, in lower case, that are not the user's.
    """

    def __init__(self, names: Sequence[str], columns: Sequence[pa.Array], left_out: Sequence[str]) -> None:
        self._kept: Final = [
            (name, column)
            for name, column in zip(names, columns, strict=False)
            if name.lower() not in left_out
        ]

    def of(self, row: int, *, with_payload: bool = True) -> str:
        """The JSON of a row; if asked, without the parts of its payload."""
        fields = [(name, column[row]) for name, column in self._kept]
        if with_payload:
            return json_of_fields(fields)
        return json_of_fields(fields, PAYLOAD, inside=KAFKA)
