"""Runs a soak: ``python -m tests.soak``; see the package.

::

    make soak                                    30 minutes a mode
    make soak ARGS='--total-minutes 5'           all modes in five minutes, starts included
    make soak ARGS='--modes tiered --minutes 60'
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from tests.soak import report
from tests.soak.plan import MODES, SETTINGS, Plan, plan_of

ROOT = Path(__file__).parents[2]


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description="Each mode at a steady rate; does anything grow?"
    )
    parser.add_argument(
        "--minutes", type=float, default=30, help="of feeding, a mode (default: 30; less than 10: short form)"
    )
    parser.add_argument(
        "--total-minutes", type=float, help="of all modes together, starts included: short form"
    )
    parser.add_argument("--modes", default=",".join(MODES), help=f"some of {','.join(MODES)}")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "soak", help="folder for samples and picture"
    )
    asked = parser.parse_args(given)
    asked.modes = asked.modes.split(",")
    if unknown := set(asked.modes) - set(MODES):
        parser.error(f"no such mode: {', '.join(sorted(unknown))}; there are {', '.join(MODES)}")
    try:
        asked.plan = plan_of(asked.minutes, asked.total_minutes, len(asked.modes))
    except ValueError as fault:
        parser.error(str(fault))
    return asked


def run_modes(modes: list[str], plan: Plan, out: Path) -> bool:
    """Runs the modes; whether the output of each is right. The samples are in the folder then."""
    from tests.soak.runs import Soak
    from tests.soak.sampler import Book, Listener
    from tests.soak.verify import verify
    from wheel_udf import build_session, stop_session
    from wheel_udf.spark.session import close_states

    began_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began_s:7.1f} s  {text}", flush=True)

    work, scratch = out / "work", out / "scratch"
    settings = SETTINGS | {"spark.driver.defaultJavaOptions": plan.java, "spark.local.dir": str(scratch)}
    spark = build_session("soak", master="local[2, 4]", conf=settings, checkpoint=str(work))
    # A batch without new files archives those of the batch before once more, and warns that they are gone.
    spark.sparkContext.setLogLevel("ERROR")
    samples = out / "samples.jsonl"
    book, right = Book(samples), True
    try:
        spark.streams.addListener(Listener(book))
        soak = Soak(spark, work, scratch, plan, book)
        for mode in modes:
            ended = soak.run(mode, say)
            fine, text = verify(ended, samples, plan.memory_s)
            right &= fine
            say(f"{mode}: {text}")
    finally:
        close_states(spark)  # their folders are deleted now
        stop_session(spark)
        book.close()
    for folder in (work, scratch):
        if right:
            shutil.rmtree(folder, ignore_errors=True)
    return right


def _measure(modes: list[str], plan: Plan, out: Path) -> tuple[bool, list[report.Result]]:
    """Runs the modes, prints the table and draws the picture; whether the output is right, and each figure's trend."""
    out.mkdir(parents=True, exist_ok=True)
    for name in ("work", "scratch"):
        shutil.rmtree(out / name, ignore_errors=True)
    right = run_modes(modes, plan, out)
    samples = report.read_samples(out / "samples.jsonl")
    results = report.results_of(samples, plan, modes)
    report.draw(out / "soak.png", samples, results, modes, plan)
    print(f"\n{report.table(results, plan.share)}\n\nsamples: {out}/samples.jsonl, picture: {out}/soak.png")
    return right, results


def main(given: list[str] | None = None) -> int:
    """Runs and decides; 1 if anything grows, if the output is not right, or if there are too few samples to decide by."""
    asked = _arguments(given)
    out, plan = asked.out.resolve(), asked.plan
    print(
        f"{', '.join(asked.modes)}: {plan.rate} commands a second for {plan.feed_s:.0f} s each, of which {plan.measured_s:.0f} s are measured",
        flush=True,
    )
    right, results = _measure(asked.modes, plan, out)
    growing = report.growing(results)
    if growing and right and plan.doubts_growth:
        again = [mode for mode in asked.modes if any(each.mode == mode for each in growing)]
        print(f"{report.names(growing)}: measured once more, since half a minute may show it by chance")
        right, repeated = _measure(again, plan, out / "again")
        results += repeated
        growing = [each for each in growing if each in report.growing(repeated)]
    for each in growing:
        print(f"{each.mode}: {each.figure} grows")
    undecided = [each for each in results if each.lacks_samples]
    for result in undecided:
        print(f"{result.mode}: {result.figure} has too few samples")
    fine = right and not growing and not undecided
    print("nothing grows, and the output is right" if fine else "the soak has FAILED")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
