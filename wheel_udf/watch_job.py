"""The purgatory as a job: from its checked config to the frame of :func:`wheel_udf.watch_operator.watch`; the rest is :mod:`wheel_udf.job`."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from wheel_udf.clock import Clock
from wheel_udf.contract import Contract
from wheel_udf.errors import ConfigError
from wheel_udf.watch_operator import watch
from wheel_udf.watch_settings import WatchJobConfig
from wheel_udf.watch_sources import read_both


def watched_frame(spark: SparkSession, config: WatchJobConfig, clock: Clock) -> DataFrame:
    """The frame of :func:`~wheel_udf.watch_operator.watch` over the config's two sources.

    Raises:
        ConfigErrors: Sources cannot be opened, or SQL of columns cannot be used; ConfigError: outcomes would go nowhere.
        ContractError: A source does not fit.
    """
    contract = config.contract
    operations, events = read_both(spark, config.operations, config.events)
    named = "destination" in (name.lower() for name in operations.columns)
    if config.watch.deliver and not named and contract.default_destination is None:
        raise ConfigError(
            "outcomes would go nowhere",
            field="contract.default_destination",
            rule="a default, or a column destination of the operations",
            hint="watch.deliver: [] if they are only to be counted",
        )
    return watch(
        operations,
        events,
        wheel=config.wheel.wheel(),
        clock=clock,
        shards=config.wheel.shards,
        contract=Contract(
            max_delay_ms=contract.max_delay_ms,
            max_value_bytes=contract.max_value_bytes,
            destinations=tuple(config.destinations),
            default_destination=contract.default_destination,
        ),
        lookback_ms=config.watch.lookback_ms,
        memory_ms=contract.memory_ms,
        deliver=config.watch.deliver,
    )


def watch_row_settings(config: WatchJobConfig, until_ms: int | None) -> dict[str, Any]:
    """The settings that change the rows of a batch, as JSON can hold them; no options: they may hold secrets."""
    return {
        "contract": config.contract.model_dump(mode="json"),
        "watch": config.watch.model_dump(mode="json"),
        "clock": config.clock.model_dump(mode="json", exclude={"heartbeat_ms"}),
        "until_ms": until_ms,
        "meaning": {
            name: [dict(section.columns), section.where]
            for name, section in (("operations", config.operations), ("events", config.events))
        },
        "destinations": [[name, sink.sink, sink.path] for name, sink in config.destinations.items()],
        "rejects": [config.rejects.sink, config.rejects.topic or config.rejects.path],
    }
