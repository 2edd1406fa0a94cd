"""A process of a chain: ``python -m tests.faults.victim ORDER``, where ORDER is an :class:`~tests.faults.points.Order` as
JSON.

It does what it is told, one after the other, until its trap strikes or all is done. Why it failed is its last line on
stdout.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults import hooks
from tests.faults.inputs import act_of
from tests.faults.points import TIERED, Order
from tests.faults.trap import FILL, Trap, members, send
from tests.faults.workers import WORKERS, kill_workers
from tests.faults.world import SETTINGS, Job
from wheel_udf.pending import acts
from wheel_udf.spark.failures import explain
from wheel_udf.spark.session import build_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_TRIES = 4


def main(order: Order) -> None:
    """Does it all."""
    hooks.put_traps()
    trap = Trap.of_environment()
    job = Job(
        Path(order.folder),
        order.mode,
        order.files,
        sink=lambda path: hooks.TrappedSink(path, create=True),
        source=hooks.trapped_source,
        kafka=order.kafka,
        on_batch=hooks.on_batch,
    )
    spark = build_session("victim", master="local[2, 4]", conf=SETTINGS, checkpoint=job.checkpoint)
    for what in order.todo:
        _do(what, spark, job, trap)


def _do(what: str, spark: SparkSession, job: Job, trap: Trap) -> None:
    name, _, number = what.partition(" ")
    if name == "move":
        job.move(spark)
    elif name == "act":
        _act(int(number), spark, job)
    else:
        intake = trap.point.endswith("of the intake") and job.mode == TIERED
        query = Path(job.checkpoint, "intake") if intake else Path(job.state_query)
        trap.watch(query, 1.2 * trap.times if trap.point == "at any moment" else 0.003)
        if trap.point == WORKERS:
            threading.Thread(target=kill_workers, args=(trap,), daemon=True).start()
        _run(spark, job, to_the_end=name == "finish")


def _run(spark: SparkSession, job: Job, *, to_the_end: bool) -> None:
    """Runs the job; after a failure that may be over a moment later again, as the command does: a busy machine may be
    too slow for Spark's time-outs.
    """
    for tries in range(_TRIES):
        try:
            job.start(spark, to_the_end=to_the_end).awaitTermination()
        except Exception as error:
            full = Trap.of_environment().fault == FILL
            if full or not explain(error).transient or tries == _TRIES - 1:
                raise
        else:
            return


def _act(number: int, spark: SparkSession, job: Job) -> None:
    name, to = act_of(number, job.files)
    picked = acts.Picked(where=f"schedule_id like 'act{number}-%'")
    change = {} if to is None else {"to": to}
    getattr(acts, name)(spark, job.work(spark), picked, **change)


def _leave(code: int) -> None:
    """Ends at once, and the JVM with it: with a full disk it might never end by itself."""
    sys.stdout.flush()
    send(members(os.getsid(0))[:-1], signal.SIGKILL)
    os._exit(code)


if __name__ == "__main__":
    try:
        main(Order(**json.loads(sys.argv[1])))
    except Exception as error:  # noqa: BLE001  # whatever it was, it is reported
        failure = explain(error)
        print(json.dumps({"sentence": failure.sentence, "transient": failure.transient}))  # noqa: T201  # its report
        _leave(failure.exit_code)
    _leave(0)
