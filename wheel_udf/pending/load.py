"""The later occurrences of pending series as load to come: counted on executors, all series of one rule together.

::

    pending series --alike ones become one row--> by rule and zone --policies.series_load--> steps, destinations, rows
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from wheel_udf.policies.series_load import LOAD_SCHEMA, SERIES_SCHEMA, Steps, later_occurrences

_CORE: Final = ("repeat", "time_zone", "on_gap", "on_fold")
"""What decides the instants of a rule."""


def later_load(rows: DataFrame, steps: Steps) -> DataFrame:
    """Counts the later occurrences of pending series, paused ones left out.

    Args:
        rows: The table of :func:`wheel_udf.pending.entries.pending`, with the bytes of each payload in ``_bytes``.
        steps: The steps.

    Returns:
        ``from_ms`` long, ``destination`` string, ``rows`` long, ``bytes`` long, ``estimated`` long: the same as
        ``rows``.
    """

    def counted(some: pa.Table) -> pa.Table:
        return later_occurrences(some.select(SERIES_SCHEMA.names).cast(SERIES_SCHEMA), steps)

    # Rounded, so that many are alike.
    spread_ms = F.coalesce("spread_ms", F.lit(0))
    rest_ms = F.pmod(spread_ms, F.lit(steps.unit_ms))
    series = rows.where("repeat IS NOT NULL AND NOT paused").select(
        *(F.get_json_object("repeat", f"$.{name}").alias(f"_{name}") for name in _CORE),
        "repeat",
        "anchor_ms",
        F.unix_millis("deliver_at").alias("nominal_ms"),
        (F.unix_millis("scheduled_at") - rest_ms).alias("released_ms"),
        (spread_ms - rest_ms).alias("spread_ms"),
        "occurrence",
        "destination",
        "_bytes",
    )
    keys = [name for name in series.columns if name != "_bytes"]
    alike = series.groupBy(*keys).agg(F.count(F.lit(1)).alias("rows"), F.sum("_bytes").alias("bytes"))
    load: DataFrame = alike.groupBy(*(f"_{name}" for name in _CORE)).applyInArrow(
        counted, from_arrow_schema(LOAD_SCHEMA)
    )
    return load.withColumn("estimated", F.col("rows"))
