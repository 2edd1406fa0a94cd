"""Names of the HTTP interface that both ends use."""

from __future__ import annotations

from typing import Final

ROOT: Final = "/v1/"
ARROW: Final = "application/vnd.apache.arrow.stream"
JSON: Final = "application/json"
PAGE: Final = "page"
"""Serves a page until the client hangs up."""
CHECKPOINT: Final = "Wheel-Checkpoint"
"""Header of a question: the checkpoint that it is about, percent-encoded."""
MOST_BYTES: Final = 4_000_000
"""Bytes of the arguments of a question."""
MOST_ROWS: Final = 100_000
"""Rows of an answer as JSON: they pass through the driver's memory, which is the job's."""
MOST_ARROW_ROWS: Final = 1_000_000
"""Likewise, of one as Arrow, which needs a tenth of it."""
SERVER: Final = "wheel_udf"
"""The name of the server in its answers."""
