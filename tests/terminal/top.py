"""The picture of ``wheel-udf top`` in the docs: the screen itself, over a server of the job's interface, with made-up figures.

::

    python -m tests.terminal.top        writes docs/img/top.svg
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from tests.unit.api.served import served
from tests.unit.delivery.test_report import report
from tests.unit.metrics.jobs import Clock, T, meter, progress
from wheel_udf.api.answer import Answer
from wheel_udf.api.job import Job
from wheel_udf.job.top_screen import Top
from wheel_udf.metrics.meter import Meter
from wheel_udf.shard.holdings import Holdings
from wheel_udf.wheel.lateness import LatenessHistogram

PICTURE: Final = Path(__file__).parents[2] / "docs" / "img" / "top.svg"
_SIZE: Final = (124, 24)
_ACTS: Final = [
    {"at": "2025-12-31T23:58:12.400Z", "act": "move", "by": "ada", "rows": 3},
    {"at": "2025-12-31T23:59:40.010Z", "act": "cancel", "by": "grace", "rows": 1_204},
]


class _Questions:
    """Answers the one question that the screen asks by itself."""

    def answer(self, _verb: str, _arguments: Mapping[str, Any]) -> Answer:
        return Answer(rows=_ACTS)

    arrow = None


def _run_a_batch(job: Meter) -> None:
    levels = {1: 38_100, 2: 120_400, 3: 61_200, 4: 9_800}
    job.on_batch(
        report(
            412,
            received=21_300,
            fired=19_870,
            rejected=3,
            codes={"bad_due_time": 2, "bad_destination": 1},
            pending=sum(levels.values()),
            next_due_ms=T + 11_000,
            clock_ms=T + 9_600,
            lateness=LatenessHistogram.of([40 + 37 * row % 950 for row in range(19_870)]),
            held=Holdings(by_level=levels, due_within={"1m": 88_000, "1h": 229_500}),
        )
    )
    job.on_progress(progress(412, addBatch=610, walCommit=38, triggerExecution=680))


async def _drawn(job: Meter, clock: Clock) -> str:
    top = Top(Job.connect("orders"), every_s=3_600)
    async with top.run_test(size=_SIZE) as pilot:
        await top.workers.wait_for_complete()
        clock.now_ms += 10_000
        _run_a_batch(job)
        top.look()
        await top.workers.wait_for_complete()
        await pilot.pause()
        return top.export_screenshot(title="wheel-udf top")


def svg() -> str:
    """Draws the screen of a job that is looked at twice, ten seconds apart."""
    clock = Clock()
    job = meter(clock)
    job.started()
    with (
        tempfile.TemporaryDirectory(prefix="wheel-top-") as folder,
        patch.dict("os.environ", WHEEL_UDF_STATE=folder),
    ):
        verbs = ("acts", "history", "pending", "cancel")
        with served(f"{folder}/checkpoint", verbs, _Questions(), {}, job):
            return asyncio.run(_drawn(job, clock))


def words_of(picture: str) -> list[str]:
    """The texts of a picture."""
    return [
        unescape(text).replace("\xa0", " ").rstrip()
        for text in re.findall(r"<text[^>]*>([^<]*)</text>", picture)
    ]


def main() -> None:
    """Draws the picture anew."""
    PICTURE.write_text(svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
