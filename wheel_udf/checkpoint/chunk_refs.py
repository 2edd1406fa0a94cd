"""Which files of chunks a version of the state refers to, and whether they are sound; for a checkpoint at rest
(:mod:`wheel_udf.checkpoint.inspection`).

::

    chunks/<shard>/refs/17      the files to which the state of the shard refers after batches 17 and 18
    chunks/<shard>/refs/19      the same after batch 19

Version N of the state is that after batch N - 1. A shard without notes has all chunks in the rows of its state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from wheel_udf.checkpoint.state_files import Finding
from wheel_udf.shard.chunk_files import CHUNKS_FOLDER, REFS_FOLDER, is_sound
from wheel_udf.spark.files import parsed_json
from wheel_udf.spark.folder import Folder


@dataclass
class ChunkRefs:
    """The notes of all shards of a checkpoint.

    Args:
        files: The checkpoint.
    """

    files: Folder
    _faults: dict[str, str | None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._batches = {
            shard: sorted(int(name) for name in self.files.names(_refs_of(shard)) if name.isdecimal())
            for shard in sorted(self.files.names(CHUNKS_FOLDER))
        }

    def damage(self, version: int) -> Finding | None:
        """The first missing or damaged file of a version of the state; None if there is none."""
        for shard, batches in self._batches.items():
            before = [batch for batch in batches if batch < version]
            for finding in self._faults_of(shard, before[-1]) if before else ():
                return finding
        return None

    def all_damage(self) -> Iterator[Finding]:
        """All missing or damaged files to which notes refer, and damaged notes; some more than once."""
        for shard, batches in self._batches.items():
            for batch in batches:
                if self._named(shard, batch) is None:
                    yield Finding(f"{_refs_of(shard)}/{batch}", "it is damaged")
                yield from self._faults_of(shard, batch)

    def notes_from(self, batch: int) -> list[str]:
        """The notes of a batch and of later ones."""
        return [
            f"{_refs_of(shard)}/{each}"
            for shard, batches in self._batches.items()
            for each in batches
            if each >= batch
        ]

    def _faults_of(self, shard: str, batch: int) -> Iterator[Finding]:
        for name in self._named(shard, batch) or ():
            place = f"{CHUNKS_FOLDER}/{shard}/{name}"
            if place not in self._faults:
                self._faults[place] = self._fault(place, name)
            if (fault := self._faults[place]) is not None:
                yield Finding(place, fault)

    def _fault(self, place: str, name: str) -> str | None:
        content = self.files.read(place)
        if content is None:
            return "it is missing"
        return None if is_sound(name, content) else "it does not match its checksum"

    def _named(self, shard: str, batch: int) -> list[str] | None:
        """The files that a note names; None if it cannot be read."""
        found = parsed_json(self.files.read(f"{_refs_of(shard)}/{batch}") or b"")
        named = found.get("files") if isinstance(found, dict) else None
        return [str(name) for name in named] if isinstance(named, list) else None


def _refs_of(shard: str) -> str:
    return f"{CHUNKS_FOLDER}/{shard}/{REFS_FOLDER}"
