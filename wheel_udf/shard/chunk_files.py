"""Files beside a checkpoint that hold the long chunks of its shards' states; implements
:class:`wheel_udf.shard.chunk_store.ChunkStore`.

::

    <checkpoint>/chunks/<shard>/17-3f0a91...        a chunk: written by batch 17, named by the digest of its content
    <checkpoint>/chunks/<shard>/refs/19             the files to which the state refers after batch 19, and those
                                                    to which it no longer refers

    batch 19 of a shard       read the row --> open files where needed --> write new files --> write refs/19
                              --> hand the row to Spark, whose commit decides

Exactly once, by reference: a file is never changed, and a row of the state that Spark has not committed refers to
files that nobody reads. A repeated batch writes the same content under the same name. A file is renamed into its place
when it is complete.

Retention: Spark keeps the states of the last ``minBatchesToRetain`` batches. A file that the state no longer refers to
is removed when so many batches have passed, by the task of the shard. Files that no state has ever referred to (of a
task that was killed, of batches that a repair has taken out) are removed likewise, once in the life of a Python
worker.

Damage: a file is compared with its digest when a process opens it for the first time. What was damaged ends the query
with one sentence that names it.

Cost: O(bytes) to write a file, and to open one for the first time in a process; later openings are O(1).

Durability is that of the files of Spark's state, which are not flushed to the disk either: a process that is killed
loses nothing, a machine that loses its power may lose the last seconds; ``wheel-udf repair`` then goes back to the
newest batch whose files are sound.

Caveats: local file systems (and those that are mounted) alone; elsewhere all chunks stay in the row. Executors on
other machines read the files, where they can reach them, and write none. Copy the folder of a checkpoint as a whole.

Imports the standard library and errors only: executors load it.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, Final

from wheel_udf.common.errors import REPAIR, CheckpointError

CHUNKS_FOLDER: Final = "chunks"
CHUNKS_PROPERTY: Final = "wheel_udf.chunks"
"""The local property of Spark's tasks that has the :class:`ChunkPlace` of their query."""

REFS_FOLDER: Final = "refs"

LEAST_CHARACTERS: Final = 4_096
"""A shorter chunk costs less in the row of the state than a file of its own."""

_MARGIN_BATCHES: Final = 2
_DIGEST_BYTES: Final = 16

_sound: set[str] = set()
"""Files that this process has written or compared with their digest. A file is never changed."""
_swept: set[str] = set()
"""Folders in which this process has looked for files that no state refers to."""


def forget_files() -> None:
    """Forgets what this process knows of files and folders, as a new process."""
    _sound.clear()
    _swept.clear()


@dataclass(frozen=True)
class ChunkPlace:
    """Where the files of a checkpoint are.

    Attributes:
        folder: The folder of the checkpoint, as an absolute path.
        retain: How many batches a file is kept after the state no longer refers to it.
        least: Length from which on a chunk is written to a file; None: none is.
    """

    folder: str
    retain: int
    least: int | None = LEAST_CHARACTERS

    def to_text(self) -> str:
        """The place as a property of Spark's tasks."""
        return json.dumps([self.folder, self.retain, self.least])

    @staticmethod
    def from_text(text: str) -> ChunkPlace:
        """The inverse of :meth:`to_text`."""
        return ChunkPlace(*json.loads(text))

    def of_shard(self, shard: int, batch: int = -1) -> ChunkFiles:
        """The files of one shard, for the task that runs a batch; without a batch, to read."""
        return ChunkFiles(Path(self.folder, CHUNKS_FOLDER, str(shard)), batch, self.retain, self.least)


