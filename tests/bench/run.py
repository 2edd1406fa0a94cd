"""``make bench``: the wheel beside what it replaces, ratios in one run; a table on the screen and all figures in
``build/bench.json``.

::

    make bench                              everything: about 35 minutes on 2 cores, ten of them idle
    make bench ARGS='--quick'               tiny sizes, to see that it works; its figures mean nothing
    make bench ARGS='--only b,c'            some cases (see tests/bench/cases.py)
    make bench ARGS='--idle-minutes 1'

The exit code is 0 when all targets are met, 1 when one is missed, 2 when a case could not be measured. Use a machine
that does nothing else; two queries are compared within one run, and what disturbs one of them only is in the ratio.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.bench import report

ROOT = Path(__file__).parents[2]
CORES = 2
_SETTINGS: dict[str, str | float | bool] = {
    "spark.sql.shuffle.partitions": CORES,
    # Nothing on the network.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def main(arguments: list[str] | None = None) -> int:
    """Runs the cases; see the module."""
    asked = _arguments(arguments)
    # Spark's workers find the naive operator by the name of its module.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    from wheel_udf.spark.session import build_session, stop_session

    folder = Path(tempfile.mkdtemp(prefix="wheel-bench-"))
    settings = _SETTINGS | {"spark.sql.warehouse.dir": str(folder / "warehouse")}
    try:
        spark = build_session(
            "wheel_udf bench", master=f"local[{CORES}]", conf=settings, checkpoint=str(folder)
        )
        try:
            return _measured(asked, spark, folder)
        finally:
            stop_session(spark)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.run", description="The wheel beside what it replaces, ratios in one run."
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes: does it work? (figures mean nothing)"
    )
    parser.add_argument(
        "--only", default="a,b,c,d", metavar="CASES", help="cases to run, such as a,c; default all"
    )
    parser.add_argument(
        "--idle-minutes",
        type=float,
        metavar="MINUTES",
        help="length of the idle query; default 10, with --quick 0.5",
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench.json", help="the JSON file")
    asked = parser.parse_args(arguments)
    if asked.idle_minutes is None:
        asked.idle_minutes = 0.5 if asked.quick else 10.0
    asked.only = [letter.strip() for letter in asked.only.split(",")]
    if unknown := sorted(set(asked.only) - set("abcd")):
        parser.error(f"no such case: {', '.join(unknown)}; there are a, b, c, d")
    return asked


def _measured(asked: argparse.Namespace, spark: Any, folder: Path) -> int:
    from tests.bench import cases, ground

    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", flush=True)

    sizes = ground.QUICK if asked.quick else ground.FULL
    bench = ground.Bench(spark, folder, sizes, asked.idle_minutes, say)
    about = _about(spark) | {"quick": asked.quick, "idle_minutes": asked.idle_minutes, "sizes": asdict(sizes)}
    failures: dict[str, str] = {}
    cases.warm_up(bench)
    for case in cases.sequence(asked.only):
        try:
            case(bench)
        except Exception as fault:  # noqa: BLE001  # an hour's other figures are worth keeping
            failures[case.__name__] = str(fault)
            say(f"FAILED: {case.__name__}: {fault}")
        details = {"about": about, "failures": failures, "queries": bench.details}
        report.write_json(asked.out, report.document(bench.lines, details))
    print()
    print(_headline(about))
    print()
    print(report.table(bench.lines))
    print()
    print(report.phases_table(cases.phases(bench)))
    print(f"\nall figures: {asked.out}")
    if failures:
        return 2
    return 1 if any(line.met is False for line in bench.lines) else 0


def _about(spark: Any) -> dict[str, Any]:
    """What was run, and on what."""
    from tests.bench import ground
    from tests.bench.loads import VALUE_BYTES

    return {
        "command": shlex.join([Path(sys.executable).name, "-m", "tests.bench.run", *sys.argv[1:]]),
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "machine": platform.machine(),
        "python": platform.python_version(),
        "java": spark._jvm.java.lang.System.getProperty("java.version"),
        "versions": {name: version(name) for name in ("pyspark", "pandas", "pyarrow", "numpy")},
        "master": spark.sparkContext.master,
        "settings": {
            key: value
            for key, value in sorted(spark.sparkContext.getConf().getAll())
            if key.startswith("spark.sql.streaming") or key in _SETTINGS
        },
        "wheel": ground.WHEEL.fingerprint(),
        "shards": ground.SHARDS,
        "value_bytes": VALUE_BYTES,
        "sink": "noop (all columns of all rows); idle minutes: deliver() to files",
    }


def _headline(about: dict[str, Any]) -> str:
    quick = "  QUICK: the sizes are too small to mean anything" if about["quick"] else ""
    return (
        f"{about['command']}: {about['master']} on {about['cores']} cores (load {about['load_average']:.1f} at the start), "
        f"{about['shards']} shards, {about['wheel']}, values of {about['value_bytes']} random bytes.{quick}"
    )


if __name__ == "__main__":
    sys.exit(main())
