"""The section ``metrics``: metrics and health over HTTP."""

from __future__ import annotations

from pydantic import Field, StrictInt

from wheel_udf.job.models.section import Section
from wheel_udf.job.models.values import PositiveMs, Text, as_written


class MetricsConfig(Section):
    """Metrics for Prometheus (/metrics) and the health of the job (/healthz), over HTTP from the driver."""

    port: StrictInt = Field(ge=0, le=65_535)
    """The port. 0: any free one, which the first line of the run names."""

    address: Text = "127.0.0.1"
    """Default: this machine only; 0.0.0.0: all addresses. There is no login: let only your network reach it."""

    unhealthy_after_ms: PositiveMs = Field(as_written("5 minutes"), alias="unhealthy_after")
    """Unhealthy if the oldest due entry is later, or no batch has ended for so long. Longer than the trigger."""
