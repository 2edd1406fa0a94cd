from wheel_udf.api.job import Job as Job
from wheel_udf.commands.contract import Contract as Contract
from wheel_udf.commands.delay_levels import BinaryLevels as BinaryLevels, FixedLevels as FixedLevels
from wheel_udf.common.errors import (
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
from wheel_udf.common.geometry import Wheel as Wheel
from wheel_udf.connect.fan_out import deliver_outbox as deliver_outbox
from wheel_udf.connect.outbox import OutboxReport as OutboxReport, to_outbox as to_outbox
from wheel_udf.control.clocks import (
    EventClock as EventClock,
    ProcessingClock as ProcessingClock,
    SimulatedClock as SimulatedClock,
)
from wheel_udf.delivery.query import deliver as deliver
from wheel_udf.delivery.report import BatchReport as BatchReport
from wheel_udf.pending.entries import PendingWork as PendingWork
from wheel_udf.policies.punctual import Punctual as Punctual
from wheel_udf.sinks.catalog_sink import CatalogTableSink as CatalogTableSink
from wheel_udf.sinks.delta_sink import DeltaSink as DeltaSink
from wheel_udf.sinks.destinations import Destinations as Destinations
from wheel_udf.sinks.file_sink import FileSink as FileSink
from wheel_udf.sinks.http_sink import HttpSink as HttpSink
from wheel_udf.sinks.jdbc_sink import JdbcSink as JdbcSink
from wheel_udf.sinks.kafka_sink import KafkaSink as KafkaSink
from wheel_udf.spark.session import build_session as build_session, stop_session as stop_session
from wheel_udf.stream.observation import observed as observed
from wheel_udf.stream.outputs import (
    fired as fired,
    outcomes as outcomes,
    rejects as rejects,
    status as status,
)
from wheel_udf.stream.schedule_operator import schedule as schedule
from wheel_udf.stream.watch_operator import watch as watch
from wheel_udf.tiered.start import schedule_tiered as schedule_tiered
from wheel_udf.wheel.reference import TimingWheel as TimingWheel

__version__: str
