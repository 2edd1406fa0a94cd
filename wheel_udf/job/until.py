"""Warns of an ``--until`` that the clock has passed already: the run then ends at once, or as if it had not been given.

::

    clock         where it stands before the run
    processing    the wall clock
    simulated     its first instant, or the last one in the checkpoint
    event         the watermark in the checkpoint (tiered: the wheel's clock); unknown before the first batch
"""

from __future__ import annotations

from contextlib import suppress

from wheel_udf.checkpoint.spark_logs import planned_offsets, planned_watermark_ms
from wheel_udf.common.errors import CheckpointError
from wheel_udf.common.instants import instant_text
from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.job.models.purgatory import AnyConfig
from wheel_udf.job.models.scheduler import TieredConfig
from wheel_udf.job.models.wheel import EventClockConfig, SimulatedClockConfig


def warning_of(config: AnyConfig, until_ms: int) -> str | None:
    """Returns the warning, or None if ``until`` is not in the past as far as that is known."""
    now_ms, name = None, "clock of the job"
    if config.clock.kind == "processing":
        now_ms, name = wall_clock_ms(), "wall clock"
    else:
        # On other file systems than the local one a checkpoint needs a session; a damaged one is reported by the run.
        with suppress(CheckpointError):
            now_ms = _standing_ms(config)
    if now_ms is None or until_ms > now_ms:
        return None
    bounded = config.trigger_ms is None
    effect = "it has no effect" if bounded else "the run ends as soon as nothing is due"
    return (
        f"--until {instant_text(until_ms)} is in the past, the {name} is at {instant_text(now_ms)}: {effect}"
    )


def _standing_ms(config: AnyConfig) -> int | None:
    checkpoint, clock = config.checkpoints[-1], config.clock
    if isinstance(clock, EventClockConfig) and not isinstance(config, TieredConfig):
        return planned_watermark_ms(checkpoint)
    offsets = [offset for offset in planned_offsets(checkpoint) or () if isinstance(offset, dict)]
    instants = [at for offset in offsets if (at := offset.get("instant_ms")) is not None]
    if isinstance(clock, SimulatedClockConfig):
        instants += clock.instants_ms[:1] or [clock.start_ms]
    return max(instants, default=None)
