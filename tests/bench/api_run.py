"""``make bench-api``: how long a question to a running job takes, from the shell to the last line of the answer.

::

    make bench-api                                        a direct job of a million entries, a tiered one of 10 million (20 minutes on 2 cores)
    make bench-api ARGS='--direct 100000 --tiered 0'      other sizes; 0: not that mode
    make bench-api ARGS='--quick'                         tiny sizes, to see that it works

The jobs are those of :mod:`tests.bench.page_run`. Each runs (``wheel-udf run``) while it is asked, the tiered one is asked
once more when it has ended, and each question is a process of its own: the figure is the median of several, after one that is not counted. The exit code is 0 when all targets are met.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final

import yaml

from tests.bench import page_run, report
from tests.bench.report import Line, Target
from tests.bench.workplace import Say, workplace
from wheel_udf.api.place import RECORD

ROOT: Final = Path(__file__).parents[2]
TIMES: Final = 5
QUESTIONS: Final = {
    "the first 20": ["pending"],
    "count": ["pending", "--count"],
    "an id": ["pending", "--id", "entry-77"],
    "count by a condition": ["pending", "--count", "--where", "destination = 'place-7'"],
    "history of an id": ["history", "--id", "entry-77"],
    "acts": ["acts"],
    "cancel an id, dry run": ["cancel", "--id", "entry-78", "--dry-run"],
}
AT_REST: Final = {
    "count, at rest": ["pending", "--count"],
    "an id, at rest": ["pending", "--id", "entry-77"],
    "the first 20, at rest": ["pending"],
}
"""Questions to a tiered job that has ended."""
AT_MOST_S: Final = {
    "the first 20": 1.0,
    "an id": 1.0,
    "acts": 1.0,
    "count, at rest": 3.0,
    "an id, at rest": 2.0,
}
_PATIENCE_S: Final = 300


def config(folder: Path, mode: str) -> Path:
    """Writes the config of a job that :func:`tests.bench.page_run.job` has made."""
    settings: dict[str, Any] = {
        "name": "bench",
        "mode": mode,
        "wheel": {"tick": "1 second", "size": 20, "levels": 6, "shards": page_run.SHARDS},
        "clock": {"kind": "processing", "heartbeat": "1 hour"},
        "source": {"format": "json", "path": str(folder / "in")},
        "contract": {"max_delay": "unlimited"},
        "destinations": {"*": {"sink": "delta", "path": str(folder / "tables"), "create": True}},
        "rejects": {"sink": "delta", "path": str(folder / "rejects")},
        "checkpoint": str(folder / "checkpoint"),
    }
    if mode == "tiered":
        settings["wheel"]["state_levels"] = 3
        settings["store"] = {"path": str(folder / "store")}
    (folder / "in").mkdir()
    file = folder / "job.yml"
    file.write_text(yaml.safe_dump(settings))
    return file


def measure(file: Path, say: Say) -> dict[str, float]:
    """Runs the job and asks it; seconds by question."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "wheel_udf"]
    with (file.parent / "run.log").open("w") as log:
        run = subprocess.Popen(
            [*command, "run", "--config", str(file)], env=environment, cwd=ROOT, stdout=log, stderr=log
        )
    try:
        _wait_until_it_answers(file, run)
        found = _asked(QUESTIONS, command, file, say)
    finally:
        run.terminate()
        run.wait()
    return found | (
        _asked(AT_REST, command, file, say) if "store" in yaml.safe_load(file.read_text()) else {}
    )


def _asked(questions: Mapping[str, list[str]], command: list[str], file: Path, say: Say) -> dict[str, float]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    found = {}
    for name, (verb, *rest) in questions.items():
        line = [*command, verb, "--config", str(file), *rest]
        taken = []
        for _ in range(TIMES + 1):
            began_s = time.perf_counter()
            subprocess.run(line, env=environment, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
            taken.append(time.perf_counter() - began_s)
        found[name] = median(taken[1:])
        say(f"  {name}: first {taken[0]:.2f} s, then {found[name]:.2f} s")
    return found


def _wait_until_it_answers(file: Path, run: subprocess.Popen[bytes]) -> None:
    end_s = time.monotonic() + _PATIENCE_S
    while (
        "batch" not in (file.parent / "run.log").read_text()
        or not (file.parent / "checkpoint" / RECORD).exists()
    ):
        if run.poll() is not None or time.monotonic() > end_s:
            raise RuntimeError((file.parent / "run.log").read_text())
        time.sleep(0.2)
    time.sleep(5)  # the batch is committed, and the JVM has compiled what it is made of


def main(arguments: list[str] | None = None) -> int:
    """Measures; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.api_run")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it work?")
    parser.add_argument("--direct", type=int, default=1_000_000, metavar="N", help="pending, direct mode")
    parser.add_argument("--tiered", type=int, default=10_000_000, metavar="N", help="pending, tiered mode")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench-api.json", help="the JSON file")
    asked = parser.parse_args(arguments)
    counts = {"direct": 2_000, "tiered": 5_000} if asked.quick else vars(asked)
    lines: list[Line] = []
    with workplace("api", "4g") as (spark, folder, say):
        made = {}
        for mode in ("direct", "tiered"):
            if counts[mode]:
                say(f"{mode}: making {counts[mode]:,} entries")
                page_run.job(spark, folder / mode, counts[mode], mode)
                made[mode] = config(folder / mode, mode)
        spark.stop()
        for mode, file in made.items():
            say(f"{mode}: asking")
            for name, figure in measure(file, say).items():
                target = Target(of="figure", at_most=AT_MOST_S[name]) if name in AT_MOST_S else None
                what = f"{name}, {counts[mode]:,} pending"
                lines.append(Line(case=mode, what=what, figure=figure, unit="s", target=target))
            shutil.rmtree(file.parent)
    report.write_json(asked.out, report.document(lines, {}))
    sys.stdout.write(f"\n{report.table(lines)}\n\nall figures: {asked.out}\n")
    return 1 if any(line.met is False for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
