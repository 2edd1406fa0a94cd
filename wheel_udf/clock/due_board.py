"""The hint board: shards post when their next entry is due, and the clock source reads it.

The clock source runs in a separate process beside the driver. It may skip a trigger only if no shard has anything
due, so it must know the earliest non-empty bucket of *every* shard. (In Kafka's timer, a delay queue of buckets
does this.) The last answer of each shard is a small file, replaced atomically::

    <folder>/<query id>/<shard>.json     last answer of a shard
    <folder>/runs/<run>                  query that a run of the clock source belongs to
    <folder>/frames/<frame>              query that is about to run a frame of an operator
    <folder>/stores/<token>.json         progress of the keeper of a slot store (see Published)
    <folder>/acts/<query id>/<n>.json    rows of act n on the query's pending work, by shard (see post_act)
    <folder>/senders/<frame>.json        standing of the sender of the query that runs a frame (see Sending)

A missing or damaged answer, or one of another query, counts as "due now": losing the board costs a tick and nothing
else. Acts are copies of files of the checkpoint, which are posted again at each start. So the folder need not outlive the driver: each driver has one of its own, with a random name, that only
its user can enter. A folder that another user owns or can write to is refused: with forged answers, that user
could delay deliveries.

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
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from wheel_udf.common import typed_record

_ID: Final = re.compile(r"[0-9A-Za-z-]{1,100}")
_SHARD: Final = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class Answer:
    """What a shard reported at the end of its last batch.

    Attributes:
        batch_id: That batch.
        next_due_ms: Due time of the earliest pending entry; ``None`` if nothing is pending.
        clock_ms: The wheel's clock in that batch.
        watermark_ms: Lower bound of the next batch's watermark, as this shard knows it; ``None`` unless the
            clock is the event clock.
        held_input: Whether that batch contained input for this shard.
        beyond_ms: Due time of the earliest entry after the horizon up to which that batch has handed entries to a sender; ``None``: none, or no sender.
        complete_ms: If the sender has confirmation up to this due time, a batch that it got can be confirmed; ``None``: it has got none.
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
class Published:
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
    """What the sender of a query posts for the clock.

    Attributes:
        news: As :meth:`wheel_udf.wheel.sender_news.SenderNews.to_text`.
        failed: 1 if it cannot send, so that the query has to fail; else 0.
    """

    news: str
    failed: int = 0


@dataclass(frozen=True)
class _Link:
    """The query that a run of the clock source, or a frame, belongs to."""

    query_id: str


_Record = TypeVar("_Record", Answer, Published, Sending, _Link)


