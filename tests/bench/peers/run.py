"""``make bench-peers``: our scheduler beside its peers, with the same producer, the same delays, and the same consumer.

::

    make bench-peers                                        everything, about an hour and a half on 2 cores
    make bench-peers ARGS='--quick'                         tiny sizes, to see that it works; its figures mean nothing
    make bench-peers ARGS='--only wheel nats --cases kill'  some peers, some cases
    make bench-peers ARGS='--rate 500 --pending 200000'     another load

Each peer is installed from its packages into ``build/peers`` when it is first needed; one that cannot be had is left
out, with a line that says why. A server listens on the loopback address, on a free port. One peer works at a time. Each
case begins with a peer without data, and with entries that warm it and are not measured.

============  ==================================================================================================
peer          what works
============  ==================================================================================================
wheel         our scheduler, Kafka to Kafka: a broker and a query
punctual      the same with punctual delivery
bullmq        Redis with an append-only file, and a worker of BullMQ
db-scheduler  PostgreSQL with fsync, and a scheduler that polls ten times a second
rocketmq      a name server and a broker of RocketMQ 5, timers of 100 ms
nats          a NATS server with JetStream, one schedule a message
============  ==================================================================================================

=======  =================================================  ========================================================
case     load                                               what is told
=======  =================================================  ========================================================
steady   2,000 a second for a minute, delays of 5 to 30 s   lateness p50, p99; early, missing, twice; CPU seconds
burst    100,000 due at one instant                         seconds until the last is out
kill     as steady; half way ``kill -9`` of what holds the  lost, twice; seconds until the next delivery; the latest
         entries and of the workers, 2 s later a start
pending  a million due in a day                             seconds to take them in; bytes on disk and in memory
=======  =================================================  ========================================================

CPU seconds are those of the servers and the workers; those of the two ends stand beside them. Nothing has a target: the
exit code is 0 when there are figures. They go to ``build/bench-peers.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from tests.bench import report
from tests.bench.kafka_traffic import Flow
from tests.bench.measure import CpuMeter, family_of, memory_bytes
from tests.bench.peers import figures
from tests.bench.peers.bullmq_redis import BullMq
from tests.bench.peers.db_scheduler_postgres import DbScheduler
from tests.bench.peers.ends import Drain, Feed
from tests.bench.peers.figures import Arrival
from tests.bench.peers.nats_schedules import Nats
from tests.bench.peers.ours import Ours, OursPunctual
from tests.bench.peers.peer import Peer, UnavailableError
from tests.bench.peers.rocketmq_timers import RocketMq

ROOT = Path(__file__).parents[3]
PEERS: dict[str, type[Peer]] = {
    each.name: each for each in (Ours, OursPunctual, BullMq, DbScheduler, RocketMq, Nats)
}
DAY_MS = 86_400_000
_LOOK_S = 0.2
_METER_S = 2.0
_START_S = 300
"""How long the first entries of a peer may take."""
_FEED_S = 3_600


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large the loads are.

    Attributes:
        rate: Entries a second of the steady load.
        steady_s: How long it lasts.
        delays_ms: Shortest and longest delay.
        warm_s: How long as much comes before, with delays of a second or two.
        burst: Entries due at one instant.
        burst_rate: Entries a second that a peer takes in before that instant, at the least.
        down_s: How long a killed peer stays down.
        pending: Entries that are due in a day.
        settle_s: Time between the last of them and the look at disk and memory.
        patience_s: Nothing has come for so long: nothing comes any more. BullMQ gives the jobs of a dead worker to
            another one after 30 s or so.
        after_s: How long repetitions are waited for.
    """

    rate: int = 2_000
    steady_s: int = 60
    delays_ms: tuple[int, int] = (5_000, 30_000)
    warm_s: int = 60
    burst: int = 100_000
    burst_rate: int = 2_000
    down_s: float = 2.0
    pending: int = 1_000_000
    settle_s: int = 20
    patience_s: int = 90
    after_s: int = 5


