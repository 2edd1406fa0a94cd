"""A delay scheduler on Spark: rows with a due time wait in a hierarchical timing wheel and come out when they are due.

The public names are loaded when they are first used (PEP 562). So ``import wheel_udf`` costs nothing, and an executor that imports
``wheel_udf.cascade`` loads numpy, pandas and pyarrow, and never pyspark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0"

_HOMES = {
    "BatchReport": "metrics",
    "BinaryLevels": "levels",
    "CheckpointError": "errors",
    "ConfigError": "errors",
    "ConfigErrors": "errors",
    "Contract": "commands",
    "ContractError": "errors",
    "DeltaSink": "delta_sink",
    "Destinations": "destinations",
    "EventClock": "clock",
    "FileSink": "file_sink",
    "FixedLevels": "levels",
    "GeometryChangedError": "errors",
    "GeometryError": "errors",
    "KafkaSink": "kafka_sink",
    "LeaseError": "errors",
    "ProcessingClock": "clock",
    "SessionError": "errors",
    "SimulatedClock": "clock",
    "SinkError": "errors",
    "StateTooLargeError": "errors",
    "TimingWheel": "timing_wheel",
    "Wheel": "geometry",
    "WheelError": "errors",
    "build_session": "session",
    "deliver": "delivery",
    "fired": "selection",
    "outcomes": "selection",
    "rejects": "selection",
    "schedule": "operator",
    "status": "selection",
    "stop_session": "session",
    "watch": "watch_operator",
}

__all__ = [
    "BatchReport",
    "BinaryLevels",
    "CheckpointError",
    "ConfigError",
    "ConfigErrors",
    "Contract",
    "ContractError",
    "DeltaSink",
    "Destinations",
    "EventClock",
    "FileSink",
    "FixedLevels",
    "GeometryChangedError",
    "GeometryError",
    "KafkaSink",
    "LeaseError",
    "ProcessingClock",
    "SessionError",
    "SimulatedClock",
    "SinkError",
    "StateTooLargeError",
    "TimingWheel",
    "Wheel",
    "WheelError",
    "__version__",
    "build_session",
    "deliver",
    "fired",
    "outcomes",
    "rejects",
    "schedule",
    "status",
    "stop_session",
    "watch",
]

if TYPE_CHECKING:
    from wheel_udf.clock import EventClock, ProcessingClock, SimulatedClock
    from wheel_udf.commands import Contract
    from wheel_udf.delivery import deliver
    from wheel_udf.delta_sink import DeltaSink
    from wheel_udf.destinations import Destinations
    from wheel_udf.errors import (
        CheckpointError,
        ConfigError,
        ConfigErrors,
        ContractError,
        GeometryChangedError,
        GeometryError,
        LeaseError,
        SessionError,
        SinkError,
        StateTooLargeError,
        WheelError,
    )
    from wheel_udf.file_sink import FileSink
    from wheel_udf.geometry import Wheel
    from wheel_udf.kafka_sink import KafkaSink
    from wheel_udf.levels import BinaryLevels, FixedLevels
    from wheel_udf.metrics import BatchReport
    from wheel_udf.operator import schedule
    from wheel_udf.selection import fired, outcomes, rejects, status
    from wheel_udf.session import build_session, stop_session
    from wheel_udf.timing_wheel import TimingWheel
    from wheel_udf.watch_operator import watch


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
