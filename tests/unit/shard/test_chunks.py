"""What is written of a chunk is its rows, and nothing else that was in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from wheel_udf.shard.arrow_text import encoded


def test_a_null_number_is_written_as_zero_whatever_was_in_memory_before() -> None:
    remains = np.frombuffer(b"a secret id of 24 bytes!", np.int64)
    column = pa.array(remains, pa.int64(), mask=np.array([True, True, False]))
    table = pa.table({"at_ms": column, "name": ["a", None, "b"], "flag": [True, None, False]})

    written = encoded(table)

    assert b"a secret id" not in written.to_pybytes()
    assert pa.ipc.open_stream(written).read_all() == table
