"""The settings of a tiered run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wheel_udf.commands.contract import Contract
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.geometry import Wheel
from wheel_udf.common.instants import require_ms
from wheel_udf.control.clocks import EventClock, ProcessingClock
from wheel_udf.policies.limits import Limits
from wheel_udf.policies.punctual import Punctual
from wheel_udf.policies.rates import NO_RATES, Rates
from wheel_udf.policies.retries import NO_RETRIES, Retries
from wheel_udf.store.layout import StoreLayout
from wheel_udf.store.table import DEFAULT_KEEP_MS
from wheel_udf.stream.sharded_query import DEFAULT_MEMORY_MS


@dataclass(frozen=True, kw_only=True)
class TieredWheel:
    """The settings of a tiered run: those of :func:`wheel_udf.tiered.start.schedule_tiered`.

    Raises:
        ConfigError: ``pause`` with the event clock, or a setting is out of range.
    """

    layout: StoreLayout
    store: str
    clock: EventClock | ProcessingClock
    shards: int = 4
    contract: Contract = Contract()  # noqa: RUF009  # frozen
    memory_ms: int | None = DEFAULT_MEMORY_MS
    limit: int | None = None
    limits: Limits = Limits()  # noqa: RUF009  # frozen
    on_limit: Literal["reject", "pause"] = "reject"
    history_ms: int = 0
    keep_ms: int = DEFAULT_KEEP_MS
    punctual: Punctual | None = None
    retries: Retries = NO_RETRIES
    rates: Rates = NO_RATES
    lead_windows: int = 0

    def __post_init__(self) -> None:
        if self.on_limit == "pause" and isinstance(self.clock, EventClock):
            raise ConfigError(
                "the intake cannot pause here",
                field="on_limit",
                value="pause",
                rule="not with the event clock: commands move it, so nothing would make room again",
            )
        for name in ("history_ms", "keep_ms", "memory_ms"):
            require_ms(name, getattr(self, name), 0)
        if self.lead_windows < 0:
            raise ConfigError(
                "a setting is out of range", field="lead_windows", value=self.lead_windows, rule="at least 0"
            )

    @property
    def wheel(self) -> Wheel:
        """The geometry."""
        return self.layout.wheel
