"""The hint board: shards post when their next entry is due, and the clock source reads it.

The clock source runs in a separate process beside the driver. It may skip a trigger only if no shard has anything
due, so it must know the earliest non-empty bucket of *every* shard. (In Kafka's timer, a delay queue of buckets
does this.) The last answer of each shard is a small file, replaced atomically::

    <folder>/<query id>/<shard>.json     last answer of a shard
    <folder>/runs/<run>                  query that a run of the clock source belongs to
    <folder>/stores/<token>.json         progress of the keeper of a slot store (see Published)

A missing answer, or one of another query, counts as "due now": losing the board costs a tick and nothing
else.

Imports the standard library only: it runs in the planning process of the clock source and on executors.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


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
    """

    batch_id: int
    next_due_ms: int | None
    clock_ms: int
    watermark_ms: int | None
    held_input: bool


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


class HintBoard:
    """A folder of small files in which shards post their answers for the clock source.

    A run of the source has a random ``run`` id, which its rows carry; it does not know the query's id, which
    the shards know. The first post after a clock row links the two, so no query reads another query's
    answers.

    Args:
        folder: The folder, made on the first post; by default one per user below the system's folder for
            temporary files.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = Path(folder or Path(tempfile.gettempdir(), f"wheel-clock-{os.getuid()}"))

    def post(self, query_id: str, run: str | None, answers: Mapping[int, Answer]) -> None:
        """Writes answers by shard, and the link from a run of the source to its query."""
        for shard, answer in answers.items():
            self._replace(self.folder / query_id / f"{shard}.json", asdict(answer))
        if run and not (self.folder / "runs" / run).exists():
            self._replace(self.folder / "runs" / run, {"query_id": query_id})

    def answers(self, run: str) -> dict[int, Answer]:
        """The answers of the query that a run of the source belongs to; empty while that query is not known."""
        try:
            query_id = json.loads((self.folder / "runs" / run).read_text())["query_id"]
            files = list((self.folder / query_id).glob("*.json"))
            return {int(file.stem): Answer(**json.loads(file.read_text())) for file in files}
        except FileNotFoundError:
            return {}

    def publish(self, token: str, published: Published) -> None:
        """Writes the progress of a store's keeper for the clock of its wheel query."""
        self._replace(self.folder / "stores" / f"{token}.json", asdict(published))

    def published(self, token: str) -> Published | None:
        """What was published last; None before the first time."""
        try:
            return Published(**json.loads((self.folder / "stores" / f"{token}.json").read_text()))
        except FileNotFoundError:
            return None

    def withdraw(self, token: str) -> None:
        """Removes what was published."""
        (self.folder / "stores" / f"{token}.json").unlink(missing_ok=True)

    def forget(self, run: str) -> None:
        """Removes the files of a run that has ended."""
        link = self.folder / "runs" / run
        if link.exists():
            shutil.rmtree(self.folder / json.loads(link.read_text())["query_id"], ignore_errors=True)
            link.unlink(missing_ok=True)

    @staticmethod
    def _replace(path: Path, content: Mapping[str, Any]) -> None:
        path.parents[1].mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(exist_ok=True)
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        draft.write_text(json.dumps(content))
        draft.replace(path)
