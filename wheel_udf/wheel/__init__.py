"""The timing wheel: where entries wait, and which of them are due. Pure: ints, numpy and Arrow; no Spark, no
clock, no file.

A *shard* is one of several independent wheels; the hash of an id chooses its shard. In: the state of a shard,
a batch of valid commands, the instant. Out: the next state, released entries, counts. The one entry point is
:func:`wheel_udf.wheel.step.advance`; Spark calls it for each shard and batch
(:mod:`wheel_udf.stream.wheel_worker`).

The wheel, ``Wheel(tick_ms=1, size=20, levels=3)``: each level has 20 slots, and a slot is as wide as the
whole level below::

    level 1, slots of   1 ms    |0|1|2| ... |19|           due within 20 ms of the clock
    level 2, slots of  20 ms    | 0 | 20 | ... | 380 |     due within 400 ms
    level 3, slots of 400 ms    |  0  |  400  |  800  |    due later (the top level is open-ended)

    an entry due at 450     clock   0    level 3 [400, 800)
                            clock 400    level 2 [440, 460)     the clock reached the bucket: its entries move down (cascade)
                            clock 440    level 1 [450, 451)
                            clock 450    fires, never before

A batch, through the files of this room::

    commands --> versions.fold --> step.advance --> buckets.Buckets.place --> chunks.Chunk --> shard_state.ShardState
                 which version      what is due       the bucket of an          encoded          one row of Spark's
                 of each id wins    leaves            entry is decided HERE     Arrow rows       state store

Where is the bucket of an entry decided? In ``buckets.py``, :meth:`~wheel_udf.wheel.buckets.Buckets.place`, by
the formulas of ``geometry.py``.

========================  ==========================================================================================
geometry                  level, slot and bucket of a due time; as int and as numpy (as Column: commands/tier_columns)
reference                 ``TimingWheel``: the classic wheel in memory, for the traces and for one process
buckets                   which bucket an entry is kept in; when a bucket is opened
rows, chunks, arrow_text  the Arrow schemas; encoded runs of rows; a table as text
shard_text                the text of all chunks of a shard, and its directory
texts                     texts of chunks that are kept outside the row of a state
row_keys                  ids and versions of a chunk's rows, of which a command reads one
id_index                  in which row of which chunk an id may be, so that a command reads that alone
fixed_records             records of a fixed width in base64, which are read one by one
merging                   which runs to merge, of chunks and of the index
shard_state, content      the state of a shard, and the row in which Spark stores it; its chunks by kind
formats                   the version of that row
step                      one step of one shard: fold, move the clock, cascade, release
versions                  the fold: which commands win, how each of them ends. Its parts: ``version_order`` (sorting),
                          ``known`` (what is known of an id), ``ambiguous``, ``late_acts``, ``settle`` (outcomes),
                          ``store_reports``
memory                    what is remembered of ended ids, and for how long
in_flight, sender_news    entries handed to a sender ahead of their due time, and what it has confirmed
acted                     acts on entries of the state: their rows, completed from the entries
seed                      the state of a shard made anew from its rows, for another geometry or number of shards
limits, shard_limits      back-pressure: the bounds on pending entries; how many of them a shard holds
delay_levels              delay levels (5s 10s 30s ...): not levels of the wheel
lateness                  the histogram of latenesses
holdings                  what a shard holds, without opening its chunks: rows by level, due soon
========================  ==========================================================================================

Costs: a tick with nothing due and nothing new is O(1). Otherwise O(commands + rows of the opened chunks): an add writes a chunk of
its own, and a cancel reads the id and version of its entry, however many entries are pending. An entry moves down at most
``levels - 1`` times, and is rewritten O(log) times where chunks are merged. Of a backlog a batch opens what it releases. With limits by destination
or slot (``shard_limits``) a batch with new entries reads two columns of all chunks. No Python loop over entries.

May import: the room ``common``; numpy, pandas and pyarrow. Python workers of Spark load this room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wheel_udf.common.exports import exports

if TYPE_CHECKING:
    from wheel_udf.wheel import delay_levels as delay_levels, geometry as geometry
    from wheel_udf.wheel.acted import (
        ACT_SCHEMA as ACT_SCHEMA,
        acts_of_texts as acts_of_texts,
        as_commands as as_commands,
    )
    from wheel_udf.wheel.arrow_text import (
        table_to_text as table_to_text,
    )
    from wheel_udf.wheel.buckets import (
        Buckets as Buckets,
        merged as merged,
    )
    from wheel_udf.wheel.chunks import (
        IN_FLIGHT_LEVEL as IN_FLIGHT_LEVEL,
        MEMORY_LEVEL as MEMORY_LEVEL,
        Chunk as Chunk,
    )
    from wheel_udf.wheel.content import (
        Content as Content,
    )
    from wheel_udf.wheel.delay_levels import (
        DEFAULT_LIST_MS as DEFAULT_LIST_MS,
        NO_LEVEL as NO_LEVEL,
        BinaryLevels as BinaryLevels,
        FixedLevels as FixedLevels,
        Levels as Levels,
        fingerprint as fingerprint,
        level_beyond as level_beyond,
        level_name as level_name,
        list_rule as list_rule,
        refused_beyond_ms as refused_beyond_ms,
    )
    from wheel_udf.wheel.formats import (
        FORMAT_VERSION as FORMAT_VERSION,
    )
    from wheel_udf.wheel.geometry import (
        INT64_MAX as INT64_MAX,
        INT64_MIN as INT64_MIN,
        Wheel as Wheel,
        path_of as path_of,
        ticks_of as ticks_of,
    )
    from wheel_udf.wheel.holdings import (
        HORIZONS_MS as HORIZONS_MS,
        OTHERS as OTHERS,
        Holdings as Holdings,
        destinations_of as destinations_of,
        due_within as due_within,
        holdings_of as holdings_of,
    )
    from wheel_udf.wheel.id_index import (
        INDEX_BYTES as INDEX_BYTES,
    )
    from wheel_udf.wheel.in_flight import (
        HandOver as HandOver,
        beyond_ms as beyond_ms,
        complete_ms as complete_ms,
        held as held,
        horizon_of as horizon_of,
    )
    from wheel_udf.wheel.known import (
        ENDED as ENDED,
        FIRED as FIRED,
        IN_STORE as IN_STORE,
        WAITING as WAITING,
    )
    from wheel_udf.wheel.lateness import (
        LatenessHistogram as LatenessHistogram,
    )
    from wheel_udf.wheel.limits import (
        BOUNDS as BOUNDS,
        Held as Held,
        Limits as Limits,
        code_of as code_of,
        judge as judge,
        reason as reason,
    )
    from wheel_udf.wheel.memory import (
        remember as remember,
        still_remembered as still_remembered,
    )
    from wheel_udf.wheel.reference import (
        TimingWheel as TimingWheel,
    )
    from wheel_udf.wheel.rows import (
        CANCEL as CANCEL,
        COMMAND as COMMAND,
        COMMAND_SCHEMA as COMMAND_SCHEMA,
        ENTRY_SCHEMA as ENTRY_SCHEMA,
        FAR as FAR,
        GONE_CANCELLED as GONE_CANCELLED,
        GONE_DUPLICATE as GONE_DUPLICATE,
        GONE_SUPERSEDED as GONE_SUPERSEDED,
        MEMORY_SCHEMA as MEMORY_SCHEMA,
        MOVED as MOVED,
        SCHEDULE as SCHEDULE,
        Int64s as Int64s,
        asked_ms as asked_ms,
        without as without,
    )
    from wheel_udf.wheel.seed import (
        Seed as Seed,
        runs_of as runs_of,
        seeded as seeded,
    )
    from wheel_udf.wheel.sender_news import (
        Confirmed as Confirmed,
        SenderNews as SenderNews,
        confirmed_from_json as confirmed_from_json,
        confirmed_to_json as confirmed_to_json,
    )
    from wheel_udf.wheel.shard_state import (
        HEAD_COLUMNS as HEAD_COLUMNS,
        LARGEST_STATE_BYTES as LARGEST_STATE_BYTES,
        STATE_COLUMNS as STATE_COLUMNS,
        Kept as Kept,
        ShardState as ShardState,
    )
    from wheel_udf.wheel.shard_text import (
        MARKED_ENTRY_SCHEMA as MARKED_ENTRY_SCHEMA,
        chunks_from_text as chunks_from_text,
        chunks_to_text as chunks_to_text,
        entries_of_text as entries_of_text,
        kept_apart as kept_apart,
        marked_entries_of_text as marked_entries_of_text,
        memory_of_text as memory_of_text,
        whole_text as whole_text,
    )
    from wheel_udf.wheel.step import (
        Step as Step,
        advance as advance,
    )
    from wheel_udf.wheel.texts import (
        Texts as Texts,
    )
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "acted": ("ACT_SCHEMA", "acts_of_texts", "as_commands"),
            "arrow_text": ("table_to_text",),
            "buckets": ("Buckets", "merged"),
            "chunks": (
                "IN_FLIGHT_LEVEL",
                "MEMORY_LEVEL",
                "Chunk",
            ),
            "content": ("Content",),
            "delay_levels": (
                "DEFAULT_LIST_MS",
                "NO_LEVEL",
                "BinaryLevels",
                "FixedLevels",
                "Levels",
                "fingerprint",
                "level_beyond",
                "level_name",
                "list_rule",
                "refused_beyond_ms",
            ),
            "geometry": ("INT64_MAX", "INT64_MIN", "Wheel", "path_of", "ticks_of"),
            "holdings": (
                "HORIZONS_MS",
                "Holdings",
                "OTHERS",
                "destinations_of",
                "due_within",
                "holdings_of",
            ),
            "id_index": ("INDEX_BYTES",),
            "in_flight": ("HandOver", "beyond_ms", "complete_ms", "held", "horizon_of"),
            "known": ("ENDED", "FIRED", "IN_STORE", "WAITING"),
            "lateness": ("LatenessHistogram",),
            "limits": ("BOUNDS", "Held", "Limits", "code_of", "judge", "reason"),
            "memory": ("remember", "still_remembered"),
            "reference": ("TimingWheel",),
            "rows": (
                "CANCEL",
                "COMMAND",
                "COMMAND_SCHEMA",
                "ENTRY_SCHEMA",
                "FAR",
                "GONE_CANCELLED",
                "GONE_DUPLICATE",
                "GONE_SUPERSEDED",
                "MEMORY_SCHEMA",
                "MOVED",
                "SCHEDULE",
                "Int64s",
                "asked_ms",
                "without",
            ),
            "formats": ("FORMAT_VERSION",),
            "seed": ("Seed", "runs_of", "seeded"),
            "sender_news": ("Confirmed", "SenderNews", "confirmed_from_json", "confirmed_to_json"),
            "shard_state": (
                "HEAD_COLUMNS",
                "LARGEST_STATE_BYTES",
                "STATE_COLUMNS",
                "Kept",
                "ShardState",
            ),
            "shard_text": (
                "MARKED_ENTRY_SCHEMA",
                "chunks_from_text",
                "chunks_to_text",
                "entries_of_text",
                "kept_apart",
                "marked_entries_of_text",
                "memory_of_text",
                "whole_text",
            ),
            "step": ("Step", "advance"),
            "texts": ("Texts",),
        },
        modules=("delay_levels", "geometry"),
    )
