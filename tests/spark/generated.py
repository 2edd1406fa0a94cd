"""The Java code that Spark generates for a frame."""

from __future__ import annotations

from pyspark.sql import DataFrame


def generated_code(frame: DataFrame) -> list[str]:
    """The code of each stage that Spark compiles as a whole; those behind a shuffle are not known before it runs."""
    stages = frame._jdf.queryExecution().debug().codegenToSeq()
    return [stages.apply(number)._2() for number in range(stages.size())]
