"""What a replay varies: the settings of one plan."""

from __future__ import annotations

from dataclasses import dataclass, field

from wheel_udf.common.errors import ConfigError
from wheel_udf.common.geometry import Wheel
from wheel_udf.common.instants import require_ms
from wheel_udf.store.layout import StoreLayout


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The settings of one replay.

    Attributes:
        wheel: The geometry.
        trigger_ms: Time between two batches.
        shards: Number of shards.
        memory_ms: How long an ended id is remembered; None for ever.
        limit: Most rows released in a batch; None for no bound.
        state_levels: Tiered mode: how many levels are in the state; None: direct mode.
        state_horizon_ms: With ``state_levels=0``: entries due within this time are in the state.
        name: A label; by default made of the settings.

    Raises:
        ConfigError: A setting is out of range.
    """

    wheel: Wheel
    trigger_ms: int = 1_000
    shards: int = 4
    memory_ms: int | None = 300_000
    limit: int | None = None
    state_levels: int | None = None
    state_horizon_ms: int | None = None
    name: str = field(default="")

    def __post_init__(self) -> None:
        require_ms("trigger_ms", self.trigger_ms, 1)
        require_ms("memory_ms", self.memory_ms, 0)
        for setting, least in (("shards", 1), ("limit", 1)):
            value = getattr(self, setting)
            if value is not None and value < least:
                raise ConfigError(
                    "a setting is out of range", field=setting, value=value, rule=f"at least {least}"
                )
        _ = self.layout
        if not self.name:
            object.__setattr__(self, "name", self._label())

    @property
    def layout(self) -> StoreLayout | None:
        """Which levels are in the slot store; None in the direct mode."""
        if self.state_levels is None:
            return None
        return StoreLayout(self.wheel, self.state_levels, self.state_horizon_ms)

    def _label(self) -> str:
        wheel = self.wheel
        mode = "direct" if self.state_levels is None else f"tiered {self.state_levels}"
        shape = f"tick {wheel.tick_ms} ms x {wheel.size} x {wheel.levels}"
        return f"{mode}, {shape}, trigger {self.trigger_ms} ms, {self.shards} shards"
