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

In an object store the files have the same names. A process keeps those of its shards in a folder of its machine, in
which it reads them; that folder is a cache, and may be emptied at any time::

    keep       cache <-- text --> put        1 request a file
    open       cache, else get --> cache     1 request a file and machine
    release    put refs/19; delete           1 request a batch, 1 more when files are removed, a list once in a process

Caveats: on file systems that are neither local (mounted) nor an object store all chunks stay in the row. Executors on
other machines read local files, where they can reach them, and write none. Copy the folder of a checkpoint as a whole.

Imports the standard library and errors only: executors load it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, Final, Protocol

from wheel_udf.common.errors import REPAIR, CheckpointError

CHUNKS_FOLDER: Final = "chunks"
CHUNKS_PROPERTY: Final = "wheel_udf.chunks"
"""The local property of Spark's tasks that has the :class:`ChunkPlace` of their query, without `options`: Spark writes
such properties into its log of events, and there are keys among these."""

REFS_FOLDER: Final = "refs"

LEAST_CHARACTERS: Final = 4_096
"""A shorter chunk costs less in the row of the state than a file of its own."""

_MARGIN_BATCHES: Final = 2
_DIGEST_BYTES: Final = 16


class RemoteFiles(Protocol):
    """The files of a shard in an object store; names are relative to their folder."""

    def name(self, name: str = "") -> str:
        """The full name, for messages."""

    def names(self, folder: str = "") -> list[str]:
        """The names in a folder; none if there is no such folder."""

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is no such file."""

    def replace(self, name: str, content: bytes) -> None:
        """Writes or replaces a file as a whole."""

    def remove_files(self, folder: str, names: Sequence[str]) -> None:
        """Removes files of a folder."""


_sound: set[str] = set()
"""Files that this process has written or compared with their digest. A file is never changed."""
_swept: set[str] = set()
"""Folders in which this process has looked for files that no state refers to."""
_noted: dict[str, dict[int, Sequence[str]]] = {}
"""By folder and batch: the files that the state no longer referred to, of the notes that this process knows."""


def forget_files() -> None:
    """Forgets what this process knows of files and folders, as a new process."""
    _sound.clear()
    _swept.clear()
    _noted.clear()


@dataclass(frozen=True)
class ChunkPlace:
    """Where the files of a checkpoint are.

    Attributes:
        folder: The folder of the checkpoint, as an absolute path, or a URI in an object store.
        retain: How many batches a file is kept after the state no longer refers to it.
        least: Length from which on a chunk is written to a file; None: none is.
        options: Settings of the object store; empty: those of the executor's environment.
    """

    folder: str
    retain: int
    least: int | None = LEAST_CHARACTERS
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_remote(self) -> bool:
        """Whether the folder is in an object store."""
        return "://" in self.folder

    def to_text(self) -> str:
        """The place as a property of Spark's tasks, without the settings of the object store."""
        return json.dumps([self.folder, self.retain, self.least])

    @staticmethod
    def from_text(text: str) -> ChunkPlace:
        """The inverse of :meth:`to_text`, without the settings."""
        return ChunkPlace(*json.loads(text))

    def of_shard(
        self,
        shard: int,
        batch: int = -1,
        remote: Callable[[str, Mapping[str, str]], RemoteFiles] | None = None,
    ) -> ChunkFiles:
        """The files of one shard, for the task that runs a batch; without a batch, to read.

        Args:
            shard: The number of the shard.
            batch: The batch that is running.
            remote: Opens a folder of an object store by its URI and settings.
        """
        parts = (CHUNKS_FOLDER, str(shard))
        if not self.is_remote:
            return ChunkFiles(Path(self.folder, *parts), batch, self.retain, self.least)
        assert remote is not None, "how to open it"
        files = remote("/".join((self.folder, *parts)), self.options)
        return ChunkFiles(_cache_of(self.folder) / str(shard), batch, self.retain, self.least, files)


