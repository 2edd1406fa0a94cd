"""The config file as models: names, types, bounds and defaults of every setting, and the rules between them.

::

    SchedulerConfig  = DirectConfig | TieredConfig        by mode       the file of a scheduler
    PurgatoryConfig                                                     the file of a purgatory: it has operations and events
      clock          event | processing | simulated      by kind       wheel.py
      source         parquet, json, csv | delta | kafka  by format     source.py, kafka.py; of operations and events: purgatory.py
      destinations   delta | kafka | http | ... | own    by sink       sink.py; rejects likewise
      levels         fixed | binary                      by policy     levels.py
      contract, limits, delivery, store, restarts                      bounds.py
      metrics                                                          metrics.py

One class for each section and variant. Durations and instants become attributes that end in ``_ms``; None means that there is no bound.
:mod:`~wheel_udf.job.models.values` has the types of settings, :mod:`~wheel_udf.job.models.section` the rules between several settings.
:mod:`wheel_udf.job.loader` reads a file into these models, :mod:`wheel_udf.job.schema` makes their JSON Schema, which has the docstrings of the fields.
"""

from __future__ import annotations

from wheel_udf.job.models.bounds import (
    ContractConfig as ContractConfig,
    DeliveryConfig as DeliveryConfig,
    LimitsConfig as LimitsConfig,
    OperationContractConfig as OperationContractConfig,
    RestartsConfig as RestartsConfig,
    StoreConfig as StoreConfig,
)
from wheel_udf.job.models.levels import (
    BinaryLevelsConfig as BinaryLevelsConfig,
    FixedLevelsConfig as FixedLevelsConfig,
    LevelsConfig as LevelsConfig,
)
from wheel_udf.job.models.metrics import (
    MetricsConfig as MetricsConfig,
)
from wheel_udf.job.models.purgatory import (
    EventsConfig as EventsConfig,
    OperationsConfig as OperationsConfig,
    PurgatoryConfig as PurgatoryConfig,
    StreamConfig as StreamConfig,
)
from wheel_udf.job.models.scheduler import (
    AVAILABLE_NOW as AVAILABLE_NOW,
    AnySchedulerConfig as AnySchedulerConfig,
    DirectConfig as DirectConfig,
    JobConfig as JobConfig,
    SchedulerConfig as SchedulerConfig,
    TieredConfig as TieredConfig,
    path_of as path_of,
)
from wheel_udf.job.models.sink import (
    AnySink as AnySink,
    DeltaSinkConfig as DeltaSinkConfig,
    FileSinkConfig as FileSinkConfig,
    HttpSinkConfig as HttpSinkConfig,
    JdbcSinkConfig as JdbcSinkConfig,
    KafkaRejectsConfig as KafkaRejectsConfig,
    KafkaSinkConfig as KafkaSinkConfig,
    OwnSinkConfig as OwnSinkConfig,
    RejectsConfig as RejectsConfig,
    SinkConfig as SinkConfig,
)
from wheel_udf.job.models.source import (
    DeltaSourceConfig as DeltaSourceConfig,
    FileSourceConfig as FileSourceConfig,
    KafkaSourceConfig as KafkaSourceConfig,
    SourceConfig as SourceConfig,
)
from wheel_udf.job.models.wheel import (
    ClockConfig as ClockConfig,
    EventClockConfig as EventClockConfig,
    ProcessingClockConfig as ProcessingClockConfig,
    SimulatedClockConfig as SimulatedClockConfig,
    WheelConfig as WheelConfig,
)
