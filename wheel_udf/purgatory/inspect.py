"""Lists the operations of a shard of a purgatory, from the text of its state. For tools; no step uses it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.purgatory.state import BEAT, HELD_LEVEL, NEVER, REQUEST_SCHEMA, RESTING_LEVEL, SUM
from wheel_udf.shard.chunks import MEMORY_LEVEL, Chunk
from wheel_udf.shard.shard_text import chunks_from_text

_AS_THEY_ARE = ("op_id", "group", "keys", "destination", "key", "value", "headers", "source")
_INSTANTS = ("event_time_ms", "deadline_ms", "limit_ms")

LOOK_SCHEMA = pa.schema(
    [
        *(REQUEST_SCHEMA.field(name) for name in (*_AS_THEY_ARE, *_INSTANTS)),
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


def operations_of_text(text: str) -> pa.Table:
    """All operations of a shard's state (``LOOK_SCHEMA``), from the column ``chunks`` of its row."""
    tables = [_looked_at(chunk) for chunk in chunks_from_text(text) if _place(chunk) is not None]
    return pa.concat_tables([LOOK_SCHEMA.empty_table(), *tables])


def _place(chunk: Chunk) -> str | None:
    if chunk.level > MEMORY_LEVEL:
        return "open"
    return {RESTING_LEVEL: "resting", HELD_LEVEL: "held"}.get(chunk.level)


def _looked_at(chunk: Chunk) -> pa.Table:
    rows, place = chunk.table(), _place(chunk)
    blank = {"generation": 1, "total": 0.0}
    columns = {name: rows[name] for name in _AS_THEY_ARE} | {
        "rule": pa.array(_rules(rows)),
        "present": _present(rows) if place != "held" else pa.array([[]] * chunk.rows, pa.list_(pa.string())),
        "place": pa.repeat(place, chunk.rows),
        **{name: rows[name] if place != "held" else pa.repeat(blank[name], chunk.rows) for name in blank},
        **{name: rows[name] for name in _INSTANTS},
    }
    if place != "held":
        columns |= _instants(rows)
    return pa.table([columns[name] for name in LOOK_SCHEMA.names], schema=LOOK_SCHEMA)


def _instants(rows: pa.Table) -> dict[str, pa.Array]:
    """The instants of an operation's current generation; null at rest."""
    event_ms, deadline_ms, span_ms = (
        rows[name].to_numpy() for name in ("event_time_ms", "deadline_ms", "limit_delay_ms")
    )
    at_rest = event_ms == NEVER
    none = at_rest | (span_ms == 0)
    return {
        "event_time_ms": pa.array(event_ms, mask=at_rest),
        "deadline_ms": pa.array(deadline_ms, mask=at_rest),
        "limit_ms": pa.array(np.where(none, 0, event_ms) + span_ms, mask=none),
    }


def _present(rows: pa.Table) -> pa.ListArray:
    keys = rows["keys"].combine_chunks()
    done = rows["done_at_ms"].combine_chunks().flatten().to_numpy() != NEVER
    parents = pc.list_parent_indices(keys).to_numpy()
    counts = np.bincount(parents[done], minlength=len(keys))
    return pa.ListArray.from_arrays(
        pa.array(np.r_[0, np.cumsum(counts)], pa.int32()), keys.flatten().filter(pa.array(done))
    )


def _rules(rows: pa.Table) -> list[str]:
    sizes = pc.list_value_length(rows["keys"]).to_numpy()
    return [
        _rule(need, size, threshold)
        for need, size, threshold in zip(
            rows["need"].to_pylist(), sizes.tolist(), rows["threshold"].to_pylist(), strict=True
        )
    ]


def _rule(need: int, size: int, threshold: float) -> str:
    if need in (SUM, BEAT):
        return "beat" if need == BEAT else f"sum>={threshold:g}"
    return "any" if need == 1 else "all" if need == size else f"n:{need}"
