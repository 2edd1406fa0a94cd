"""The section ``api``: where a running job answers questions about itself."""

from __future__ import annotations

from pydantic import Field, StrictBool, StrictInt

from wheel_udf.job.models.section import Section
from wheel_udf.job.models.values import Text


class ApiConfig(Section):
    """A running job answers the verbs pending, cancel, ... itself, over HTTP from the driver, to who has its token."""

    enabled: StrictBool = True
    """Without it, each of these verbs starts a Spark of its own."""

    port: StrictInt = Field(0, ge=0, le=65_535)
    """The port. Default: any free one; the verbs find it."""

    address: Text = "127.0.0.1"
    """Default: this machine only. It is plain HTTP with a token: let only your network reach another one."""

    @property
    def address_is_chosen(self) -> bool:
        """Whether the place may be taken, or not be one of this machine."""
        return self.port != 0 or self.address != "127.0.0.1"
