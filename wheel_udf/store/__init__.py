"""Store: the slot store, one Delta table for entries that are not due for a long time.

What goes in: parsed commands (as rows by ``stored_rows``), hand-overs, acts. What comes out: a stream of near rows for the wheel, tables of rows for
hand-overs and :mod:`wheel_udf.pending`, and the head of the log (version, cursor, clock). All of it through :class:`SlotStore`::

    intake batch --stored_rows--> append ------> | level 0: near rows     | --near_stream--> wheel
                                                 | level k: far slots     | --rows---------> hand-over, pending
    hand-over ------------------> append, drop   | level -2: inbox        |
    retirement -----------------> append, drop   | level -1: marks        | --head---------> cursor, clock, last batches
                                                   one Delta table, partitioned by (level, slot)

    near         due before the cursor; goes to the wheel            inbox    far entries of small batches, not yet in a slot
    far          due later; waits in its slot                        marks    versions that are kept after their rows were dropped

    layout       which level and slot an entry has: StoreLayout
    intake       commands to rows
    lease        the right to write to the table
    table        the table's columns and properties, creation, check that a table is this store
    reader       head, rows, the stream of near rows, partitions
    slot_store   SlotStore: the reader, and append, drop, rearrange, each one atomic commit
    head         cursor, clock and batches of a version, from its log: Head, Contents, Partition, Appended
    versions     which entries that leave a slot are still valid
    repeated     which id hashes occur more than once: only their versions are compared

May import: common, wheel, platform, clock, commands, stream, delivery; pyspark, delta (``layout`` and ``repeated`` run on executors: numpy and pyarrow only).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wheel_udf.common.exports import exports

if TYPE_CHECKING:
    from wheel_udf.store.head import (
        CURSOR as CURSOR,
        Appended as Appended,
        ClockOf as ClockOf,
        Contents as Contents,
        Head as Head,
        Partition as Partition,
    )
    from wheel_udf.store.intake import (
        id_hash as id_hash,
        stored_rows as stored_rows,
    )
    from wheel_udf.store.layout import (
        INBOX as INBOX,
        MARKS as MARKS,
        NEAR as NEAR,
        StoreLayout as StoreLayout,
        is_far as is_far,
        is_far_column as is_far_column,
    )
    from wheel_udf.store.lease import (
        store_lease as store_lease,
    )
    from wheel_udf.store.repeated import (
        repeated_hashes as repeated_hashes,
    )
    from wheel_udf.store.slot_store import (
        SlotStore as SlotStore,
    )
    from wheel_udf.store.table import (
        DEFAULT_KEEP_MS as DEFAULT_KEEP_MS,
        STORE_SCHEMA as STORE_SCHEMA,
    )
    from wheel_udf.store.versions import (
        VERSION as VERSION,
        no_verdicts as no_verdicts,
        verdicts as verdicts,
        with_file as with_file,
        with_version as with_version,
    )
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "intake": ("id_hash", "stored_rows"),
            "layout": ("INBOX", "MARKS", "NEAR", "StoreLayout", "is_far", "is_far_column"),
            "slot_store": ("SlotStore",),
            "head": ("Appended", "CURSOR", "ClockOf", "Contents", "Head", "Partition"),
            "lease": ("store_lease",),
            "repeated": ("repeated_hashes",),
            "table": ("DEFAULT_KEEP_MS", "STORE_SCHEMA"),
            "versions": ("VERSION", "no_verdicts", "verdicts", "with_file", "with_version"),
        },
    )
