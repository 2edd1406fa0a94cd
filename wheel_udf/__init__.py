"""A delay scheduler on Spark: entries wait in a hierarchical timing wheel and are released when they are due.

The public names are loaded on first use (PEP 562): ``import wheel_udf`` costs nothing, and an executor that imports
``wheel_udf.wheel`` loads numpy, pandas and pyarrow, but not pyspark. The rooms, from the ground up, are listed in CONTRIBUTING.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wheel_udf.common.exports import exports

__version__ = "0.3.0"

if TYPE_CHECKING:
    from wheel_udf.clock import (
        EventClock as EventClock,
        ProcessingClock as ProcessingClock,
        SimulatedClock as SimulatedClock,
    )
    from wheel_udf.commands import (
        Contract as Contract,
    )
    from wheel_udf.common import (
        CheckpointError as CheckpointError,
        ConfigError as ConfigError,
        ConfigErrors as ConfigErrors,
        ContractError as ContractError,
        GeometryChangedError as GeometryChangedError,
        GeometryError as GeometryError,
        LeaseError as LeaseError,
        SessionError as SessionError,
        SinkError as SinkError,
        StateTooLargeError as StateTooLargeError,
        WheelError as WheelError,
    )
    from wheel_udf.delivery import (
        BatchReport as BatchReport,
        DeltaSink as DeltaSink,
        Destinations as Destinations,
        FileSink as FileSink,
        HttpSink as HttpSink,
        JdbcSink as JdbcSink,
        KafkaSink as KafkaSink,
        deliver as deliver,
    )
    from wheel_udf.pending import (
        PendingWork as PendingWork,
    )
    from wheel_udf.platform import (
        build_session as build_session,
        stop_session as stop_session,
    )
    from wheel_udf.stream import (
        Punctual as Punctual,
        fired as fired,
        observed as observed,
        outcomes as outcomes,
        rejects as rejects,
        schedule as schedule,
        status as status,
        watch as watch,
    )
    from wheel_udf.tiered import (
        schedule_tiered as schedule_tiered,
    )
    from wheel_udf.wheel import (
        BinaryLevels as BinaryLevels,
        FixedLevels as FixedLevels,
        TimingWheel as TimingWheel,
        Wheel as Wheel,
    )
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "common": (
                "CheckpointError",
                "ConfigError",
                "ConfigErrors",
                "ContractError",
                "GeometryChangedError",
                "GeometryError",
                "LeaseError",
                "SessionError",
                "SinkError",
                "StateTooLargeError",
                "WheelError",
            ),
            "wheel": ("BinaryLevels", "FixedLevels", "TimingWheel", "Wheel"),
            "platform": ("build_session", "stop_session"),
            "clock": ("EventClock", "ProcessingClock", "SimulatedClock"),
            "commands": ("Contract",),
            "pending": ("PendingWork",),
            "tiered": ("schedule_tiered",),
            "stream": ("Punctual", "fired", "observed", "outcomes", "rejects", "schedule", "status", "watch"),
            "delivery": (
                "BatchReport",
                "DeltaSink",
                "Destinations",
                "FileSink",
                "HttpSink",
                "JdbcSink",
                "KafkaSink",
                "deliver",
            ),
        },
    )
