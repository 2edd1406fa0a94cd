"""The hint board: where shards post when they next have something due, and where the clock source reads it.

The streaming form of the delay queue of buckets: the clock source, in a process of its own beside the driver, must know the earliest
non-empty bucket of *every* shard before it may let a trigger pass. Each shard's last answer is a small file, replaced atomically::

    <folder>/<query id>/<shard>.json     the last answer of a shard
    <folder>/runs/<run>                  which query a run of the clock source belongs to
    <folder>/stores/<token>.json         what the keeper of a slot store has come to (see Published)

An answer that is absent or another query's counts as "due now": the board may be lost at any time and only a tick is spent.
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
    """What a shard said at the end of its last batch.

    Attributes:
        batch_id: That batch.
        next_due_ms: Earliest entry pending; ``None`` when none is.
        clock_ms: The wheel's clock in that batch.
        watermark_ms: The watermark of the next batch as far as this shard can tell; ``None`` but under the event clock.
        held_input: Whether that batch held input for this shard.
    """

    batch_id: int
    next_due_ms: int | None
    clock_ms: int
    watermark_ms: int | None
    held_input: bool


@dataclass(frozen=True)
class Published:
    """What the keeper of a slot store tells the clock of its near side.

    Attributes:
        cursor_ms: All entries due before it are on the near side, in the log of the store or further on.
        clock_ms: What time it is; ``None``: what the wall clock says.
        version: Version of the store that this covers.
        until_ms: Where the clock is to go even if nothing is due there; ``None``: nowhere.
    """

    cursor_ms: int
    clock_ms: int | None
    version: int
    until_ms: int | None = None


class HintBoard:
    """Where shards post their answers and the clock source reads them: small files in a folder, replaced atomically.

    A run of the source knows itself only by a random ``run`` id, which its rows carry; whoever posts knows the query's id. So the first
    post that follows a clock row links the two, and no query reads another's answers.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = Path(folder or Path(tempfile.gettempdir(), f"wheel-clock-{os.getuid()}"))

    def post(self, query_id: str, run: str | None, answers: Mapping[int, Answer]) -> None:
        """Posts answers by shard, and the link from a run of the source to its query."""
        for shard, answer in answers.items():
            self._replace(self.folder / query_id / f"{shard}.json", asdict(answer))
        if run and not (self.folder / "runs" / run).exists():
            self._replace(self.folder / "runs" / run, {"query_id": query_id})

    def answers(self, run: str) -> dict[int, Answer]:
        """The answers of the query that this run of the source belongs to; empty while that is unknown."""
        try:
            query_id = json.loads((self.folder / "runs" / run).read_text())["query_id"]
            files = list((self.folder / query_id).glob("*.json"))
            return {int(file.stem): Answer(**json.loads(file.read_text())) for file in files}
        except FileNotFoundError:
            return {}

    def publish(self, token: str, published: Published) -> None:
        """Tells the clock of a store's near side what the keeper of the store has come to."""
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
        """Removes what belongs to a run that has ended."""
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


def answer_of(status: Mapping[str, Any]) -> Answer:
    """The answer that a row of status gives."""
    return Answer(
        batch_id=status["batch_id"],
        next_due_ms=status["next_due_ms"],
        clock_ms=status["clock_ms"],
        watermark_ms=status["watermark_ms"],
        held_input=status["received"] > 0,
    )
