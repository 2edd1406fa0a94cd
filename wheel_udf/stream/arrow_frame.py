"""Makes the output of a group a pandas frame of Arrow columns, so that no row becomes a Python object.

``applyInPandasWithState`` takes pandas frames. :mod:`wheel_udf.spark.arrow_groups` gives their columns to the JVM
as they are. Where it cannot, pyspark converts them to Arrow, which is still cheaper than from objects. A frame of few
rows costs about 1 ms more than one of objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from wheel_udf.spark.arrow_groups import ArrowColumn


def as_frame(parts: Sequence[pa.Table]) -> pd.DataFrame:
    """All output rows of a group, tables of one schema, as one frame: each frame has a fixed cost in pyspark."""
    table = pa.concat_tables(rows for rows in parts if rows.num_rows)
    columns = zip(table.schema.names, table.columns, strict=True)
    return pd.DataFrame({name: _column(values) for name, values in columns}, copy=False)


def _column(values: pa.ChunkedArray) -> Any:
    is_numpy = pa.types.is_integer(values.type) and not values.null_count
    return values.to_numpy() if is_numpy else ArrowColumn(values)
