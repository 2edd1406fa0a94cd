"""``make bench-page``: how long the page takes over much that is pending: its first figures, a search by id, a refresh.

::

    make bench-page                                        a direct job of a million entries, a tiered one of 10 million (20 minutes on 2 cores)
    make bench-page ARGS='--direct 100000 --tiered 0'      other sizes; 0: not that mode
    make bench-page ARGS='--quick'                         tiny sizes, to see that it works

Each job is made as an import makes it, from an export with made-up entries: due at random over a year, 96 random bytes
each, a hundred destinations. What a click waits for is measured in the process that serves the page, without a
browser:

==========  ===============================================================================================================
page        an answer to GET / while the first figures are being read: what a browser waits for
figures     from the start until the card of the wheel has figures (tiered: of the near entries and of the store's metadata)
again       the same reading once more, when no batch was committed: what the page costs while a job rests
exact       tiered: until the exact count is there, which the page does not wait for
search      of an id that is pending; and of one of which nothing is known
==========  ===============================================================================================================
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from pyspark.sql import SparkSession, functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from tests.bench import report
from tests.bench.report import Line, Target
from tests.bench.workplace import Say, workplace
from wheel_udf.common.geometry import Wheel
from wheel_udf.common.outcomes import WHEEL_COUNTS
from wheel_udf.control.clocks import ProcessingClock
from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.page.guard import Access
from wheel_udf.page.questions import search
from wheel_udf.page.readings import readings_of
from wheel_udf.page.server import PageServer
from wheel_udf.page.subject import Subject
from wheel_udf.pending.entries import PendingWork
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import Destinations
from wheel_udf.store.layout import StoreLayout
from wheel_udf.tiered.settings import TieredWheel
from wheel_udf.transfer.content import ACTS_FILE, ENTRIES, MEMORY, SCHEMAS
from wheel_udf.transfer.importing import import_direct
from wheel_udf.transfer.into_store import import_tiered
from wheel_udf.transfer.manifest import Manifest, write_manifest

ROOT = Path(__file__).parents[2]
WHEEL = Wheel(1_000, 20, 6)
LAYOUT = StoreLayout(WHEEL, state_levels=3)
SHARDS = 4
YEAR_MS = 365 * 86_400_000
NOW_MS = wall_clock_ms()
_POLL_S = 0.05


def export(spark: SparkSession, folder: Path, count: int, mode: str) -> str:
    """Writes an export with made-up entries; returns its folder."""
    place = str(folder / "export")
    made = {
        "schedule_id": F.concat(F.lit("entry-"), F.col("id").cast("string")),
        "seq": F.lit(1),
        "amend": F.lit(0),
        "deliver_at_ms": F.lit(NOW_MS + 86_400_000) + F.floor(F.rand(7) * YEAR_MS),
        "destination": F.concat(F.lit("place-"), F.pmod("id", F.lit(100)).cast("string")),
        "value": F.expr("randstr(96, 7)").cast("binary"),
    }
    columns = from_arrow_schema(SCHEMAS[ENTRIES])
    rows = spark.range(count).select(
        *(made.get(each.name, F.lit(None)).cast(each.dataType).alias(each.name) for each in columns)
    )
    rows.write.parquet(f"{place}/{ENTRIES}")
    spark.createDataFrame([], from_arrow_schema(SCHEMAS[MEMORY])).write.parquet(f"{place}/{MEMORY}")
    manifest = Manifest(
        export_id="bench",
        mode=mode,
        wheel=WHEEL.fingerprint(),
        shards=SHARDS,
        clock="processing",
        app_id="bench",
        batch=0,
        clock_ms=NOW_MS,
        counts=dict.fromkeys(WHEEL_COUNTS, 0),
        rows={ENTRIES: count, MEMORY: 0},
        positions=[None],
    )
    (Path(place) / ACTS_FILE).write_text("[]", encoding="utf-8")
    write_manifest(place, manifest)
    return place


def job(spark: SparkSession, folder: Path, count: int, mode: str) -> Subject:
    """Makes a job at rest with so many pending entries."""
    place, checkpoint, store = export(spark, folder, count, mode), str(folder / "checkpoint"), None
    if mode == "tiered":
        store = str(folder / "store")
        what = TieredWheel(layout=LAYOUT, store=store, clock=ProcessingClock(), shards=SHARDS)
        import_tiered(spark, place, what, checkpoint=checkpoint)
    else:
        import_direct(
            spark, place, checkpoint=checkpoint, wheel=WHEEL, clock=ProcessingClock(), shards=SHARDS
        )
    shutil.rmtree(place)
    return Subject(
        name="bench",
        mode=mode,
        spark=spark,
        checkpoint=checkpoint,
        open_work=lambda: PendingWork.of(spark, checkpoint, store),
        geometry=WHEEL,
        destinations=Destinations({"*": DeltaSink(str(folder / "tables"), create=True)}),
        rejects=DeltaSink(str(folder / "rejects")),
        clock_kind="processing",
    )


def measure(subject: Subject, count: int, say: Say) -> dict[str, float]:
    """Returns the figures of a job, in seconds."""
    figures = opened(subject)
    readings = readings_of(subject)
    readings["wheel"]()
    figures["again"] = seconds(readings["wheel"])
    for name, asked in (("search", f"entry-{count // 2}"), ("search unknown", "nobody")):
        figures[name] = seconds(lambda asked=asked: search(subject, asked))
    say(
        f"{subject.mode}, {count:,}: "
        + ", ".join(f"{name} {figure:.2f} s" for name, figure in figures.items())
    )
    return figures


def opened(subject: Subject) -> dict[str, float]:
    """Serves the page and waits for its figures."""
    awaited = {"wheel": "figures"} | ({"store": "store", "exact": "exact"} if subject.is_tiered else {})
    began_s, found = time.perf_counter(), {}
    with PageServer(subject, Access("127.0.0.1", 0, False, None, ())) as server:
        found["page"] = seconds(lambda: urlopen(server.url).read())  # the address is this process's own
        while missing := awaited.keys() - {
            name for name, figure in server.reader.figures().items() if figure.at_ms is not None
        }:
            _note(found, awaited, missing, began_s)
            time.sleep(_POLL_S)
        _note(found, awaited, missing, began_s)
    return found


def _note(found: dict[str, float], awaited: dict[str, str], missing: set[str], began_s: float) -> None:
    for name, what in awaited.items():
        if name not in missing:
            found.setdefault(what, time.perf_counter() - began_s)


def seconds(do: Callable[[], Any]) -> float:
    """How long something takes."""
    began_s = time.perf_counter()
    do()
    return time.perf_counter() - began_s


def _lines(mode: str, count: int, figures: dict[str, float]) -> list[Line]:
    whats = {
        "page": ("answer to GET /", Target(of="figure", at_most=1)),
        "figures": ("first figures", None),
        "store": ("figures of the store from metadata", Target(of="figure", at_most=10)),
        "exact": ("exact count", None),
        "again": ("reading again, nothing committed", Target(of="figure", at_most=1)),
        "search": ("search of a pending id", None),
        "search unknown": ("search of an unknown id", None),
    }
    return [
        Line(case=mode, what=f"{what}, {count:,} pending", figure=figures[name], unit="s", target=target)
        for name, (what, target) in whats.items()
        if name in figures
    ]


def main(arguments: list[str] | None = None) -> int:
    """Measures; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.page_run")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it work?")
    parser.add_argument(
        "--direct", type=int, default=1_000_000, metavar="N", help="pending in the direct mode"
    )
    parser.add_argument(
        "--tiered", type=int, default=10_000_000, metavar="N", help="pending in the tiered mode"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench-page.json", help="the JSON file")
    asked = parser.parse_args(arguments)
    counts = {"direct": asked.direct, "tiered": asked.tiered}
    if asked.quick:
        counts = {"direct": 2_000, "tiered": 5_000}
    lines: list[Line] = []
    with workplace("page", "4g") as (spark, folder, say):
        for mode, count in counts.items():
            if count:
                say(f"{mode}: making {count:,} entries")
                subject = job(spark, folder / mode, count, mode)
                say(f"{mode}: measuring")
                lines += _lines(mode, count, measure(subject, count, say))
                shutil.rmtree(folder / mode)
    report.write_json(asked.out, report.document(lines, {}))
    print(f"\n{report.table(lines)}\n\nall figures: {asked.out}")
    return 1 if any(line.met is False for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
