"""The sections ``wheel`` and ``clock``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StrictInt
from pydantic_core import InitErrorDetails

from wheel_udf.common.errors import ConfigError, GeometryError
from wheel_udf.common.geometry import Wheel
from wheel_udf.job.models.section import Rule, Section
from wheel_udf.job.models.values import (
    Instant,
    PositiveMs,
    Span,
    as_written,
    duration_or,
    fault_at,
)
from wheel_udf.store.layout import StoreLayout


def _fits_int64(tick_ms: int, size: int, levels: int) -> Iterator[InitErrorDetails]:
    try:
        Wheel(tick_ms=tick_ms, size=size, levels=levels)
    except GeometryError as error:
        yield fault_at(
            what=error.what, rule=error.rule or "tick * size^levels below 2^63 ms", hint=error.hint
        )


class WheelConfig(Section):
    """The geometry of the wheel and the number of shards. Both are fixed by the first start."""

    tick_ms: PositiveMs = Field(as_written("1 second"), alias="tick")
    """Width of a bucket of the lowest level."""

    size: StrictInt = Field(20, ge=2)
    """Buckets of a level, and how many times wider the buckets of the next level are."""

    levels: StrictInt = Field(6, ge=1, le=62)
    """Number of levels. The top level is open-ended."""

    shards: StrictInt = Field(4, ge=1, le=1024)
    """Number of independent wheels. The hash of an entry's id chooses its shard."""

    rules: ClassVar[tuple[Rule, ...]] = (_fits_int64,)

    def wheel(self) -> Wheel:
        """Returns the geometry."""
        return Wheel(tick_ms=self.tick_ms, size=self.size, levels=self.levels)


def _layout(
    tick_ms: int, size: int, levels: int, state_levels: int | None, state_horizon_ms: int | None
) -> StoreLayout:
    in_state = levels // 2 if state_levels is None else state_levels
    return StoreLayout(Wheel(tick_ms=tick_ms, size=size, levels=levels), in_state, state_horizon_ms)


def _splits(
    tick_ms: int, size: int, levels: int, state_levels: int | None, state_horizon_ms: int | None
) -> Iterator[InitErrorDetails]:
    try:
        _layout(tick_ms, size, levels, state_levels, state_horizon_ms)
    except GeometryError:
        return  # reported by the rule of the geometry
    except ConfigError as error:
        field = (error.field or "").removesuffix("_ms")
        yield fault_at(field, what=error.what, value=error.value, rule=error.rule, hint=error.hint)


class TieredWheelConfig(WheelConfig):
    """The geometry, the number of shards, and which levels are in Spark state. All are fixed by the first start."""

    state_levels: StrictInt | None = Field(None, ge=0)
    """How many levels, from the lowest, are in Spark state. Default: half of them."""

    state_horizon_ms: PositiveMs | None = Field(None, alias="state_horizon")
    """With state_levels 0: entries due within this time are in Spark state."""

    rules: ClassVar[tuple[Rule, ...]] = (_fits_int64, _splits)

    def layout(self) -> StoreLayout:
        """Returns which levels are in the slot store."""
        return _layout(self.tick_ms, self.size, self.levels, self.state_levels, self.state_horizon_ms)


class _Clock(Section):
    discriminator: ClassVar = "kind"


class EventClockConfig(_Clock):
    """The watermark of the commands' event times is the time."""

    kind: Literal["event"]
    """The watermark is the time."""

    delay_ms: Span = Field(as_written("0 seconds"), alias="delay")
    """How far the clock stays behind the latest event time."""

    max_ahead_ms: Annotated[int | None, *duration_or("none")] = Field(
        as_written("1 minute"), alias="max_ahead"
    )
    """Event times further ahead of the wall clock are rejected. none: no bound, for data of the future."""

    heartbeat_ms: PositiveMs = Field(as_written("1 minute"), alias="heartbeat")
    """How often an idle wheel runs a batch."""


class ProcessingClockConfig(_Clock):
    """The wall clock is the time: the timestamp of each batch, as Spark journals it."""

    kind: Literal["processing"]
    """The wall clock is the time."""

    heartbeat_ms: PositiveMs = Field(as_written("1 minute"), alias="heartbeat")
    """How often an idle wheel runs a batch."""


def _has_one_form(
    start_ms: int | None, step_ms: int | None, instants_ms: tuple[int, ...]
) -> Iterator[InitErrorDetails]:
    values = {"start": start_ms, "step": step_ms, "instants": instants_ms or None}
    given = [key for key, value in values.items() if value is not None]
    if given not in (["start", "step"], ["instants"]):
        found = ", ".join(given) or "none of them"
        yield fault_at(what=f"found {found}", rule="either start and step, or instants")


class SimulatedClockConfig(_Clock):
    """A simulated time, for tests and replays: a start and a step for each batch, or a list of instants."""

    kind: Literal["simulated"]
    """The time is simulated."""

    start_ms: Instant | None = Field(None, alias="start")
    """The first instant."""

    step_ms: PositiveMs | None = Field(None, alias="step")
    """How far the clock moves with each batch."""

    instants_ms: tuple[Instant, ...] = Field((), alias="instants")
    """The instant of each batch, instead of start and step."""

    rules: ClassVar[tuple[Rule, ...]] = (_has_one_form,)


ClockConfig = Annotated[
    EventClockConfig | ProcessingClockConfig | SimulatedClockConfig, Field(discriminator="kind")
]
TieredClockConfig = Annotated[EventClockConfig | ProcessingClockConfig, Field(discriminator="kind")]
