"""The outside of the bench of the peers: the producer that keeps a rate and the consumer that notes when entries
arrive, the same ones for all peers. They write to and read from the two processes of a peer (see
:mod:`tests.bench.peers.peer`).
"""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.bench.kafka_traffic import Flow, due_ms_of, paced
from tests.bench.peers.figures import Chunk
from tests.bench.peers.peer import Program

_CHUNK_BYTES = 1 << 16


class Feed:
    """A running ``feed``."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self._program = Program(command, log, stdin=subprocess.PIPE, environment=environment)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._program.pid

    def send(self, flow: Flow) -> dict[str, int]:
        """Sends a flow, at its rate or as fast as the peer takes it, and returns the due times by id."""
        pipe = self._program.process.stdin
        assert pipe is not None
        chance, due = random.Random(flow.name), {}
        for number in paced(flow):
            due_ms = due_ms_of(flow, time.time_ns() // 1_000_000, chance)
            identity = f"{flow.name}-{number}"
            due[identity] = due_ms
            pipe.write(f"{identity} {due_ms}\n".encode())
        return due

    def close(self, timeout_s: float) -> None:
        """Ends its input and waits until the peer has confirmed all.

        Raises:
            RuntimeError: It was not confirmed in this time, or ``feed`` failed.
        """
        pipe = self._program.process.stdin
        assert pipe is not None
        pipe.close()
        try:
            code = self._program.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        self._program.kill()
        if code != 0:
            raise RuntimeError(
                f"feed was not done in {timeout_s:g} s" if code is None else f"feed ended with {code}"
            )

    def kill(self) -> None:
        """Kills it."""
        self._program.kill()


class Drain:
    """A running ``drain``, and what it has said so far, with the instants.

    Attributes:
        chunks: What was read, in order.
        lines: How many lines that makes.
    """

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self._program = Program(command, log, stdout=subprocess.PIPE, environment=environment)
        self.chunks: list[Chunk] = []
        self.lines = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._program.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._program.process.poll() is None

    def _read(self) -> None:
        pipe = self._program.process.stdout
        assert pipe is not None
        while data := os.read(pipe.fileno(), _CHUNK_BYTES):
            self.chunks.append(Chunk(time.time_ns() / 1_000_000, data))
            self.lines += data.count(b"\n")

    def kill(self) -> None:
        """Kills it; what it has written before is kept."""
        self._program.kill()
        self._reader.join(10)

    def stop(self) -> None:
        """Stops it."""
        self._program.stop()
        self._reader.join(10)
