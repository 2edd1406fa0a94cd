"""The Kafka demo from end to end: broker, topics, job, commands for a minute, and an account made by an ordinary
consumer.

::

    1 broker    a real one, in a JVM of its own (or the one that WHEEL_UDF_KAFKA names), and the demo's topics
    2 job       spark-submit jobs/delay_scheduler.py run --config conf/kafka_demo.yml; ready when the first command has been delivered
    3 traffic   20,000 commands over 60 s, due 1 to 30 s later, some cancelled, some replaced      --kill: kill -9 in the middle,
    4 account   delivered, missing, early, duplicates, lateness                                            restart, same account
    5 stop      job, consumer, broker: also after Ctrl-C, an error, or a kill of the demo

All numbers come from clients outside the job. Lateness is the consumer's clock at receipt minus the due time; clients
and broker run on this machine and share its clock. A record is early if its timestamp or its receipt, whichever is
earlier, is before its due time.

Deletion: the outputs of the run before, in a folder with the demo's marker; on an external broker the demo's own
topics (:data:`TOPICS`), before and after.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import IO

from jobs.demos.job_process import SubmittedJob
from jobs.demos.kafka_account import Account, take_account
from jobs.demos.kafka_plan import TARGETS, Command, plan
from jobs.demos.kafka_report import draw, histogram, lateness_line, render
from jobs.demos.kafka_traffic import Receiver, Sender, now_ms
from jobs.demos.workspace import (
    at_least,
    clear_outputs,
    exclusive,
    job_environment,
    outcome_of,
    short,
    submit_command,
)
from wheel_udf.common.errors import SessionError
from wheel_udf.common.progress import Progress
from wheel_udf.control.wall import elapsed_ms
from wheel_udf.testing.broker import EXTERNAL_VARIABLE, LocalKafka
from wheel_udf.testing.topics import create_topics, delete_topics

FOLDER = Path("data/kafka_demo")
CONFIG = "conf/kafka_demo.yml"
COMMANDS, REJECTS = "wheel-demo-commands", "wheel-demo-rejects"
TOPICS = (COMMANDS, *TARGETS, REJECTS)
PARTITIONS = 2
SHARDS = 2
PICTURE, LOG, CHECKPOINT = "lateness.png", "job.log", "checkpoint"

_READY_S = 180
_PATIENCE_MS = 180_000  # after the last due time; a killed job has to come up again
_QUIET_MS = 3_000
_TOLD_EVERY_MS = 5_000
_WARM_UP = 20

PrintLine = Callable[[str], None]


def main(arguments: Sequence[str], root: Path, *, print_line: PrintLine) -> int:
    """Runs the demo.

    Args:
        arguments: Of the command line.
        root: The project's root, where `conf`, `jobs` and `data` are.
        print_line: Receives each line for the user.

    Returns:
        Exit code: 0 if the account agrees, 1 if it does not or a step failed, 130 after Ctrl-C.
    """
    chosen = _parser().parse_args(arguments)

    def work() -> int:
        with _terminated_as_interrupted(), exclusive(root / FOLDER) as lock:
            clear_outputs(root / FOLDER, (CHECKPOINT, PICTURE, LOG, "broker"))
            faults = _Demo(root, lock, chosen, print_line).run()
        told = ", ".join(f"{name}: {count:,}" for name, count in faults.items())
        print_line(f"the account does NOT agree: {told}" if faults else "the account agrees")
        return 1 if faults else 0

    return outcome_of(work, print_line)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m jobs.demos.kafka", description="The delay scheduler between Kafka topics."
    )
    parser.add_argument(
        "--kill", action="store_true", help="kill -9 the job in the middle, and start it again"
    )
    parser.add_argument(
        "--commands", type=at_least(200), default=20_000, metavar="N", help="how many (default: 20,000)"
    )
    parser.add_argument(
        "--seconds", type=at_least(20), default=60, metavar="S", help="over how long (default: 60)"
    )
    return parser


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """A SIGTERM unwinds like Ctrl-C, so that what was started is stopped."""

    def unwind(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Demo:
    """One run: what its steps share."""

    def __init__(self, root: Path, lock: IO[str], chosen: argparse.Namespace, print_line: PrintLine) -> None:
        self._root, self._lock, self._chosen, self._print_line = root, lock, chosen, print_line
        self._folder = root / FOLDER
        self._command = submit_command(root, ["run", "--config", CONFIG])
        self._job: SubmittedJob | None = None
        self._killed_ms: int | None = None  # UTC epoch ms
        self._next_word_ms = 0

    def run(self) -> dict[str, int]:
        """All steps; what is wrong with the account."""
        self._print_line("1 broker: a Kafka broker and the demo's topics")
        with LocalKafka(self._folder / "broker") as broker:
            external = broker.pid is None
            self._print_line(
                f"  {broker.bootstrap}, {'external' if external else f'process {broker.pid}'}; {', '.join(TOPICS)}"
            )
            if external:
                delete_topics(broker.bootstrap, TOPICS)
            create_topics(broker.bootstrap, TOPICS, partitions=PARTITIONS)
            try:
                with (
                    Receiver(broker.bootstrap, TARGETS) as receiver,
                    Receiver(broker.bootstrap, [REJECTS]) as rejects,
                ):
                    return self._with_clients(broker.bootstrap, receiver, rejects)
            finally:
                if external:
                    delete_topics(broker.bootstrap, TOPICS)

    def _with_clients(self, bootstrap: str, receiver: Receiver, rejects: Receiver) -> dict[str, int]:
        sender = Sender(bootstrap, COMMANDS)
        try:
            self._print_line(
                f"2 job: {EXTERNAL_VARIABLE}={bootstrap} SPARK_CONF_DIR=conf {' '.join(short(self._root, self._command))}"
            )
            self._start(bootstrap)
            self._warm_up(sender, receiver)
            self._traffic(bootstrap, sender, receiver)
            self._print_line("4 account: what the consumer received, compared with what was sent")
            account = take_account(
                sender.sent, list(receiver.received), shards=SHARDS, rejects=len(rejects.received)
            )
            self._tell(account, measured_from_ms=sender.sent[_WARM_UP].said_ms)
        finally:
            self._stop()
        return account.faults

    # --- the job --------------------------------------------------------------------------------------

    def _start(self, bootstrap: str) -> None:
        self._job = SubmittedJob(
            self._command,
            root=self._root,
            environment=job_environment(self._root) | {EXTERNAL_VARIABLE: bootstrap},
            log=self._folder / LOG,
            lock=self._lock,
        )

    def _running(self) -> SubmittedJob:
        assert self._job is not None, "started"
        return self._job

    def _stop(self) -> None:
        if self._job is None:
            return
        self._print_line("5 stop: the job after its batch, then consumer and broker")
        code = self._job.stop(self._folder / CHECKPOINT)
        for line in self._summary(self._job.lines):
            self._print_line(f"  {line}")
        if code != 0:
            self._print_line(f"  the job has ended with exit code {code}; its lines: {FOLDER / LOG}")

    @staticmethod
    def _summary(lines: Sequence[str]) -> Sequence[str]:
        """What stands behind the last line of a batch: the job's own account."""
        batches = [number for number, line in enumerate(lines) if line.lstrip().startswith("batch ")]
        return lines[batches[-1] + 1 :] if batches else lines[-5:]

    def _warm_up(self, sender: Sender, receiver: Receiver) -> None:
        """Commands due at once, until they are out: from then on the job is up. They are part of the account."""
        began_ms = now_ms()
        for number in range(_WARM_UP):
            target = TARGETS[number % len(TARGETS)]
            sender.print_line(Command(0, f"warm-up-{number:05}", 1, "SCHEDULE", 0, target, says_delay=True))
        sender.flush()
        tick = threading.Event()
        while len(receiver.received) < _WARM_UP:
            self._running().check()
            receiver.check()
            if now_ms() - began_ms > _READY_S * 1000:
                raise SessionError(
                    "the job delivers nothing",
                    field="waited",
                    value=f"{_READY_S} s",
                    hint=f"see {FOLDER / LOG}",
                )
            tick.wait(0.1)
        self._print_line(
            f"  ready after {(now_ms() - began_ms) / 1000:.0f} s: {_WARM_UP} first commands have been delivered"
        )

    # --- the traffic ----------------------------------------------------------------------------------

    def _traffic(self, bootstrap: str, sender: Sender, receiver: Receiver) -> None:
        count, span_ms = self._chosen.commands, self._chosen.seconds * 1000
        self._print_line(f"3 traffic: {count:,} commands over {span_ms // 1000} s, due 1 to 30 s later")

        with Progress("traffic", sys.stderr, elapsed_ms, unit="commands") as self._bar:
            self._send_and_wait(bootstrap, sender, receiver)

    def _send_and_wait(self, bootstrap: str, sender: Sender, receiver: Receiver) -> None:
        count, span_ms = self._chosen.commands, self._chosen.seconds * 1000

        def meanwhile(since_ms: int) -> None:
            receiver.check()
            if self._chosen.kill and self._killed_ms is None and since_ms >= span_ms // 2:
                self._kill_and_restart(bootstrap)
            self._running().check()
            self._progress(since_ms, sender, receiver)

        sender.say_all(plan(count, span_ms), meanwhile=meanwhile)
        self._wait_for_the_rest(sender, receiver)

    def _kill_and_restart(self, bootstrap: str) -> None:
        self._killed_ms = now_ms()
        self._running().kill()
        self._print_line(
            "  kill -9 of the job; the same command line again; it takes over the lease and continues the checkpoint"
        )
        self._start(bootstrap)

    def _progress(self, since_ms: int, sender: Sender, receiver: Receiver) -> None:
        self._bar.show(len(sender.sent), self._chosen.commands + _WARM_UP)
        if since_ms >= self._next_word_ms:
            self._next_word_ms = since_ms + _TOLD_EVERY_MS
            self._bar.around(self._print_line)(
                f"  {since_ms // 1000:>3} s: {len(sender.sent):>7,} sent, {len(receiver.received):>7,} received"
            )

    def _wait_for_the_rest(self, sender: Sender, receiver: Receiver) -> None:
        """Until everything expected is in and nothing more has come for a while, or patience ends."""
        last_due_ms = max(each.due_ms for each in sender.sent)
        first_ms = sender.sent[_WARM_UP].said_ms
        expected = take_account(sender.sent, [], shards=SHARDS).expected
        tick = threading.Event()
        while now_ms() < last_due_ms + _PATIENCE_MS:
            self._running().check()
            receiver.check()
            self._progress(now_ms() - first_ms, sender, receiver)
            tick.wait(0.2)
            received = len(receiver.received)
            last_ms = receiver.received[-1].received_ms if received else 0
            quiet = now_ms() > max(last_due_ms, last_ms) + _QUIET_MS
            if quiet and received >= expected:
                if take_account(sender.sent, list(receiver.received), shards=SHARDS).missing == 0:
                    break
                tick.wait(1)

    # --- the account ----------------------------------------------------------------------------------

    def _tell(self, account: Account, *, measured_from_ms: int) -> None:
        self._print_line(render(account))
        # The first commands have waited for the job to come up.
        account.lateness = [(due, ms) for due, ms in account.lateness if due >= measured_from_ms]
        lateness_ms = [ms for _, ms in account.lateness]
        self._print_line(f"{lateness_line(lateness_ms)}   (consumer's receipt minus due time)")
        if self._killed_ms is not None:
            self._tell_around(self._killed_ms, account)
        self._print_line(histogram(lateness_ms))
        if lateness_ms:
            self._print_line(f"picture: {draw(lateness_ms, self._folder / PICTURE).relative_to(self._root)}")

    def _tell_around(self, killed_ms: int, account: Account) -> None:
        back_ms = min(
            (due + ms for due, ms in account.lateness if due + ms > killed_ms + 1_000), default=killed_ms
        )
        meanwhile = [ms for due, ms in account.lateness if killed_ms <= due < back_ms]
        others = [ms for due, ms in account.lateness if not killed_ms <= due < back_ms]
        self._print_line(
            f"  down for {(back_ms - killed_ms) / 1000:.0f} s; due meanwhile: {len(meanwhile):,}, {lateness_line(meanwhile)}"
        )
        self._print_line(f"  the other {len(others):,}: {lateness_line(others)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parents[2], print_line=partial(print, flush=True)))
