"""The whole file of a purgatory: operations and events instead of a source of commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from wheel_udf.commands.contract import EVENT_COLUMNS, OPERATION_COLUMNS
from wheel_udf.common.outcomes import DECIDED, Decided
from wheel_udf.job.models.bounds import OperationContractConfig
from wheel_udf.job.models.scheduler import Faults, JobConfig, Name, SchedulerConfig
from wheel_udf.job.models.section import Rule, Section, all_defaults, looks_at
from wheel_udf.job.models.sink import AnySink
from wheel_udf.job.models.source import DeltaSourceConfig, FileSourceConfig, KafkaSourceConfig
from wheel_udf.job.models.values import Span, Text, as_written, fault_at

_OperationColumn = Literal[OPERATION_COLUMNS]  # type: ignore[valid-type]  # a tuple of texts
_EventColumn = Literal[EVENT_COLUMNS]  # type: ignore[valid-type]  # likewise


class _Meaning(Section):
    """How the rows of a source become operations or events."""

    where: Text | None = None
    """SQL: which rows count. Default: all."""


class _Operations(_Meaning):
    columns: dict[_OperationColumn, Text] = Field(default_factory=dict)
    """SQL over the columns of the source, by the column that it makes. Default: the source has these columns."""


class _Events(_Meaning):
    columns: dict[_EventColumn, Text] = Field(default_factory=dict)
    """SQL over the columns of the source, by the column that it makes. Default: the source has these columns."""


class OperationFilesConfig(_Operations, FileSourceConfig):
    """A folder of files with operations."""


class OperationTableConfig(_Operations, DeltaSourceConfig):
    """A Delta table with operations."""


class OperationTopicsConfig(_Operations, KafkaSourceConfig):
    """Topics of Kafka with operations."""


class EventFilesConfig(_Events, FileSourceConfig):
    """A folder of files with events."""


class EventTableConfig(_Events, DeltaSourceConfig):
    """A Delta table with events."""


class EventTopicsConfig(_Events, KafkaSourceConfig):
    """Topics of Kafka with events."""


OperationsConfig = Annotated[
    OperationFilesConfig | OperationTableConfig | OperationTopicsConfig, Field(discriminator="format")
]
EventsConfig = Annotated[
    EventFilesConfig | EventTableConfig | EventTopicsConfig, Field(discriminator="format")
]
StreamConfig = OperationsConfig | EventsConfig
"""A source of operations or of events."""


class WatchConfig(Section):
    """Which events count for an operation, and which outcomes are delivered."""

    lookback_ms: Span = Field(as_written("0 seconds"), alias="lookback")
    """How long before its own event_time an event counts for an operation. At most contract.memory."""

    deliver: tuple[Decided, ...] = DECIDED
    """Which outcomes go to their destination. The others are only counted."""


@looks_at(watch="lookback", contract="memory")
def _events_are_remembered(watch: WatchConfig, contract: OperationContractConfig) -> Faults:
    if contract.memory_ms is not None and watch.lookback_ms > contract.memory_ms:
        yield fault_at(
            "watch",
            "lookback",
            what="the lookback is longer than events are remembered",
            value=f"{watch.lookback_ms} ms",
            rule=f"at most contract.memory, {contract.memory_ms} ms",
        )


@looks_at(destinations=("*.rate", "*.on_undeliverable", "*.retries"))
def _outcomes_are_delivered_once(destinations: Mapping[str, AnySink]) -> Faults:
    for name, sink in destinations.items():
        for key in sorted({"rate", "on_undeliverable"} & sink.service):
            yield fault_at(
                "destinations", name, key, what="not for outcomes", rule="of a scheduler's destinations"
            )
        if sink.comes_back and "on_undeliverable" not in sink.service:
            yield fault_at(
                "destinations", name, "retries", what="not for outcomes", rule="of a scheduler's destinations"
            )


class PurgatoryConfig(JobConfig):
    """A purgatory: operations wait for events until they are complete, cancelled or expired."""

    not_here: ClassVar = dict.fromkeys(
        ("source", "mode", "limits", "levels", "delivery", "store"),
        "a scheduler's config has a source of commands, a purgatory's operations and events",
    )

    name: Name = "purgatory"
    """Label of the query in metrics and transaction ids."""

    operations: OperationsConfig
    """Where operations come from."""

    events: EventsConfig
    """Where events come from."""

    watch: WatchConfig = all_defaults(WatchConfig)
    """Which events count for an operation, and which outcomes are delivered."""

    contract: OperationContractConfig = all_defaults(OperationContractConfig)
    """Bounds and defaults of operations."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *JobConfig.rules,
        _events_are_remembered,
        _outcomes_are_delivered_once,
    )


AnyConfig = SchedulerConfig | PurgatoryConfig
"""The config of a job."""
