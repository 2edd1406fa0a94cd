"""Spark ``Column`` expressions that sources and operators share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, functions as F

from wheel_udf.commands.generated_code import of_batch
from wheel_udf.common.instants import MAX_INSTANT_MS

HEADERS: Final = "array<struct<key:string,value:binary>>"
"""The type of headers, as in Kafka's connector."""

LONG_JSON: Final[Mapping[str, str]] = {"maxStringLen": str(2**31 - 1)}
"""Options of Spark's readers of JSON. By default a text of over 20,000,000 characters makes the record unreadable."""


def batch_ms() -> Column:
    """The time of the batch (UTC epoch ms). Spark journals it before a streaming batch: a replay reads the same."""
    return of_batch(F.unix_millis(F.current_timestamp()))


def utc_text(instant_ms: Column) -> Column:
    """Writes an instant (UTC epoch ms) as text that commands may have, such as ``2026-01-01 10:00:00.5Z``.

    A timestamp's own text would be in the zone of the session. The instant is bounded, since Spark may compute it
    for rows that do not use it.
    """
    within = F.greatest(F.lit(-MAX_INSTANT_MS), F.least(F.lit(MAX_INSTANT_MS), instant_ms))
    epoch = F.lit("1970-01-01").cast("timestamp_ntz")
    return F.concat(F.timestamp_add("MILLISECOND", within, epoch).cast("string"), F.lit("Z"))


def readable(octets: Column) -> Column:
    """Bytes as text where they are UTF-8, else as ``base64:...``."""
    words = octets.cast("string")
    plain = F.is_valid_utf8(words) & ~F.startswith(words, F.lit("base64:"))
    return F.when(plain, words).otherwise(F.concat(F.lit("base64:"), F.base64(octets)))