QUICK = Sizes(
    rate=100,
    steady_s=6,
    delays_ms=(1_000, 4_000),
    warm_s=2,
    burst=1_000,
    burst_rate=200,
    pending=2_000,
    settle_s=3,
    patience_s=75,
    after_s=2,
)


class Run:
    """One case of one peer: it is started, warmed, and has both ends."""

    def __init__(self, peer: Peer, folder: Path, sizes: Sizes) -> None:
        self.peer, self.sizes, self.folder = peer, sizes, folder
        self.sent = 0
        self._drains: list[Drain] = []
        self._feeds: list[Feed] = []

    def __enter__(self) -> Self:
        self.peer.start(self.folder)
        try:
            self.add_drain()
            self.feed = Feed(self.peer.feed(), self.folder / "feed.log", self.peer.environment)
            self._feeds.append(self.feed)
            warm = self._flow("warm", self.sizes.warm_s, (1_000, 2_000))
            self.wait_for(self.send(warm), _START_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for feed in self._feeds:
            feed.kill()
        for drain in self._drains:
            drain.stop()
        self.peer.stop()

    def _flow(self, name: str, seconds: int, delays_ms: tuple[int, int]) -> Flow:
        rate = self.sizes.rate
        return Flow(name=name, rate=rate, count=rate * seconds, delays_ms=delays_ms, destination="released")

    def steady(self) -> Flow:
        """The steady load."""
        return self._flow("steady", self.sizes.steady_s, self.sizes.delays_ms)

    def add_drain(self) -> None:
        """Starts one more ``drain``."""
        command = self.peer.drain()
        self._drains.append(Drain(command, self.folder / "drain.log", self.peer.environment))

    def kill(self) -> None:
        """Kills the peer, and its workers."""
        self.peer.kill()
        if self.peer.is_worker:
            self._drains[-1].kill()

    def restart(self) -> None:
        """Starts again what was killed."""
        self.peer.restart()
        if self.peer.is_worker:
            self.add_drain()

    def send(self, flow: Flow) -> dict[str, int]:
        """Sends a flow; its due times by id."""
        due_ms = self.feed.send(flow)
        self.sent += flow.count
        return due_ms

    def peers_processes(self) -> list[int]:
        """What is measured: servers, workers, and what they have started."""
        workers = [self._drains[-1].pid] if self.peer.is_worker else []
        return [each for root in (*self.peer.processes(), *workers) for each in family_of(root)]

    def meters(self) -> tuple[Meter, Meter]:
        """Meters of the peer and of both ends."""
        workers, ends = [self._drains[-1].pid], [self.feed.pid]
        if not self.peer.is_worker:
            workers, ends = [], ends + workers
        return Meter([*self.peer.processes(), *workers]), Meter(ends)

    def arrivals(self) -> list[Arrival]:
        """What has come so far."""
        return figures.arrivals_of([list(drain.chunks) for drain in self._drains])

    def wait_for(self, due_ms: Mapping[str, int], patience_s: float) -> list[Arrival]:
        """Waits until all of these have come, or nothing comes for so long; answers what has come."""
        began_ms = max(time.time() * 1_000, *due_ms.values())
        seen = -1
        while True:
            time.sleep(_LOOK_S)
            lines = sum(drain.lines for drain in self._drains)
            if not self._drains[-1].is_running:
                raise RuntimeError("drain has ended, see its log")
            last_ms = max([began_ms, *(drain.chunks[-1].read_ms for drain in self._drains if drain.chunks)])
            is_over = time.time() * 1_000 - last_ms > patience_s * 1_000
            if is_over or (lines != seen and lines >= len(due_ms)):
                seen, arrivals = lines, self.arrivals()
                if is_over or due_ms.keys() <= {each.identity for each in arrivals}:
                    return arrivals


class Meter:
    """CPU seconds of some processes and their descendants, looked at again and again by a thread."""

    def __init__(self, roots: Sequence[int]) -> None:
        self._meters = [CpuMeter(root) for root in roots]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._ended.wait(_METER_S):
            for meter in self._meters:
                meter.seconds()

    def seconds(self) -> float:
        """CPU seconds since the meter was made; it ends."""
        self._ended.set()
        self._thread.join()
        return sum(meter.seconds() for meter in self._meters)


def _steady(run: Run) -> dict[str, float]:
    meters = run.meters()
    due_ms = run.send(run.steady())
    run.wait_for(due_ms, run.sizes.patience_s)
    cpu_s, ends_s = (meter.seconds() * 100_000 / len(due_ms) for meter in meters)
    run.feed.close(_FEED_S)
    time.sleep(run.sizes.after_s)
    found = figures.steady_figures(due_ms, run.arrivals())
    return found | {"CPU per 100,000": cpu_s, "CPU of both ends": ends_s}


def _burst(run: Run) -> dict[str, float]:
    sizes = run.sizes
    began_s = time.time()
    due = int((began_s + sizes.burst / sizes.burst_rate) * 1_000)
    due_ms = run.send(Flow(name="burst", rate=0, count=sizes.burst, due_ms=due, destination="released"))
    run.feed.close(_FEED_S)
    fed_s = time.time() - began_s
    run.wait_for(due_ms, sizes.patience_s)
    return figures.burst_figures(due_ms, run.arrivals()) | {"confirmed within": fed_s}


def _kill(run: Run) -> dict[str, float]:
    sizes = run.sizes
    sent: list[dict[str, int]] = []
    sender = threading.Thread(target=lambda: sent.append(run.send(run.steady())), daemon=True)
    sender.start()
    time.sleep(sizes.steady_s / 2)
    killed_ms = time.time() * 1_000
    run.kill()
    time.sleep(sizes.down_s)
    again_ms = time.time() * 1_000
    run.restart()
    sender.join(_FEED_S)
    if not sent:
        raise RuntimeError("the producer was not done")
    run.feed.close(_FEED_S)
    run.wait_for(sent[0], sizes.patience_s)
    time.sleep(sizes.after_s)
    return figures.kill_figures(sent[0], run.arrivals(), killed_ms=killed_ms, again_ms=again_ms)


def _pending(run: Run) -> dict[str, float]:
    sizes = run.sizes
    time.sleep(sizes.settle_s)
    disk, memory = _disk_bytes(run), memory_bytes(run.peers_processes())
    began_s = time.monotonic()
    due = int(time.time() * 1_000) + DAY_MS
    run.send(Flow(name="far", rate=0, count=sizes.pending, due_ms=due, destination="released"))
    run.feed.close(_FEED_S)
    while (taken := run.peer.taken_in()) is not None and taken < run.sent:
        if time.monotonic() - began_s > _FEED_S:
            raise TimeoutError(f"{taken:,} of {run.sent:,} were taken in")
        time.sleep(_LOOK_S)
    taken_s = time.monotonic() - began_s
    time.sleep(sizes.settle_s)
    return {
        "entries": float(sizes.pending),
        "taken in within": taken_s,
        "disk per entry": (_disk_bytes(run) - disk) / sizes.pending,
        "memory per entry": (memory_bytes(run.peers_processes()) - memory) / sizes.pending,
    }


CASES: dict[str, Callable[[Run], dict[str, float]]] = {
    "steady": _steady,
    "burst": _burst,
    "kill": _kill,
    "pending": _pending,
}


def _disk_bytes(run: Run) -> int:
    """What the files of a peer take on the disk; files made in advance count with what is in them."""
    total = 0
    for folder, _, names in os.walk(run.folder):
        for name in names:
            with suppress(OSError):  # removed meanwhile
                total += os.lstat(Path(folder) / name).st_blocks * 512
    return total


class Bench:
    """All peers, one after the other, and what has been found."""

    def __init__(self, folder: Path, home: Path, sizes: Sizes) -> None:
        self._folder, self._home, self._sizes = folder, home, sizes
        self._began_s = time.monotonic()
        self.found: dict[str, dict[str, dict[str, float]]] = {}
        self.about: dict[str, Any] = {}
        self.skipped: dict[str, str] = {}
        self.failed: dict[str, str] = {}

    def say(self, text: str) -> None:
        """A line with the seconds since the beginning."""
        print(f"{time.monotonic() - self._began_s:7.1f} s  {text}", flush=True)

    def measure(self, name: str, cases: Sequence[str]) -> None:
        """Measures one peer."""
        peer = PEERS[name](self._home / name.replace("-", "_"))
        try:
            versions = peer.install()
        except UnavailableError as reason:
            self.skipped[name] = str(reason)
            self.say(f"{name}: skipped: {reason}")
            return
        self.about[name] = {"versions": versions, **asdict(peer.promise)}
        self.say(f"{name}: {versions}")
        found = self.found.setdefault(peer.title, {})
        for case in cases:
            folder = self._folder / f"{name}-{case}"
            folder.mkdir()
            try:
                with Run(peer, folder, self._sizes) as run:
                    found[case] = CASES[case](run)
                self.say(f"{name}, {case}: {json.dumps(_rounded(found[case]))}")
            except Exception as fault:  # noqa: BLE001  # the other cases and peers are worth having
                self.failed[f"{name}, {case}"] = f"{type(fault).__name__}: {fault}"
                self.say(f"{name}, {case}: FAILED: {type(fault).__name__}: {fault}")


def _rounded(found: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in found.items()}


def main(arguments: list[str] | None = None) -> int:
    """Runs the cases; see the module."""
    parser = argparse.ArgumentParser(prog="make bench-peers")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it work?")
    parser.add_argument("--only", nargs="+", choices=PEERS, metavar="NAME", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--cases", nargs="+", choices=CASES, metavar="NAME", help=f"of {', '.join(CASES)}")
    parser.add_argument("--pending", type=int, metavar="N", help="entries that are due in a day")
    parser.add_argument("--rate", type=int, metavar="N", help="entries a second of the steady load")
    parser.add_argument("--seconds", type=int, metavar="N", help="how long the steady load lasts")
    parser.add_argument("--warm", type=int, metavar="N", help="seconds of the load that is not measured")
    parser.add_argument("--burst", type=int, metavar="N", help="entries due at one instant")
    parser.add_argument("--home", type=Path, default=ROOT / "build" / "peers", help="what is installed")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench-peers.json", help="the JSON file")
    parser.add_argument("--keep", type=Path, help="keep data and logs of the peers in this folder")
    asked = parser.parse_args(arguments)
    sizes = QUICK if asked.quick else Sizes()
    given = {
        "rate": asked.rate,
        "steady_s": asked.seconds,
        "warm_s": asked.warm,
        "burst": asked.burst,
        "pending": asked.pending,
    }
    sizes = replace(sizes, **{name: value for name, value in given.items() if value is not None})
    folder = asked.keep or Path(tempfile.mkdtemp(prefix="wheel-bench-peers-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711)  # PostgreSQL runs as another user below it
    load = os.getloadavg()[0]
    bench = Bench(folder, asked.home, sizes)
    try:
        for name in asked.only or PEERS:
            bench.measure(name, asked.cases or list(CASES))
    finally:
        if asked.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    about = {
        "cores": os.cpu_count(),
        "load at the beginning": load,
        "load at the end": os.getloadavg()[0],
        "sizes": asdict(sizes),
    }
    report.write_json(
        asked.out,
        {"about": about, "peers": bench.about, "skipped": bench.skipped, "failed": bench.failed, "figures": bench.found},
    )  # fmt: skip
    print(f"\n{figures.table(bench.found)}\n")
    for name, told in bench.about.items():
        print(
            f"{name}: {told['versions']}; {told['delivery']}; order: {told['order']}; due times: {told['granularity']}; {told['durability']}"
        )
    for name, reason in bench.skipped.items():
        print(f"{name}: skipped: {reason}")
    for name, reason in bench.failed.items():
        print(f"{name}: FAILED: {reason}")
    print(
        f"\nload of the machine {load:.1f} to {about['load at the end']:.1f} on {about['cores']} cores\nall figures: {asked.out}"
    )
    return 0 if any(bench.found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
