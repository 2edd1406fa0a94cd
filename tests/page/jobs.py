"""Jobs to look at: small ones of each mode, made with the command line, and hostile rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.command_line import say
from tests.spark.streams import add_files, at_ms, due
from tests.spark.watches import add_rows, event, operation
from wheel_udf.common.instants import instant_text_ms
from wheel_udf.job import loader
from wheel_udf.job.compose import compose, sources_of
from wheel_udf.job.models.scheduler import JobConfig
from wheel_udf.metrics.batch_log import BatchLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG = "x" * 512
HOSTILE = (
    "<script>alert('id')</script>",
    "\"><img src=x onerror=alert('attribute')>",
    "'; alert(1); //",
    "{{ 7 * 7 }} {% raw %}",
    "abc\u202e\u2066txt.exe",
    "=1+1 & <b>bold</b> &lt;i&gt;",
    LONG,
)
"""Ids that want to be more than text."""

PAYLOAD = b"\xff\xfe<script>alert('payload')</script>\x80"

WHEEL = {"tick": "1 second", "size": 20, "levels": 4, "shards": 2}


class Made:
    """A job in a folder.

    Attributes:
        file: Its config file.
        config: The same, read.
        is_kept: Whether several tests look at it, and none changes it.
    """

    is_kept = False

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.file = folder / "job.yml"
        self.file.write_text(json.dumps(settings), encoding="utf-8")
        self.config: JobConfig = loader.load(str(self.file), [])

    def run(self, until_s: float | None = None) -> None:
        """Runs the job over its input, and its clock to an instant."""
        until = [] if until_s is None else ["--until", instant_text_ms(at_ms(until_s))]
        said = say(self.file, "run", "--trigger", "available-now", *until)
        assert said.code == 0, said.err

    @contextmanager
    def running(self, spark: SparkSession) -> Iterator[None]:
        """The job runs meanwhile, in this process."""
        query = compose(self.config, sources_of(spark, self.config))(
            trigger="200 milliseconds", on_batch=lambda _: None
        )
        try:
            yield
        finally:
            query.stop()

    def add(self, *rows: dict[str, Any]) -> None:
        """Adds a file to the input."""
        add_files(self.file.parent / "in", [*rows])

    def log(self, *lines: dict[str, Any]) -> None:
        """Writes lines of batches, as a running job does."""
        log = BatchLog(self.config.checkpoint)
        for line in lines:
            log.append(line)


def place(folder: Path, *names: str) -> dict[str, str]:
    return {name: str(folder / name) for name in names}


def direct(folder: Path, name: str = "reminders") -> Made:
    """Fired: ``fired``. Rejected: ``bad``. Pending: ``near``, ``far``, and the hostile ids."""
    paths = place(folder, "in", "tables", "rejects", "checkpoint")
    rows = [due("fired", 2, 0), due("near", 100, 0), due("far", 90_000, 0, destination="mail"), due("bad", 9, 0, destination="no/where")]  # fmt: skip
    rows += [due(name, 5_000, 4) for name in HOSTILE]
    rows += [due("bad " + name[:100], 9, 5, destination="<u>no</u>", value=PAYLOAD) for name in HOSTILE]
    add_files(folder / "in", rows)
    return Made(folder, settings_of(name, paths))


def settings_of(name: str, paths: dict[str, str]) -> dict[str, Any]:
    source = {"format": "parquet", "path": paths["in"], "options": {"maxFilesPerTrigger": 1}}
    return {
        "name": name,
        "wheel": WHEEL,
        "clock": {"kind": "event", "max_ahead": "none"},
        "source": source,
        "destinations": {"*": {"sink": "delta", "path": paths["tables"], "create": True}},
        "rejects": {"sink": "delta", "path": paths["rejects"], "create": True},
        "checkpoint": paths["checkpoint"],
    }


def tiered(folder: Path) -> Made:
    """Fired: ``fired``. Pending: ``near`` in the state, ``far`` and ``old`` 0 to 9 in the store."""
    paths = place(folder, "in", "tables", "rejects", "checkpoint", "store")
    rows = [due("fired", 2, 0), due("near", 15, 0), due("far", 90_000, 0, destination="mail")]
    add_files(folder / "in", rows + [due(f"old {n}", 5_000 + n, 4, destination="old") for n in range(10)])
    settings = settings_of("orders", paths) | {"mode": "tiered", "store": {"path": paths["store"]}}
    return Made(folder, settings | {"wheel": WHEEL | {"state_levels": 1}})


def series(folder: Path) -> Made:
    """Pending: ``hourly``, a series, and ``once``."""
    paths = place(folder, "in", "tables", "rejects", "checkpoint")
    (folder / "in").mkdir()
    rows = [due("hourly", 3_600, 0) | {"repeat": "every hour"}, due("once", 9_000, 0) | {"repeat": None}]
    pq.write_table(pa.Table.from_pylist(rows), folder / "in" / "0.parquet")
    return Made(folder, settings_of("rounds", paths))


def purgatory(folder: Path) -> Made:
    """Completed: ``paid``. Expired: ``late``. Pending: ``open``, one of whose two keys has come."""
    paths = place(folder, "operations", "events", "tables", "rejects", "checkpoint")
    both = {"rule": "all", "deadline": "1 h"}
    operations = [
        operation("paid", 0, "p"),
        operation("late", 0, "l"),
        operation("open", 1, "a", "b", **both),
    ]
    add_rows(folder, (operations, [event("p", 2), event("a", 3)]))
    folders = {name: {"format": "parquet", "path": paths[name]} for name in ("operations", "events")}
    settings = settings_of("unpaid", paths | {"in": ""})
    del settings["source"]
    return Made(folder, settings | folders)


def line(at: int, **others: Any) -> dict[str, Any]:
    """A line of the batch log."""
    lateness = {"count": 30, "p50_ms": 450, "p99_ms": 1_250, "max_ms": 2_000}
    found = {"at_ms": at, "query": "wheel", "batch_id": 1, "fired": 30, "received": 42, "rejected": 1}
    return found | {"seconds": 0.4, "paused": False, "lateness": lateness} | others
