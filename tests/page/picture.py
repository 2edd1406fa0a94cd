"""The picture of the page in the docs: the page itself, of a job with made-up figures, in a real browser.

::

    python -m tests.page.picture        writes docs/img/page.png
"""

from __future__ import annotations

import math
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Final, cast

from selenium import webdriver
from waitress.server import create_server

from tests.unit.page.figures import NOW_MS, figures_of, line, next_of, wheel_of
from tests.unit.page.test_views import Reader
from wheel_udf.common.geometry import Wheel
from wheel_udf.common.outcomes import WHEEL_COUNTS
from wheel_udf.page.app import Page, make_app
from wheel_udf.page.guard import Access
from wheel_udf.page.hour import hour_of
from wheel_udf.page.subject import Subject
from wheel_udf.page.tasks import Tasks

PICTURE: Final = Path(__file__).parents[2] / "docs" / "img" / "page.png"
WHEEL: Final = Wheel(tick_ms=1_000, size=20, levels=6)
DESTINATIONS: Final = {"reminders_email": 0.62, "reminders_sms": 0.3, "orders_to_close": 0.08}
_WIDTH, _HEIGHT = 1_180, 2_182
_LATE_MS: Final = 1_180


def figures() -> dict[str, Any]:
    """Figures of a tiered job with 660,000 pending entries."""
    make = random.Random(7)
    cells, windows = [], []
    for level in range(1, WHEEL.levels + 1):
        tick_ms = WHEEL.tick_ms * WHEEL.size ** (level - 1)
        slots = range(0 if level == 1 else 1, WHEEL.size) if level < WHEEL.levels else range(1, 2)
        for ahead in slots:
            slot = NOW_MS // tick_ms + ahead
            rows = round(make.lognormvariate(0, 0.7) * 45 * 3.2 ** (level - 1))
            if level < 4:
                cells.append((level, slot, rows))
            else:
                windows.append((level, slot * tick_ms, (slot + 1) * tick_ms, rows))
    near, far = sum(rows for *_, rows in cells), sum(rows for *_, rows in windows)
    steps: dict[str, Counter[int]] = {name: Counter() for name in DESTINATIONS}
    for name, share in DESTINATIONS.items():
        for step in range(1, 17):
            total = near + far
            weight = math.exp(-(((step - 14.5) / 2.6) ** 2))
            steps[name][step] = round(total * share * weight / 4.6)
    pending = sum(map(sum, (counts.values() for counts in steps.values())))
    named = [
        ("order-81720", 900, "orders_to_close"),
        ("order-81733", 1_400, "orders_to_close"),
        ("review-5521", 2_000, "reminders_email"),
        ("trial-99", 2_750, "reminders_sms"),
        ("digest-daily", 4_000, "reminders_email"),
        ("order-81790", 5_500, "orders_to_close"),
    ]
    following = [
        next_of(name, ahead_ms, is_series="daily" in name) | {"destination": destination}
        for name, ahead_ms, destination in named
    ]
    lines = [
        line(
            minute * 60_000 + 30_000,
            fired=round(1_050 + 850 * math.sin(minute / 6.5) + make.uniform(-60, 60)),
            received=make.randint(1_150, 1_450),
            rejected=int(minute % 9 == 0),
            lateness={
                "count": 900,
                "p50_ms": 480,
                "p99_ms": _LATE_MS + make.randint(-80, 80),
                "max_ms": 2_000,
            },
        )
        for minute in range(60)
        if not 24 < minute < 28
    ]
    counts = dict.fromkeys(WHEEL_COUNTS, 0) | {
        "fired": 4_812_377,
        "cancelled": 310_204,
        "superseded": 96_010,
        "duplicate": 12,
        "rejected": 41,
        "missed": 3,
        "applied": 310_204,
        "late": 518,
        "occurrences_fired": 40_210,
        "occurrences_missed": 14,
    }
    return figures_of(
        wheel=wheel_of(
            pending=near,
            far=far,
            counts=counts,
            cells=cells,
            steps=steps,
            next=following,
            next_due_ms=NOW_MS + 900,
        ),
        store={
            "rows": far,
            "inbox": 120,
            "windows": windows,
            "files": 210,
            "bytes": 123_000_000,
            "cursor_ms": NOW_MS + 8_000_000,
        },
        exact={
            "rows": pending,
            "clock_ms": NOW_MS,
            "steps": {name: dict(each) for name, each in steps.items()},
        },
        batches=hour_of(lines, NOW_MS),
        rejects={"codes": {"bad_due": 29, "no_destination": 12}, "samples": []},
    )


def main() -> None:
    """Serves the page and takes its picture."""
    none = cast("list[Any]", [None] * 4)
    subject = Subject(
        "reminders", "tiered", *none[:2], cast("Any", lambda: None), WHEEL, *none[:2], "processing"
    )
    page = Page(subject, Access("127.0.0.1", 0), cast("Any", Reader(figures())), Tasks(), lambda: NOW_MS)
    server = cast("Any", create_server(make_app(page), host="127.0.0.1", port=0))
    threading.Thread(target=server.run, daemon=True).start()
    options = webdriver.ChromeOptions()
    for argument in (
        "--headless=new",
        "--no-sandbox",
        f"--window-size={_WIDTH},{_HEIGHT}",
        "--hide-scrollbars",
    ):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options)
    try:
        driver.get(f"http://127.0.0.1:{server.effective_port}/")
        PICTURE.write_bytes(driver.get_screenshot_as_png())
    finally:
        driver.quit()


if __name__ == "__main__":
    main()