@dataclass
class ChunkFiles:
    """The files of one shard (:class:`wheel_udf.shard.chunk_store.ChunkStore`).

    Attributes:
        folder: Their folder; of files in an object store the folder that caches them.
        batch: The batch that is running; -1 to read only.
        retain: See :class:`ChunkPlace`, as of `least`.
        remote: The files in an object store; None if `folder` is their place.
        most_open: How many files stay mapped into memory.
    """

    folder: Path
    batch: int = -1
    retain: int = 0
    least: int | None = None
    remote: RemoteFiles | None = None
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
        if self.remote is not None:
            self.remote.replace(name, content)
        _sound.add(str(self.folder / name))
        return name

    def mapped(self, name: str) -> mmap:
        """The content of a file, mapped into memory.

        Raises:
            CheckpointError: It is missing, or not as it was written.
        """
        found = self._maps.get(name)
        if found is None:
            found = self._maps[name] = self._opened(name)
            if len(self._maps) > self.most_open:
                self._maps.popitem(last=False)[1].close()
        return found

    def _opened(self, name: str) -> mmap:
        place, is_there = self.folder / name, True
        try:
            found = _map_of(place)
        except FileNotFoundError:
            found, is_there = None, False
        if found is not None and _is_known_sound(place, found):
            return found
        if self.remote is not None:
            return self._fetched(name)
        raise _damaged(str(place)) if is_there else _missing(str(place))

    def _fetched(self, name: str) -> mmap:
        """Reads a file of the object store into the cache."""
        assert self.remote is not None, "asked for"
        content, place = self.remote.read(name), self.folder / name
        if content is None:
            raise _missing(self.remote.name(name))
        if not is_sound(name, content):
            raise _damaged(self.remote.name(name))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _write(place, content)
            found = _map_of(place)
        except FileNotFoundError:  # another process has emptied the cache meanwhile
            found = mmap(-1, len(content))
            found.write(content)
            return found
        _sound.add(str(place))
        assert found is not None, "it has content"
        return found

    def release_files(self, before: Collection[str], now: Sequence[str]) -> None:
        """Notes to which files the state refers after this batch, and removes files of no state that Spark keeps.

        Args:
            before: The names to which the state referred.
            now: The names to which it refers.
        """
        if not before and not now:
            return
        left = sorted(set(before).difference(now))
        self._write_note({"files": sorted(now), "left": left})
        notes = _noted.setdefault(str(self.folder), {})
        notes[self.batch] = left
        oldest = self.batch - self.retain - _MARGIN_BATCHES
        if str(self.folder) not in _swept:
            self._sweep(notes, oldest, now)
            _swept.add(str(self.folder))
        self._remove_left(notes, oldest, now)
        if self.remote is not None:
            self._empty_cache(now)

    def _write_note(self, note: dict[str, Any]) -> None:
        content, name = json.dumps(note).encode(), f"{REFS_FOLDER}/{self.batch}"
        if self.remote is not None:
            self.remote.replace(name, content)
            return
        (self.folder / REFS_FOLDER).mkdir(parents=True, exist_ok=True)
        _write(self.folder / name, content)

    def _remove_left(self, notes: dict[int, Sequence[str]], oldest: int, now: Collection[str]) -> None:
        """Removes files that were dropped before a batch, and older notes; the newest of these notes stays."""
        ended = sorted(each for each in notes if each <= oldest)[:-1]
        self._remove("", [name for batch in ended for name in notes[batch] if name not in now])
        self._remove(REFS_FOLDER, [str(batch) for batch in ended])
        for batch in ended:
            del notes[batch]

    def _sweep(self, notes: dict[int, Sequence[str]], oldest: int, now: Collection[str]) -> None:
        """Reads the notes of other processes, and removes files of batches up to `oldest` that no note names."""
        known = set(now).union(*notes.values())
        for name in self._names(REFS_FOLDER):
            if name.isdecimal() and int(name) not in notes:
                note = self._note(name)
                notes[int(name)] = note.get("left", ())
                known.update(note.get("files", ()), notes[int(name)])
        self._remove(
            "",
            [
                name
                for name in self._names()
                if (written := _batch_of(name)) is not None and written <= oldest and name not in known
            ],
        )

    def _names(self, folder: str = "") -> list[str]:
        if self.remote is not None:
            return self.remote.names(folder)
        with suppress(FileNotFoundError):
            return [place.name for place in (self.folder / folder).iterdir()]
        return []

    def _note(self, name: str) -> dict[str, Any]:
        """A note; an empty one if it is missing or damaged: then files stay until they are swept."""
        place = f"{REFS_FOLDER}/{name}"
        try:
            content = (self.folder / place).read_bytes() if self.remote is None else self.remote.read(place)
            found = json.loads(content or b"")
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _remove(self, folder: str, names: Sequence[str]) -> None:
        if self.remote is not None and names:
            self.remote.remove_files(folder, names)
        for name in names:
            (self.folder / folder / name).unlink(missing_ok=True)

    def _empty_cache(self, now: Collection[str]) -> None:
        """Removes what the state no longer refers to; what a repeated batch needs of it is read again."""
        with suppress(OSError):
            for place in self.folder.iterdir():
                # Drafts are of readers in other processes; they are small and few if one of these is killed.
                if place.name not in now and place.name[0] != "." and not place.is_dir():
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
            raise _damaged(str(self._files.folder / self._name))
        return found


def _digest(content: bytes | mmap) -> str:
    return blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()


def _cache_of(folder: str) -> Path:
    """Where a machine caches the files of a checkpoint: in a folder of Spark, which removes it, else for this user."""
    spark = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    parent = Path(spark) if spark else Path(tempfile.gettempdir(), f"wheel-chunks-{os.getuid()}")
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return parent / f"wheel-chunks-{_digest(folder.encode())}"


def _map_of(place: Path) -> mmap | None:
    """A file, mapped into memory; None of an empty one, which cannot be mapped."""
    with place.open("rb") as file:
        try:
            return mmap(file.fileno(), 0, access=ACCESS_READ)
        except ValueError:
            return None


def _is_known_sound(place: Path, content: mmap) -> bool:
    """Whether a file has the content with which it was written; compared once by each process."""
    if str(place) not in _sound:
        if not is_sound(place.name, content):
            return False
        _sound.add(str(place))
    return True


def is_sound(name: str, content: bytes | mmap) -> bool:
    """Whether a file has the content with which it was written."""
    return name.rpartition("-")[2] == _digest(content)


def _damaged(place: str) -> CheckpointError:
    return CheckpointError("a file of the checkpoint is damaged", field=place, hint=REPAIR)


def _missing(place: str) -> CheckpointError:
    return CheckpointError("a file of the checkpoint is missing", field=place, hint=REPAIR)


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


def _batch_of(name: str) -> int | None:
    """The batch that has written a file, or the draft of one; None of anything else."""
    batch = name.removeprefix(".").partition("-")[0]
    return int(batch) if batch.isdecimal() and "-" in name else None
