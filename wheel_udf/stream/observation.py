"""Publishes the figures of each batch in ``observedMetrics`` of the query's progress, for any
``StreamingQueryListener``, also one written in Scala.

::

    schedule(...) --observed--> deliver(...)    progress.observedMetrics["wheel_udf"]  ->  Row(received=3, fired=1, ...)
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, functions as F

from wheel_udf.stream.frame_facts import facts_of

OBSERVATION: Final = "wheel_udf"
"""The name of the observation."""


def observed(frame: DataFrame) -> DataFrame:
    """Returns the frame of ``schedule`` or ``watch``, its figures observed as ``wheel_udf``: rows received, fired,
    missed and rejected by the batch, the largest lateness of a released row, and the wheel's clock (null for none).

    Raises:
        ContractError: The frame was made by neither operator.
    """
    if facts_of(frame).is_purgatory:
        is_released = (F.col("kind") == "outcome") & F.col("destination").isNotNull()
        late_ms = F.unix_millis("decided_at") - F.unix_millis("at")
    else:
        is_released, late_ms = F.col("kind") == "fired", F.col("lateness_ms")
    fired = F.count_if(is_released)
    if facts_of(frame).punctual is not None:  # what the sender has confirmed has fired, too
        fired += F.coalesce(F.sum(_of_status("confirmed_now")), F.lit(0))
    figures = {
        "received": F.coalesce(F.sum(_of_status("received")), F.lit(0)),
        "fired": fired,
        "missed": F.count_if(F.col("kind") == "missed"),
        "rejected": F.count_if(F.col("kind") == "rejected"),
        "lateness_max_ms": F.max(F.when(is_released, late_ms)),
        "clock_ms": F.max(_of_status("clock_ms")),
    }
    return frame.observe(OBSERVATION, *(column.alias(name) for name, column in figures.items()))


def _of_status(name: str) -> Column:
    return F.get_json_object("status", f"$.{name}").cast("long")
