"""The models of a purgatory job's config: as :mod:`wheel_udf.settings`, with operations and events instead of a source of commands."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StrictStr

from wheel_udf.contract import EVENT_COLUMNS, OPERATION_COLUMNS
from wheel_udf.setting_values import NotNegativeMs, Section, Text, fault
from wheel_udf.settings import AnyContractConfig, AnyJobConfig, SourceConfig


def _columns_of(*known: str) -> AfterValidator:
    def check(columns: dict[str, str]) -> dict[str, str]:
        unknown = [name for name in columns if name not in known]
        if unknown:
            raise fault(f"no such column: {', '.join(unknown)}", rule=f"one of {', '.join(known)}")
        return columns

    return AfterValidator(check)


class StreamConfig(SourceConfig):
    """Section ``operations`` or ``events``: a source, and what its rows mean.

    Attributes:
        columns: SQL over the source's columns, by the name of the column that it makes; none: the source has those columns by name (of a
            Kafka record: its value is a JSON object with them).
        where: SQL of which rows are meant; none: all.
    """

    columns: dict[StrictStr, Text] = Field(default_factory=dict)
    where: Text | None = None


class OperationsConfig(StreamConfig):
    """Section ``operations``; the columns are :data:`~wheel_udf.contract.OPERATION_COLUMNS`."""

    columns: Annotated[dict[StrictStr, Text], _columns_of(*OPERATION_COLUMNS)] = Field(default_factory=dict)


class EventsConfig(StreamConfig):
    """Section ``events``; the columns are :data:`~wheel_udf.contract.EVENT_COLUMNS`."""

    columns: Annotated[dict[StrictStr, Text], _columns_of(*EVENT_COLUMNS)] = Field(default_factory=dict)


class WatchConfig(Section):
    """Section ``watch``. Durations in ms.

    Attributes:
        lookback_ms: How long before its own time an operation looks for events; not longer than ``contract.memory``.
        deliver: Which outcomes go to their destination.
    """

    lookback_ms: NotNegativeMs = Field(0, alias="lookback")
    deliver: tuple[Literal["completed", "expired", "cancelled"], ...] = ("completed", "expired", "cancelled")


class WatchJobConfig(AnyJobConfig):
    """The whole file of a purgatory.

    Attributes:
        operations: Where operations come from.
        events: Where events come from.
        watch: How they meet.
        contract: What an operation may look like.
    """

    name: StrictStr = "purgatory"
    operations: OperationsConfig
    events: EventsConfig
    watch: WatchConfig = Field(default_factory=lambda: WatchConfig.model_validate({}))
    contract: AnyContractConfig = Field(default_factory=lambda: AnyContractConfig.model_validate({}))
