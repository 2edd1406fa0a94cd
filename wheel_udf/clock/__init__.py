"""Clock: brings time to the operators as data, one row per shard per tick.

Spark runs a micro-batch only when a source has something new, and a group of ``applyInPandasWithState`` sees
time only in a batch that contains a row for it. This room is the source of those rows, the *ticks*. It decides
when a tick is needed: an idle wheel gets none except its heartbeat. The *board* is a folder in which each
shard reports its next due time.

::

    clocks.py      settings of a clock: event | processing | simulated | store
                        |
    pace.py        does time move on? <---------- ShardReport of each shard (board.py, reports.py) <------- stream/, delivery/
                        |
    contributors.py     + acts, sender, shares -> offset (journaled by Spark)
                        |
    source.py      Spark data source `wheel-clock` -> a Tick for each shard (tick.py) ----------------------> stream/

In: a clock's settings, the reports of the shards (next due time, clock, watermark), and in the tiered mode
    what the keeper of the slot store (:mod:`wheel_udf.tiered`) publishes.
Out: clock rows with the columns ``shard`` and ``tick``, and the wall clock (``wall.py``), which no other room reads.

May import: common, wheel, purgatory, platform; pyspark's data source API in ``source.py`` alone. Planning a
tick must not import numpy, pandas or pyarrow (start-up time of Spark's planning process).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wheel_udf.common.exports import exports

if TYPE_CHECKING:
    from wheel_udf.clock.board import (
        ACTS as ACTS,
        FRAMES as FRAMES,
        SENDERS as SENDERS,
        STORES as STORES,
        ActRows as ActRows,
        Link as Link,
        Sending as Sending,
        ShardBoard as ShardBoard,
        ShardReport as ShardReport,
        StoreProgress as StoreProgress,
    )
    from wheel_udf.clock.clocks import (
        Clock as Clock,
        EventClock as EventClock,
        ProcessingClock as ProcessingClock,
        SimulatedClock as SimulatedClock,
        StoreClock as StoreClock,
        clock_options as clock_options,
    )
    from wheel_udf.clock.reports import post_reports as post_reports
    from wheel_udf.clock.shares import even_share as even_share
    from wheel_udf.clock.source import (
        CLOCK_FORMAT as CLOCK_FORMAT,
        ClockSource as ClockSource,
        is_clock_offset as is_clock_offset,
    )
    from wheel_udf.clock.tick import Tick as Tick
    from wheel_udf.clock.wall import (
        elapsed_ms as elapsed_ms,
        wall_clock_ahead_ms as wall_clock_ahead_ms,
        wall_clock_ms as wall_clock_ms,
    )
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "clocks": (
                "Clock",
                "EventClock",
                "ProcessingClock",
                "SimulatedClock",
                "StoreClock",
                "clock_options",
            ),
            "board": (
                "ACTS",
                "FRAMES",
                "SENDERS",
                "STORES",
                "ActRows",
                "Link",
                "Sending",
                "ShardBoard",
                "ShardReport",
                "StoreProgress",
            ),
            "reports": ("post_reports",),
            "shares": ("even_share",),
            "source": (
                "CLOCK_FORMAT",
                "ClockSource",
                "is_clock_offset",
            ),
            "tick": ("Tick",),
            "wall": ("elapsed_ms", "wall_clock_ahead_ms", "wall_clock_ms"),
        },
    )
