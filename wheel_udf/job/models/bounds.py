"""The sections ``contract``, ``limits``, ``delivery``, ``store``, ``lease`` and ``restarts``: bounds on rows, times
and restarts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt
from pydantic_core import InitErrorDetails

from wheel_udf.commands.contract import MOST_MISSED
from wheel_udf.common.errors import StoreError
from wheel_udf.job.models.record_parts import RecordPartsConfig
from wheel_udf.job.models.section import Rule, Section
from wheel_udf.job.models.tables import is_one_table, path_or_table
from wheel_udf.job.models.values import (
    DestinationName,
    FolderPath,
    PositiveMs,
    Span,
    TableText,
    TimeZone,
    UnboundedMs,
    as_written,
    fault_at,
)


class OperationContractConfig(Section):
    """Bounds and defaults of operations, and how long an id is remembered."""

    max_delay_ms: UnboundedMs = Field(as_written("730 days"), alias="max_delay")
    """The longest time from event_time to the due time. unlimited: no bound."""

    memory_ms: UnboundedMs = Field(as_written("5 minutes"), alias="memory")
    """How long, on the wheel's clock, an id is remembered after its end. unlimited: for ever."""

    max_value_bytes: StrictInt = Field(1_048_576, ge=0, le=2**63 - 1)
    """The largest sum of the bytes of value, key and headers."""

    default_destination: DestinationName | None = None
    """The destination of rows that name none. Default: they are rejected."""


class ContractConfig(OperationContractConfig, RecordPartsConfig):
    """Bounds and defaults of commands, and how long an id is remembered."""

    preset: Literal["columns", "native", "json", "scheduler"] = "columns"
    """How a record becomes a command: by column names, or by a preset for Kafka. Default with kafka: native."""

    max_lateness_ms: Span | None = Field(None, alias="max_lateness")
    """A later row goes to the rejects, unless its command has its own bound. Default: no bound."""

    time_zone: TimeZone = "UTC"
    """The zone of rules of series that name none: a name such as Europe/Paris, or an offset such as +02:00."""

    most_missed: StrictInt = Field(1_000, ge=1, le=MOST_MISSED)
    """With on_missed: all, how many occurrences of a series are released late; the others are missed."""


PENDING_BOUNDS: Final = ("pending", "per_destination", "per_slot")
"""The settings of the section ``limits`` that bound what is pending."""


class LimitsConfig(Section):
    """Bounds on the work of a batch and on what is pending. Default: no bounds."""

    fired_per_batch: StrictInt | None = Field(None, ge=1)
    """The most rows that a batch releases. The rest stays due and goes next, oldest first."""

    pending: StrictInt | None = Field(None, ge=1)
    """The most entries that wait, in all."""

    per_destination: StrictInt | None = Field(None, ge=1)
    """The most entries that wait for one destination."""

    per_slot: StrictInt | None = Field(None, ge=1)
    """The most entries that are due in one tick of the wheel."""

    soft: StrictFloat = Field(1.0, gt=0, le=1)
    """Share of a bound at which its soft zone begins. 1: there is none."""

    on_limit: Literal["reject", "pause"] = "reject"
    """A command beyond a limit is rejected, or the intake pauses (mode tiered, processing clock)."""

    @property
    def bounds(self) -> dict[str, int]:
        """The bounds on what is pending that are set."""
        return {name: most for name in PENDING_BOUNDS if (most := getattr(self, name)) is not None}


class DeliveryConfig(Section):
    """Whether rows for Kafka are sent at their due time, to the millisecond, instead of by the next batch."""

    punctual: StrictBool = False
    """true: a sender gets rows for Kafka ahead of their due time; a later cancel is late. Processing clock only."""

    ahead_ms: Annotated[Span, Field(ge=100, le=600_000)] | None = Field(None, alias="ahead")
    """How long before, at most 10 minutes. Default: about twice the time of a batch, 4 to 60 seconds."""

    rows: StrictInt = Field(200_000, ge=1, le=10_000_000)
    """The most rows that wait at the sender, on the driver. A row beyond it is released by a batch when it is due."""

    bytes: StrictInt = Field(268_435_456, ge=1_048_576, le=8_589_934_592)
    """The most bytes that wait there."""


def _location_is_of_a_table(location: str | None, table: str | None) -> Iterator[InitErrorDetails]:
    if location is not None and table is None:
        yield fault_at("location", what="a setting without effect", value=location, rule="with store.table")


class StoreConfig(Section):
    """Where the slot store is, and how long it keeps rows that have left it."""

    path: FolderPath | None = None
    """The folder of the store, a Delta table."""

    table: TableText | None = None
    """The store's name in a catalog, instead of a path. The catalog chooses the location of a missing table."""

    location: FolderPath | None = None
    """Where a missing table is created. Default: where the catalog puts it."""

    history_ms: Span = Field(as_written("0 seconds"), alias="history")
    """How long rows stay after their due time. They stay for contract.memory if that is longer."""

    keep_ms: Annotated[Span, Field(ge=3_600_000)] = Field(as_written("1 day"), alias="keep")
    """How long unused files and log entries stay, for a look at earlier moments. Fixed when the store is created."""

    lead_windows: StrictInt = Field(0, ge=0, le=1_000_000)
    """Event clock: windows that the intake may be ahead. 0: it waits for the wheel after each batch."""

    rules: ClassVar[tuple[Rule, ...]] = (path_or_table, is_one_table, _location_is_of_a_table)

    @property
    def place(self) -> str:
        """The path or the name, for people."""
        return self.path or self.table or ""

    @property
    def folder(self) -> str:
        """The folder of the store.

        Raises:
            StoreError: It is known to the catalog, which was not asked (:func:`wheel_udf.job.named.located`).
        """
        if self.path is None:
            raise StoreError(
                "the location of the slot store is not known yet", field="store.table", value=self.table
            )
        return self.path


class LeaseConfig(Section):
    """The right to run the checkpoint and the store, for one process at a time."""

    timeout_ms: Annotated[Span, Field(ge=5_000, le=3_600_000)] = Field(
        as_written("30 seconds"), alias="timeout"
    )
    """How long the lease of a process on another machine that was killed keeps others out. Not on local paths."""


class RestartsConfig(Section):
    """New starts after a failure that may be temporary: a worker that died, a broker that did not answer."""

    most: StrictInt = Field(3, ge=0, le=1_000)
    """How often the query starts again without a new batch in between. 0: never."""

    wait_ms: PositiveMs = Field(as_written("5 seconds"), alias="wait")
    """The time before the first new start; each further one waits twice as long, up to a minute."""
