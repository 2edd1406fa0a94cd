"""Acts on entries that wait in the state: their rows are small, and are completed from the entries that they change.

An act (:mod:`wheel_udf.pending.acts`) selects pending entries, reads their versions, and brings for each of them a row
with a higher ``amend``. Where the entries wait in the state (in the tiered mode: series), the row has no payload: the
shard has it already. It comes with the tick, or from the slot store (``ACTED``)::

    row of an act (ACT_SCHEMA)            entry of the state, same id and seq    command (COMMAND_SCHEMA)
    SCHEDULE (1, amend 1), due, ...    +  key, value, headers, ...            -> SCHEDULE (1, amend 1) with its payload
    SCHEDULE (1, amend 1), PAUSED_MS   +  series: as it is, due never          -> series that waits for its resumption
    SCHEDULE (1, amend 1), no due time +  series: goes on behind its next     -> new series, without a due time yet
    SCHEDULE (1, amend 1)              +  none: fired, cancelled, replaced    -> too late: superseded
    CANCEL (1, amend 0)                   not needed                          -> CANCEL (1, amend 0)
    ADD (1, amend 0), due, payload        not needed                          -> SCHEDULE (1, amend 0)

The fold does the rest (:mod:`wheel_udf.wheel.versions`): a command of the producer in the same batch that has a higher
version wins.

Cost: the chunks of these entries are opened, as for any command (:mod:`wheel_udf.wheel.known`), with their payloads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.shard.arrow_text import table_from_text
from wheel_udf.shard.chunks import Chunk
from wheel_udf.shard.rows import (
    CANCEL,
    COMMAND,
    COMMAND_SCHEMA,
    ENTRY_SCHEMA,
    HELD_COLUMNS,
    SCHEDULE,
    SERIES_COLUMNS,
    asked_ms,
    unheld_ms,
    with_columns,
)
from wheel_udf.shard.state import ShardState

ADD: Final = 2
"""``op`` of a row that adds an entry, with the payload that it carries."""

_CHANGED = (
    "schedule_id", "seq", "amend", "deliver_at_ms", "destination", "delay_level_ms", "level_error_ms", "occurrence",
)  # fmt: skip
CARRIED = ("max_lateness_ms", "key", "value", "headers", "source")
"""The payload that a row with :data:`ADD` carries; null of others."""

ACT_SCHEMA = pa.schema(
    [*map(ENTRY_SCHEMA.field, _CHANGED), COMMAND_SCHEMA.field("op"), *map(ENTRY_SCHEMA.field, CARRIED)]
)
"""A row of an act: the version, and what an act can change. Of a CANCEL the rest is null. ``occurrence`` is that of the
entry that was selected: once a series has gone on, an act on the occurrence before comes too late. Null stands for any:
a pause is of the series."""

_PAYLOAD = (*CARRIED, *SERIES_COLUMNS, *HELD_COLUMNS)


def acts_of_texts(texts: Sequence[str], schema: pa.Schema) -> pa.Table:
    """The rows of acts on a shard, one text each, in one table."""
    return pa.concat_tables([schema.empty_table(), *(table_from_text(text).cast(schema) for text in texts)])


def as_commands(state: ShardState, acts: pa.Table) -> tuple[pa.Table, int]:
    """Turns the rows of acts into commands.

    Args:
        state: The shard before the batch.
        acts: ``ACT_SCHEMA``.

    Returns:
        The commands (``COMMAND_SCHEMA``), and the number of rows that came too late: their entries no longer wait.
    """
    changes, cancels, adds = (acts.filter(pc.equal(acts["op"], op)) for op in (SCHEDULE, CANCEL, ADD))
    adds = with_columns(adds, op=pa.repeat(pa.scalar(SCHEDULE, pa.int8()), adds.num_rows))
    changed = []
    if changes.num_rows:
        places = state.places_of(changes["schedule_id"].combine_chunks().unique())
        changed = [_completed(chunk, changes) for chunk in state.entry_chunks if chunk.number in places]
    commands = pa.concat_tables([_commands(pa.concat_tables([cancels, adds]), {}, seq_given=True), *changed])
    return commands, acts.num_rows - commands.num_rows


def _completed(chunk: Chunk, changes: pa.Table) -> pa.Table:
    """The changes of entries in a chunk, each with the payload of its entry."""
    rows = chunk.table("schedule_id", "seq", "occurrence")
    ids = pc.unique(changes["schedule_id"])
    if not pc.any(pc.is_in(rows["schedule_id"], value_set=ids)).as_py():
        return COMMAND_SCHEMA.empty_table()
    # An id is pending once, but several acts can have changed it since.
    at = pc.index_in(changes["schedule_id"], value_set=rows["schedule_id"].combine_chunks())
    found = np.flatnonzero(at.is_valid().to_numpy())
    entry = at.take(pa.array(found)).to_numpy().astype(np.int64)
    same = rows["seq"].to_numpy()[entry] == changes["seq"].to_numpy()[found]
    occurrences = rows["occurrence"].fill_null(-1).to_numpy()[entry]
    wanted = changes["occurrence"].fill_null(-1).to_numpy()[found]
    same &= (wanted == -1) | (occurrences == wanted)
    payload = chunk.table(*_PAYLOAD, "deliver_at_ms", "delay_level_ms", "level_error_ms").take(
        pa.array(entry[same])
    )
    columns = {name: payload[name] for name in _PAYLOAD}
    changed = changes.take(pa.array(found[same]))
    columns |= _held(changed, payload)
    if payload["repeat"].null_count < payload.num_rows:
        # The nominal time of the occurrence stays: from it comes the next one.
        moved_ms = pc.subtract(changed["deliver_at_ms"], asked_ms(payload))
        columns["level_error_ms"] = pc.if_else(
            payload["repeat"].is_valid(), moved_ms, columns["level_error_ms"]
        )
        skips = pc.and_(payload["repeat"].is_valid(), changed["deliver_at_ms"].is_null())
        columns["last_ms"] = pc.if_else(skips, asked_ms(payload), payload["last_ms"])
        columns["occurrence"] = pc.add(payload["occurrence"], pc.cast(skips, pa.int64()))
    return _commands(changed, columns, seq_given=False)


def _held(changed: pa.Table, payload: pa.Table) -> dict[str, pa.ChunkedArray]:
    """An entry that is held back keeps its requested time: an act moves the end of the wait."""
    wait_ms = pc.subtract(changed["deliver_at_ms"], unheld_ms(payload))
    waits = pc.and_(
        pc.and_(payload["held_ms"].is_valid(), payload["repeat"].is_null()), pc.greater_equal(wait_ms, 0)
    )
    waits = pc.fill_null(waits, False)  # noqa: FBT003  # the value
    return {
        "held_ms": pc.if_else(waits, wait_ms, pa.scalar(None, pa.int64())),
        "level_error_ms": pc.if_else(waits, payload["level_error_ms"], changed["level_error_ms"]),
        "delay_level_ms": pc.if_else(waits, payload["delay_level_ms"], changed["delay_level_ms"]),
    }


def _commands(acts: pa.Table, payload: dict[str, pa.ChunkedArray], *, seq_given: bool) -> pa.Table:
    """Rows of acts as commands; ``seq_given`` is False if the wheel has had the entry (``wheel.late_acts``)."""
    size = acts.num_rows
    columns = {
        **{name: acts[name] for name in ACT_SCHEMA.names},
        **payload,
        "seq_given": pa.repeat(pa.scalar(seq_given), size),
        "act": pa.repeat(pa.scalar(COMMAND, pa.int8()), size),
    }
    arrays = [columns.get(field.name, pa.nulls(size, field.type)) for field in COMMAND_SCHEMA]
    return pa.table(arrays, schema=COMMAND_SCHEMA)