@dataclass
class ChunkFiles:
    """The files of one shard (:class:`wheel_udf.shard.chunk_store.ChunkStore`).

    Attributes:
        folder: Their folder.
        batch: The batch that is running; -1 to read only.
        retain: See :class:`ChunkPlace`, as of `least`.
        most_open: How many files stay mapped into memory.
    """

    folder: Path
    batch: int = -1
    retain: int = 0
    least: int | None = None
    most_open: int = 64
    _maps: OrderedDict[str, mmap] = field(default_factory=OrderedDict, init=False, repr=False)

    def open(self, name: str) -> FileText:
        """The text of a file. Damage is found when a part of it is read."""
        return FileText(self, name)

    def keep(self, text: str) -> str:
        """Writes a text to a file and returns its name. A repeated batch writes it again, which repairs damage."""
        content = text.encode("ascii")
        name = f"{self.batch}-{_digest(content)}"
        self.folder.mkdir(parents=True, exist_ok=True)
        _write(self.folder / name, content)
        _sound.add(str(self.folder / name))
        return name

    def mapped(self, name: str) -> mmap:
        """The content of a file, mapped into memory.

        Raises:
            CheckpointError: It is missing, or not as it was written.
        """
        found = self._maps.get(name)
        if found is None:
            place = self.folder / name
            try:
                with place.open("rb") as file:
                    found = mmap(file.fileno(), 0, access=ACCESS_READ)
            except FileNotFoundError:
                raise CheckpointError(
                    "a file of the checkpoint is missing", field=str(place), hint=REPAIR
                ) from None
            except ValueError:  # mmap of an empty file
                raise _damaged(place) from None
            _require_sound(place, found)
            self._maps[name] = found
            if len(self._maps) > self.most_open:
                self._maps.popitem(last=False)[1].close()
        return found

    def release_files(self, before: Collection[str], now: Sequence[str]) -> None:
        """Notes to which files the state refers after this batch, and removes files of no state that Spark keeps.

        Args:
            before: The names to which the state referred.
            now: The names to which it refers.
        """
        if not before and not now:
            return
        refs = self.folder / REFS_FOLDER
        refs.mkdir(parents=True, exist_ok=True)
        left = sorted(set(before).difference(now))
        _write(refs / str(self.batch), json.dumps({"files": sorted(now), "left": left}).encode())
        oldest = self.batch - self.retain - _MARGIN_BATCHES
        self._remove_left(refs, oldest, now)
        if str(self.folder) not in _swept:
            self._sweep(refs, oldest, now)
            _swept.add(str(self.folder))

    def _remove_left(self, refs: Path, oldest: int, now: Collection[str]) -> None:
        """Removes files that were dropped before a batch, and older notes; the newest of these notes stays."""
        for batch in sorted(each for each in _batches(refs) if each <= oldest)[:-1]:
            for name in _note(refs / str(batch)).get("left", ()):
                if name not in now:
                    (self.folder / name).unlink(missing_ok=True)
            (refs / str(batch)).unlink(missing_ok=True)

    def _sweep(self, refs: Path, oldest: int, now: Collection[str]) -> None:
        """Removes files of batches up to `oldest` that no note names."""
        known = set(now)
        for batch in _batches(refs):
            note = _note(refs / str(batch))
            known.update(note.get("files", ()), note.get("left", ()))
        for place in self.folder.iterdir():
            written = _batch_of(place.name)
            if written is not None and written <= oldest and place.name not in known:
                place.unlink(missing_ok=True)


class FileText:
    """The text of a file, of which parts are read (:class:`wheel_udf.shard.chunk_store.ChunkBytes`)."""

    def __init__(self, files: ChunkFiles, name: str) -> None:
        self._files, self._name = files, name

    def __getitem__(self, part: slice, /) -> str:
        return self._files.mapped(self._name)[part].decode("ascii")

    def index(self, character: str, start: int, /) -> int:
        """The first place of a character from `start` on."""
        found = self._files.mapped(self._name).find(character.encode("ascii"), start)
        if found < 0:
            raise _damaged(self._files.folder / self._name)
        return found


def _digest(content: bytes | mmap) -> str:
    return blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()


def _require_sound(place: Path, content: mmap) -> None:
    if str(place) in _sound:
        return
    if not is_sound(place.name, content):
        raise _damaged(place)
    _sound.add(str(place))


def is_sound(name: str, content: bytes | mmap) -> bool:
    """Whether a file has the content with which it was written."""
    return name.rpartition("-")[2] == _digest(content)


def _damaged(place: Path) -> CheckpointError:
    return CheckpointError("a file of the checkpoint is damaged", field=str(place), hint=REPAIR)


def _write(place: Path, content: bytes) -> None:
    """Writes a file as a whole. Two tasks may do so at once: each has a draft of its own."""
    draft = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        draft.write_bytes(content)
        draft.replace(place)
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def _batches(refs: Path) -> Iterator[int]:
    with suppress(FileNotFoundError):
        yield from (int(place.name) for place in refs.iterdir() if place.name.isdecimal())


def _batch_of(name: str) -> int | None:
    """The batch that has written a file, or the draft of one; None of anything else."""
    batch = name.removeprefix(".").partition("-")[0]
    return int(batch) if batch.isdecimal() and "-" in name else None


def _note(place: Path) -> dict[str, Any]:
    """A note; an empty one if it is missing or damaged: then files stay until they are swept."""
    try:
        found = json.loads(place.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
