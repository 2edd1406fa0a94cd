"""The section ``metrics``: what the metrics of a job depend on. Section ``api`` says where they are served."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, StrictBool

from wheel_udf.job.models.section import Section
from wheel_udf.job.models.values import PositiveMs


class MetricsConfig(Section):
    """The health of the job, and its figures elsewhere. /metrics and /healthz are served at api.port."""

    not_here: ClassVar = dict.fromkeys(("port", "address"), "metrics are served at api.port and api.address")

    unhealthy_after_ms: PositiveMs | None = Field(None, alias="unhealthy_after")
    """Unhealthy if the oldest due entry is later, or no batch ends for so long. Default: 5 minutes, or two triggers."""

    observed: StrictBool = False
    """true: the figures of each batch are in Spark's progress reports, too, as of wheel_udf.observed."""