class HintBoard:
    """A folder of small files in which shards post their answers for the clock source.

    A run of the source has a random ``run`` id, which its rows carry; it does not know the query's id, which
    the shards know. The first post after a clock row links the two, so no query reads another query's
    answers.

    Args:
        folder: The folder, made on the first post; by default one per process below the system's folder for
            temporary files, removed when the process ends.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = Path(folder or _own_folder())

    def post(self, query_id: str, run: str | None, answers: Mapping[int, Answer]) -> None:
        """Writes answers by shard, and the link from a run of the source to its query."""
        for shard, answer in answers.items():
            self._replace(self.folder / query_id / f"{shard}.json", asdict(answer))
        if run and not (self.folder / "runs" / run).exists():
            self._replace(self.folder / "runs" / run, {"query_id": query_id})

    def answers(self, run: str) -> dict[int, Answer]:
        """The answers of the query that a run of the source belongs to; empty while that query is not known."""
        query_id = self._linked("runs", run)
        files = list((self.folder / query_id).glob("*.json")) if query_id else []
        found = {int(file.stem): _read(file, Answer) for file in files if _SHARD.fullmatch(file.stem)}
        return {shard: answer for shard, answer in found.items() if answer is not None}

    def publish(self, token: str, published: Published) -> None:
        """Writes the progress of a store's keeper for the clock of its wheel query."""
        self._replace(self.folder / "stores" / f"{token}.json", asdict(published))

    def published(self, token: str) -> Published | None:
        """What was published last; None before the first time, and if it is damaged."""
        return _read(self.folder / "stores" / f"{token}.json", Published)

    def withdraw(self, token: str) -> None:
        """Removes what was published."""
        (self.folder / "stores" / f"{token}.json").unlink(missing_ok=True)

    def claim_sender(self, frame: str) -> bool:
        """Claims the right to be the sender of a frame; returns False if the frame has one. Two would confirm each other's entries."""
        place = self._sender(frame).with_suffix(".claim")
        self._make(place.parent)
        try:
            place.touch(mode=0o600, exist_ok=False)
        except FileExistsError:
            return False
        return True

    def release_sender(self, frame: str) -> None:
        """Gives the right back."""
        for suffix in (".json", ".claim"):
            self._sender(frame).with_suffix(suffix).unlink(missing_ok=True)

    def post_sending(self, frame: str, sending: Sending) -> None:
        """Writes the standing of the sender of a frame."""
        self._replace(self._sender(frame), asdict(sending))

    def sending(self, frame: str) -> Sending | None:
        """What the sender of a frame posted last; None without one."""
        return _read(self._sender(frame), Sending) if _ID.fullmatch(frame) else None

    def _sender(self, frame: str) -> Path:
        assert _ID.fullmatch(frame), "the name of a frame"
        return self.folder / "senders" / f"{frame}.json"

    def post_act(self, query_id: str, number: int, rows: Mapping[str, str]) -> None:
        """Posts the rows of an act, as text for each shard that it concerns; a second post of it does nothing."""
        place = self._act(query_id, number)
        if not place.exists():
            place.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._replace(place, rows)

    def expect(self, frame: str, query_id: str) -> None:
        """Links a frame of an operator to the query that is about to run it, before the first tick of that query."""
        self._replace(self.folder / "frames" / frame, {"query_id": query_id})

    def query_of(self, run: str, frame: str) -> str | None:
        """The query of a run of the source; before its first answer, the query that its frame is linked to."""
        return self._linked("runs", run) or (self._linked("frames", frame) if frame else None)

    def acts(self, query_id: str, first: int) -> int:
        """How many acts on a query were posted, if those before `first` were."""
        if not _ID.fullmatch(query_id):
            return first
        while self._act(query_id, first).exists():
            first += 1
        return first

    def act(self, query_id: str, number: int) -> dict[str, str]:
        """The rows of an act, as text by shard.

        Raises:
            FileNotFoundError: It was not posted.
        """
        found: dict[str, str] = json.loads(self._act(query_id, number).read_bytes())
        return found

    def _act(self, query_id: str, number: int) -> Path:
        assert _ID.fullmatch(query_id), "an id of Spark"
        return self.folder / "acts" / query_id / f"{number}.json"

    def forget(self, run: str) -> None:
        """Removes the files of a run that has ended."""
        query_id = self._linked("runs", run)
        if query_id:
            shutil.rmtree(self.folder / query_id, ignore_errors=True)
        (self.folder / "runs" / run).unlink(missing_ok=True)

    def _linked(self, kind: str, name: str) -> str | None:
        """The query that a run or a frame is linked to; None if it is not known, or its name is a path out of the folder."""
        link = _read(self.folder / kind / name, _Link)
        return link.query_id if link and _ID.fullmatch(link.query_id) else None

    def _make(self, folder: Path) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_private(self.folder)
        folder.mkdir(mode=0o700, exist_ok=True)

    def _replace(self, path: Path, content: Mapping[str, Any]) -> None:
        self._make(path.parent)
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        draft.write_text(json.dumps(content))
        draft.replace(path)


def _read(path: Path, kind: type[_Record]) -> _Record | None:
    """The record in a file; None if there is none, or if it is damaged."""
    try:
        return typed_record(kind, json.loads(path.read_bytes()))
    except (FileNotFoundError, ValueError, RecursionError):
        return None


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
            f"the folder of the clock's answers is not private: {folder}; rule: a folder of this user, not "
            "writable by others; hint: remove it, or point TMPDIR to a folder of this user"
        )
