"""The section ``api``: where a running job serves its metrics and answers questions about itself."""

from __future__ import annotations

from pydantic import Field, StrictBool, StrictInt

from wheel_udf.job.models.section import Section
from wheel_udf.job.models.values import Text


class ApiConfig(Section):
    """The HTTP server of a running job: /metrics and /healthz for all, pending, cancel, ... for who has its token."""

    enabled: StrictBool = True
    """false: no metrics and no health, and each of these verbs starts a Spark of its own."""

    port: StrictInt = Field(0, ge=0, le=65_535)
    """The port. Default: any free one; the verbs find it, Prometheus needs a fixed one."""

    address: Text = "127.0.0.1"
    """Default: this machine only. 0.0.0.0: all. It is plain HTTP: let only your network reach another one."""

    @property
    def address_is_chosen(self) -> bool:
        """Whether it listens at a place that may be taken, or not be one of this machine."""
        return self.enabled and (self.port != 0 or self.address != "127.0.0.1")
