"""Clock: brings time to the operators as data, one row per shard per tick.

Spark runs a micro-batch only when a source has something new, and a group of ``applyInPandasWithState`` sees
time only in a batch that contains a row for it. This room is the source of those rows, the *ticks*. It decides
when a tick is needed: an idle wheel gets none except its heartbeat. The *hint board* is a folder in which each
shard notes its next due time.

::

    clocks.py      settings of a clock: event | processing | simulated | store
                        |
    source.py      Spark data source `wheel-clock`:  offset (instant, counter) --> one row per shard --> stream/
    answers.py          ^    what the answers say: due, called by the sender, the watermark            |
                        | "earliest due: 12:00:05"                                                      v
    due_board.py   hint board: one small file per shard <------ last answer of each shard ------ stream/, delivery/

In: a clock's settings, the answers of the shards (next due time, clock, watermark), and in the tiered mode
    what the keeper of the slot store (:mod:`wheel_udf.tiered`) publishes.
Out: clock rows with the columns ``shard``, ``instant_ms`` and ``run``, and the wall clock
    (:func:`wall_clock_ms`), which no other room reads.

May import: common, wheel, purgatory, platform; pyspark's data source API in ``source.py`` alone. Planning a
tick must not import numpy, pandas or pyarrow (start-up time of Spark's planning process), and
``due_board.py`` also runs on executors, so it imports the standard library only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wheel_udf.common.exports import exports

if TYPE_CHECKING:
    from wheel_udf.clock.clocks import (
        Clock as Clock,
        EventClock as EventClock,
        ProcessingClock as ProcessingClock,
        SimulatedClock as SimulatedClock,
        StoreClock as StoreClock,
        clock_options as clock_options,
    )
    from wheel_udf.clock.due_board import (
        Answer as Answer,
        HintBoard as HintBoard,
        Published as Published,
        Sending as Sending,
    )
    from wheel_udf.clock.shares import even_share as even_share
    from wheel_udf.clock.source import (
        CLOCK_FORMAT as CLOCK_FORMAT,
        SENDER_COLUMN as SENDER_COLUMN,
        SHARE_COLUMN as SHARE_COLUMN,
        ClockSource as ClockSource,
        elapsed_ms as elapsed_ms,
        is_clock_offset as is_clock_offset,
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
            "due_board": ("Answer", "HintBoard", "Published", "Sending"),
            "shares": ("even_share",),
            "source": (
                "CLOCK_FORMAT",
                "SENDER_COLUMN",
                "SHARE_COLUMN",
                "ClockSource",
                "elapsed_ms",
                "is_clock_offset",
                "wall_clock_ahead_ms",
                "wall_clock_ms",
            ),
        },
    )
