"""The shard board: values that the driver and the shards of a query leave for each other, by topic and key.

The clock source runs in a process of its own beside the driver. It may skip a trigger only if no shard has anything
due, so it must know the earliest non-empty bucket of *every* shard. (In Kafka's timer, a delay queue of buckets does
this.) A value is a small file that is replaced as a whole; each topic is written by one side::

    topic     key            value                                            written by
    reports   QUERY/SHARD    ShardReport: result of a shard's last batch      the shards; deliver() if they are remote
    runs      RUN            the query that a run of the clock source is in   likewise
    frames    FRAME          the query that is about to run a frame           deliver()
    bounded   FRAME          Mark: its input is bounded (before Spark 4.2)    deliver()
    stores    TOKEN          StoreProgress: what a keeper has handed over     the keeper of a slot store
    acts      QUERY/NUMBER   ActRows: the rows of an act, by shard            the courier of acts
    senders   FRAME          Sending: the state of a sender                   the sender
    returned  QUERY/NUMBER   ActRows: entries that come back, by shard        the delivery
    breakers  QUERY          Resting: the destinations that rest              the delivery

A missing or damaged value counts as unknown: losing the board costs a tick and nothing else. Acts are copies of files
of the checkpoint, which are posted again at each start. So the folder need not outlive the driver: each driver has its
own folder, with a random name, accessible to its user only. A folder that another user owns or can write to is
refused: forged reports could delay deliveries.

Imports the standard library only: it runs in the planning process of the clock source and on executors.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import stat
import tempfile
import uuid
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from wheel_udf.common.records import typed_record

Record = TypeVar("Record")

_KEY: Final = re.compile(r"[0-9A-Za-z-]{1,100}(/[0-9]{1,9})?")
"""No path leads out of the folder."""


@dataclass(frozen=True)
class Topic(Generic[Record]):
    """A subject of the board.

    Attributes:
        name: Its folder.
        kind: The dataclass of its values.
    """

    name: str
    kind: type[Record]


@dataclass(frozen=True)
class ShardReport:
    """What a shard reported at the end of its last batch.

    Attributes:
        batch_id: That batch.
        next_due_ms: Due time of the earliest pending entry; ``None`` if nothing is pending.
        clock_ms: The wheel's clock in that batch.
        watermark_ms: Lower bound of the next batch's watermark, as this shard knows it; ``None`` unless the clock is
            the event clock.
        held_input: Whether that batch contained input for this shard.
        beyond_ms: Due time of the earliest entry after the horizon up to which that batch has handed entries to a
            sender; ``None``: none, or no sender.
        complete_ms: Once the sender has confirmed all up to this due time, a batch handed to it is complete;
            ``None``: no such batch.
        released: Entries that this batch has released, or handed to a sender.
    """

    batch_id: int
    next_due_ms: int | None
    clock_ms: int
    watermark_ms: int | None
    held_input: bool
    beyond_ms: int | None = None
    complete_ms: int | None = None
    released: int = 0


@dataclass(frozen=True)
class StoreProgress:
    """What the keeper of a slot store publishes for the clock of the wheel query.

    Attributes:
        cursor_ms: All entries due before it have been handed to the near partitions.
        clock_ms: The time; ``None``: the wall clock's.
        version: Version of the store that this covers.
        until_ms: Instant to which the clock must be advanced even if nothing is due then; ``None``: none.
    """

    cursor_ms: int
    clock_ms: int | None
    version: int
    until_ms: int | None = None


@dataclass(frozen=True)
class Sending:
    """The state of the sender of a query.

    Attributes:
        news: As :meth:`wheel_udf.policies.sender_news.SenderNews.to_json`.
        failed: 1 if it cannot send, so that the query has to fail; else 0.
    """

    news: dict[str, Any]
    failed: int = 0


@dataclass(frozen=True)
class ActRows:
    """The rows of an act, as text for each shard that it concerns."""

    by_shard: dict[str, str]


@dataclass(frozen=True)
class Resting:
    """The destinations that rest because they fail, each with the instant from which on it may be tried."""

    until_ms: dict[str, int]


@dataclass(frozen=True)
class Link:
    """The query that a run of the clock source, or a frame, belongs to."""

    query_id: str


@dataclass(frozen=True)
class Mark:
    """Says all by being there."""


REPORTS: Final = Topic("reports", ShardReport)
RUNS: Final = Topic("runs", Link)
FRAMES: Final = Topic("frames", Link)
BOUNDED: Final = Topic("bounded", Mark)
STORES: Final = Topic("stores", StoreProgress)
ACTS: Final = Topic("acts", ActRows)
RETURNED: Final = Topic("returned", ActRows)
BREAKERS: Final = Topic("breakers", Resting)
SENDERS: Final = Topic("senders", Sending)


class ShardBoard:
    """A folder of small files, a folder for each topic in it.

    Args:
        folder: The folder, made by the first :meth:`put`; by default one per process below the system's folder for
            temporary files, removed when the process ends.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = Path(folder or _own_folder())

    def put(self, topic: Topic[Record], key: str, value: Record) -> None:
        """Posts a value, in place of an earlier one."""
        place = self._made(topic, key)
        draft = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
        draft.write_text(json.dumps(asdict(value)))  # type: ignore[call-overload]  # kinds are dataclasses
        draft.replace(place)

    def get(self, topic: Topic[Record], key: str) -> Record | None:
        """The value; None if there is none, or if it is damaged."""
        try:
            return typed_record(topic.kind, json.loads(self._place(topic, key).read_bytes()))
        except (OSError, ValueError, RecursionError):
            return None

    def has(self, topic: Topic[Any], key: str) -> bool:
        """Whether a value was posted."""
        return _is_key(key) and self._place(topic, key).exists()

    def keys(self, topic: Topic[Any], under: str) -> list[str]:
        """The keys ``UNDER/NUMBER`` of a topic."""
        folder = self.folder / topic.name / under
        found = folder.glob("*.json") if _is_key(under) else ()
        return [key for file in found if _is_key(key := f"{under}/{file.stem}")]

    def remove(self, topic: Topic[Any], key: str) -> None:
        """Removes a value, its claim, and all values below the key."""
        if _is_key(key):
            place = self._place(topic, key)
            place.unlink(missing_ok=True)
            place.with_suffix(".claim").unlink(missing_ok=True)
            shutil.rmtree(place.with_suffix(""), ignore_errors=True)

    def claim(self, topic: Topic[Any], key: str) -> bool:
        """Claims the right to post a value; False if another process has it. :meth:`remove` releases the claim."""
        try:
            self._made(topic, key).with_suffix(".claim").touch(mode=0o600, exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _place(self, topic: Topic[Any], key: str) -> Path:
        if not _is_key(key):
            raise ValueError(key)
        return self.folder / topic.name / f"{key}.json"

    def _made(self, topic: Topic[Any], key: str) -> Path:
        """The file of a value, in a folder that is there."""
        place = self._place(topic, key)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_private(self.folder)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return place


def _is_key(key: str) -> bool:
    return _KEY.fullmatch(key) is not None


@cache
def _own_folder() -> str:
    """The folder of this process."""
    folder, owner = tempfile.mkdtemp(prefix="wheel-clock-"), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # a forked child has the same list of things to do at its exit
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def _require_private(folder: Path) -> None:
    """Raises PermissionError if another user could have written in a folder."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(
            f"the folder of the shards' reports is not private: {folder}; rule: a folder of this user, not "
            "writable by others; hint: remove it, or point TMPDIR to a folder of this user"
        )
