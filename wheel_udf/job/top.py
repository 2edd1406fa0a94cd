"""The verb ``top``: a running job in a terminal, looked at each second (textual). Needs no Spark.

::

    /   looks for an id: what is pending of it, and its history
    c   cancels an id: says how many entries that would be, and asks
    q   ends
"""

from __future__ import annotations

import argparse
from typing import Any, Final

from wheel_udf.common.errors import ConfigError
from wheel_udf.common.extras import missing_package
from wheel_udf.common.progress import PrintLine

_OFTEN_S: Final = 0.1
_SELDOM_S: Final = 86_400.0


def execute(config: Any, asked: argparse.Namespace, print_line: PrintLine) -> None:  # noqa: ARG001  # as of all verbs
    """Shows the job until it is left.

    Raises:
        ConfigError: The package for it is missing, the job does not run, or it is to be looked at too often.
    """
    if not _OFTEN_S <= asked.every <= _SELDOM_S:  # not a number is neither
        raise ConfigError(
            "not a time between two looks",
            field="--every",
            value=asked.every,
            rule=f"{_OFTEN_S} to {_SELDOM_S:,.0f} seconds",
        )
    if (missing := missing_package("textual", "top", "top")) is not None:
        raise missing
    from wheel_udf.api.job import Job
    from wheel_udf.api.place import absolute
    from wheel_udf.job.top_screen import Top

    # A relative path may also be the name of another job.
    Top(Job.connect(absolute(config.checkpoint)), every_s=asked.every).run()
