"""Lists the operations of a shard of a purgatory, from the text of its state. For tools; no step uses it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.purgatory.identity import opened_at_first
from wheel_udf.purgatory.state import BEAT, HELD_LEVEL, NEVER, REQUEST_SCHEMA, RESTING_LEVEL, SUM
from wheel_udf.shard.chunk_store import ChunkStore
from wheel_udf.shard.chunks import MEMORY_LEVEL
from wheel_udf.shard.shard_text import chunks_from_text

_PLACES = {RESTING_LEVEL: "resting", HELD_LEVEL: "held"}
LOOK_SCHEMA = pa.schema(
    [
        *(field for field in REQUEST_SCHEMA if field.name not in ("need", "threshold")),
        ("rule", pa.string()),
        ("present", pa.list_(pa.string())),
        ("total", pa.float64()),
        ("generation", pa.int32()),
        ("place", pa.string()),
    ]
)
"""An operation: its request (instants of joins and heartbeats as they are now), the keys with an event, the sum of
amounts, and its place: ``open``, ``resting`` (between two generations; its instants are null), or ``held`` (whether its
id is free is undecided)."""


def operations_of_text(text: str, texts: ChunkStore | None = None) -> pa.Table:
    """All operations of a shard's state (``LOOK_SCHEMA``), from the column ``chunks`` of its row."""
    tables = [LOOK_SCHEMA.empty_table()]
    for chunk in chunks_from_text(text, texts):
        place = "open" if chunk.level > MEMORY_LEVEL else _PLACES.get(chunk.level)
        if place is not None:
            tables.append(_looked_at(chunk.table(), place))
    return pa.concat_tables(tables)


def _looked_at(rows: pa.Table, place: str) -> pa.Table:
    if place == "held":
        rows = opened_at_first(rows, lookback_ms=0)
    event_ms, deadline_ms, span_ms = (
        rows[name].to_numpy() for name in ("event_time_ms", "deadline_ms", "limit_delay_ms")
    )
    at_rest = event_ms == NEVER
    unlimited = at_rest | (span_ms == 0)
    sizes = pc.list_value_length(rows["keys"]).to_pylist()
    rules = zip(rows["need"].to_pylist(), sizes, rows["threshold"].to_pylist(), strict=True)
    computed = {
        "event_time_ms": pa.array(event_ms, mask=at_rest),
        "deadline_ms": pa.array(deadline_ms, mask=at_rest),
        "limit_ms": pa.array(np.where(unlimited, 0, event_ms) + span_ms, mask=unlimited),
        "rule": pa.array([_rule(*rule) for rule in rules]),
        "present": _present(rows),
        "place": pa.repeat(place, rows.num_rows),
    }
    columns = [computed[name] if name in computed else rows[name] for name in LOOK_SCHEMA.names]
    return pa.table(columns, schema=LOOK_SCHEMA)


def _present(rows: pa.Table) -> pa.ListArray:
    keys = rows["keys"].combine_chunks()
    done = rows["done_at_ms"].combine_chunks().flatten().to_numpy() != NEVER
    parents = pc.list_parent_indices(keys).to_numpy()
    counts = np.bincount(parents[done], minlength=len(keys))
    return pa.ListArray.from_arrays(
        pa.array(np.r_[0, np.cumsum(counts)], pa.int32()), keys.flatten().filter(pa.array(done))
    )


def _rule(need: int, size: int, threshold: float) -> str:
    if need in (SUM, BEAT):
        return "beat" if need == BEAT else f"sum>={threshold:g}"
    return "any" if need == 1 else "all" if need == size else f"n:{need}"
