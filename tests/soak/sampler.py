"""What a soak measures: once a second from ``/proc`` and the folders, and of each batch what Spark says of it; as JSON
lines.

Nothing is kept in memory: a list of samples would be a leak of the process that is measured.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from tests.soak.second_by_second import SecondBySecond
from wheel_udf.spark.jvm import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIB = 2**20
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Book:
    """The JSON lines of a soak: ``{"mode": ..., "s": seconds of feeding, FIGURE: value, ...}``."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("w", encoding="utf-8")
        self._lock, self._mode, self._began_s = threading.Lock(), "", 0.0

    def begin(self, mode: str) -> None:
        """The mode is fed from now on."""
        with self._lock:
            self._mode, self._began_s = mode, time.monotonic()

    def end(self) -> None:
        """What comes now is of no mode."""
        with self._lock:
            self._mode = ""

    def add(self, figures: Mapping[str, float]) -> None:
        """Writes a line, if a mode is fed."""
        with self._lock:
            if self._mode:
                line = {"mode": self._mode, "s": round(time.monotonic() - self._began_s, 2), **figures}
                self._file.write(json.dumps(line) + "\n")
                self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class Listener(StreamingQueryListener):
    """Writes what Spark says of each batch into the book."""

    def __init__(self, book: Book) -> None:
        self._book = book

    def onQueryStarted(self, event: Any) -> None:
        """Nothing."""

    def onQueryProgress(self, event: Any) -> None:
        """A batch is over."""
        progress = event.progress
        batch_ms = progress.durationMs.get("triggerExecution", 0)
        if "addBatch" not in progress.durationMs:
            return  # a look for input that has found none
        began_ms = int(datetime.fromisoformat(progress.timestamp).timestamp() * 1_000 + 0.5)
        planned = {
            "began_ms": began_ms,
            "planned_ms": began_ms + progress.durationMs.get("latestOffset", batch_ms),
        }
        if progress.name.endswith("-intake"):
            self._book.add({"intake batch": batch_ms, **planned})
            return
        states = progress.stateOperators
        figures: dict[str, float] = {"batch": batch_ms, **planned}
        if states:
            figures["state rows"] = sum(each.numRowsTotal for each in states)
            figures["state memory"] = sum(each.memoryUsedBytes for each in states) / MIB
        self._book.add(figures)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing."""

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing."""


class LiveFiles:
    """The number of live files of a Delta table, from its log alone: what is added and not removed."""

    def __init__(self, table: Path) -> None:
        self._log, self._next, self._live = table / "_delta_log", 0, 0

    def count(self) -> int:
        """Reads the commits since the last time."""
        while (commit := self._log / f"{self._next:020}.json").exists():
            for line in commit.read_text(encoding="utf-8").splitlines():
                action = json.loads(line)
                self._live += ("add" in action) - ("remove" in action)
            self._next += 1
        return self._live


def files_below(*folders: Path) -> Iterator[os.DirEntry[str]]:
    """All files below some folders; what disappears meanwhile is left out."""
    for folder in folders:
        try:
            with os.scandir(folder) as found:
                entries = list(found)
        except FileNotFoundError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from files_below(Path(entry.path))
            else:
                yield entry


def _bytes_of(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0


def children() -> dict[int, list[tuple[int, str]]]:
    """All processes: for each, the ids and names of its children."""
    found: dict[int, list[tuple[int, str]]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            name, rest = (entry / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue
        found.setdefault(int(rest.split()[1]), []).append((int(entry.name), name))
    return found


def below(pid: int, of: Mapping[int, list[tuple[int, str]]]) -> list[tuple[int, str]]:
    """Ids and names of the processes below one, at any depth."""
    mine = of.get(pid, [])
    return mine + [each for child, _ in mine for each in below(child, of)]


def resident(pid: int) -> float:
    """Resident memory of a process, in MiB; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / MIB
    except OSError:
        return 0.0


def handles(pid: int) -> int:
    """Number of a process's open handles; 0 if it has ended."""
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0


class Sampler(SecondBySecond):
    """Takes the samples of a mode on a thread.

    Args:
        spark: The session, whose JVM is measured.
        book: Where the samples go.
        folder: Of the mode: ``checkpoint``, and ``store`` in the tiered mode.
        scratch: Spark's local folder.
        pending: The number pending, by the last report.
        collect_every_s: How often the JVM is asked for a full collection.
    """

    def __init__(
        self, spark: SparkSession, book: Book, folder: Path, scratch: Path, collect_every_s: float
    ) -> None:
        super().__init__("soak-sampler")
        self._spark, self._book, self._folder, self._scratch = spark, book, folder, scratch
        self._collect_every_s, self._collected_s = collect_every_s, 0.0
        self._store = LiveFiles(folder / "store") if (folder / "store").exists() else None
        self.pending: int | None = None

    def do(self, _second: int) -> None:
        """Takes a sample."""
        self._book.add(self._folders() | self._processes() | self._heap())

    def after(self, at_s: float) -> float:
        """A second later; at once, if that has passed. What was missed is left out."""
        return max(at_s + 1, time.monotonic())

    def _folders(self) -> dict[str, float]:
        checkpoint = list(files_below(self._folder / "checkpoint"))
        state = sum(_bytes_of(entry) for entry in checkpoint if "/state/" in entry.path)
        figures: dict[str, float] = {
            "checkpoint files": len(checkpoint),
            "state files": state / MIB,
            "scratch files": sum(1 for _ in files_below(self._scratch)),
        }
        if self.pending is not None:
            figures["pending"] = self.pending
        if self._store is not None:
            figures["store files"] = self._store.count()
        return figures

    def _processes(self) -> dict[str, float]:
        of, me = children(), os.getpid()
        (jvm,) = [pid for pid, name in below(me, of) if name == "java"]
        workers = [pid for pid, _ in below(jvm, of)]
        return {
            "driver memory": resident(me),
            "JVM memory": resident(jvm),
            "worker memory": sum(resident(pid) for pid in workers),
            "driver handles": handles(me),
            "JVM handles": handles(jvm),
            "worker handles": sum(handles(pid) for pid in workers),
            "JVM threads": sum(1 for _ in Path(f"/proc/{jvm}/task").iterdir()),
        }

    def _heap(self) -> dict[str, float]:
        """What a full collection leaves on the JVM's heap, now and then."""
        if time.monotonic() - self._collected_s < self._collect_every_s:
            return {}
        java_class(self._spark, "java.lang.System").gc()
        self._collected_s = time.monotonic()
        runtime = java_class(self._spark, "java.lang.Runtime").getRuntime()
        return {"JVM heap": (runtime.totalMemory() - runtime.freeMemory()) / MIB}
