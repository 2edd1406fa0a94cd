"""Our scheduler, Kafka to Kafka: the ordinary way and punctual delivery, as in :mod:`tests.bench.kafka_query`."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from tests.bench.peers.kafka_ends import COMMANDS, RELEASED
from tests.bench.peers.peer import VALUE, Peer, Program, Promise
from wheel_udf import __version__
from wheel_udf.testing.broker import LocalKafka
from wheel_udf.testing.topics import create_topics

ROOT = Path(__file__).parents[3]
_PARTITIONS = 2
_LONGEST_STOP_S = 60
_RECEIVED = re.compile(r"^\d+ in (\d+) fired", re.MULTILINE)


class Ours(Peer):
    """A broker and one query; the query is what holds the entries, and what is killed."""

    name = "wheel"
    title = "wheel_udf"
    promise: ClassVar[Promise] = Promise(
        delivery="at least once to Kafka, each with an id of its firing; exactly once to Delta tables",
        order="none",
        granularity="ms; released by the next batch",
        durability="the command is in Kafka (no fsync by default), then in the checkpoint",
    )
    query: ClassVar[str] = "wheel"

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._folder = home
        self._kafka: LocalKafka | None = None
        self._query: Program | None = None

    def install(self) -> str:
        """Everything is there already."""
        import pyspark

        return f"wheel_udf {__version__}, Spark {pyspark.__version__}"

    def start(self, folder: Path) -> None:
        """Starts the broker and the query."""
        self._folder = folder
        # With a property of its own it is no external broker, whatever the environment says.
        self._kafka = LocalKafka(folder / "kafka", {"log.retention.hours": "24"}).start()
        create_topics(self._kafka.bootstrap, [COMMANDS, RELEASED], partitions=_PARTITIONS)
        self.restart()

    def restart(self) -> None:
        """Starts the query with the same checkpoint."""
        arguments = ["--bootstrap", self._bootstrap, "--commands", COMMANDS]
        place = ["--folder", str(self._folder / "query")]
        command = [sys.executable, "-m", "tests.bench.kafka_query", self.query, *arguments, *place]
        self._query = Program(command, self._log, folder=ROOT, stdin=subprocess.PIPE)

    @property
    def _bootstrap(self) -> str:
        assert self._kafka is not None, "started"
        return self._kafka.bootstrap

    @property
    def _log(self) -> Path:
        return self._folder / "query.log"

    def stop(self) -> None:
        """Stops both."""
        if self._query is not None:
            with suppress(subprocess.TimeoutExpired):
                # Its input is closed, and it ends.
                self._query.process.communicate(timeout=_LONGEST_STOP_S)
            self._query.kill()
        if self._kafka is not None:
            self._kafka.stop()

    def kill(self) -> None:
        """Kills the query: the driver, its JVM and the JVM's workers."""
        assert self._query is not None, "started"
        self._query.kill()

    def processes(self) -> list[int]:
        """The broker and the query."""
        assert self._kafka is not None, "started"
        assert self._kafka.pid is not None, "started"
        assert self._query is not None, "started"
        return [self._kafka.pid, self._query.pid]

    def feed(self) -> list[str]:
        """A producer of commands."""
        return [*self._end(), "feed", self._bootstrap, VALUE]

    def drain(self) -> list[str]:
        """A consumer of the topic that the commands name."""
        return [*self._end(), "drain", self._bootstrap]

    def _end(self) -> list[str]:
        return [sys.executable, "-m", "tests.bench.peers.kafka_ends"]

    def taken_in(self) -> int | None:
        """A command that is in Kafka is not yet in the wheel: that is what the batches say."""
        return received(self._log.read_text(errors="replace"))


class OursPunctual(Ours):
    """The same with punctual delivery."""

    name = "punctual"
    title = "wheel_udf, punctual"
    promise: ClassVar[Promise] = Promise(
        delivery=Ours.promise.delivery,
        order="none",
        granularity="ms",
        durability=Ours.promise.durability,
    )
    query: ClassVar[str] = "punctual"


def received(log: str) -> int:
    """The commands that the batches in a log have taken in."""
    return sum(map(int, _RECEIVED.findall(log)))
