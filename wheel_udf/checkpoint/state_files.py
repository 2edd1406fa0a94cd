"""The files of Spark's state in a checkpoint: which of them a batch reads, and whether they are sound.

Batch N commits version N+1 of the state of each partition; batch N+1 starts from it::

    state/0/1/8_<id>.changelog      what batch 7 has changed         id: of the writer, named in commits/7 (version 2)
    state/0/1/8_<id>.zip            the whole state after batch 7    with the files that it names in state/0/1/SSTs
    state/0/1/8.delta, 8.snapshot   the same of the other provider, in memory

    version 12 = newest sound snapshot (or nothing, version 0) + all changes after it up to 12

The changes of a version begin with the ids of the versions before, from the last snapshot on. Spark 4.2 goes back to
an older snapshot by itself if a newer one is damaged or missing, but not to version 0. It cannot replace damaged
changes.

Caveat: the layout is Spark's own; see ``spark/private_api.toml``.
"""

from __future__ import annotations

import io
import re
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from wheel_udf.checkpoint.checksums import companions, fault_of
from wheel_udf.spark.files import parsed_json
from wheel_udf.spark.folder import Folder

_NAME: Final = re.compile(r"(\d+)(?:_(.+))?\.(changelog|delta|zip|snapshot)")
_LZ4: Final = b"LZ4Block"
_LZ4_HEAD: Final = 21
_LINEAGE: Final = re.compile(rb'v\d[\x00-\xff]{0,4}\[\{"version":(\d+),')
_CHANGES: Final = frozenset({"changelog", "delta"})

Ids = Mapping[str, Sequence[Sequence[str]]]
"""The ids in a commit: operator -> partition -> ids of the writers, one for each store."""


@dataclass(frozen=True)
class StateFile:
    """A file of a version of the state of a partition."""

    name: str
    version: int
    writer: str | None
    is_changes: bool


@dataclass(frozen=True)
class Finding:
    """Something that is damaged or missing.

    Attributes:
        name: The file, or the folder in which one is missing, relative to the checkpoint.
        what: What is wrong with it, as a clause.
    """

    name: str
    what: str


@dataclass
class StateFiles:
    """The state in a checkpoint.

    Args:
        files: The checkpoint.
        ids: Ids of a commit by its batch; none for a checkpoint of format version 1.
    """

    files: Folder
    ids: Mapping[int, Ids]
    _faults: dict[str, str | None] = field(default_factory=dict, init=False)

    @cached_property
    def partitions(self) -> dict[str, list[StateFile]]:
        """Folder of each partition, to its files by falling version."""
        return {
            folder: sorted(self._listed(folder), key=lambda each: -each.version)
            for operator in _numbers(self.files.names("state"))
            for partition in _numbers(self.files.names(f"state/{operator}"))
            for folder in [f"state/{operator}/{partition}"]
        }

    def _listed(self, folder: str) -> Iterator[StateFile]:
        for name in self.files.names(folder):
            if found := _NAME.fullmatch(name):
                version, writer, kind = found.groups()
                yield StateFile(f"{folder}/{name}", int(version), writer, kind in _CHANGES)

    def fault(self, name: str) -> str | None:
        """What is wrong with a file, as a clause; with a snapshot also if a file that it names is damaged."""
        if name not in self._faults:
            content = self.files.read(name)
            self._faults[name] = "it is missing" if content is None else self._fault_in(name, content)
        return self._faults[name]

    def _fault_in(self, name: str, content: bytes) -> str | None:
        fault = fault_of(self.files, name, content)
        if fault is not None or not name.endswith(".zip"):
            return fault
        named = _named_in_zip(content)
        if named is None:
            return "it is cut off"
        folder = name.rpartition("/")[0]
        bad = [each for each in named if self.fault(f"{folder}/SSTs/{each}") is not None]
        return f"its file SSTs/{bad[0]} is damaged or missing" if bad else None

    @property
    def unchecked(self) -> int:
        """The number of files of the state without a checksum."""
        return sum(not companions(self.files, name) for name in self.all_names())

    def all_names(self) -> list[str]:
        """All state files."""
        return [each.name for listed in self.partitions.values() for each in listed]

    def damage(self, version: int) -> Finding | None:
        """The first thing that keeps a version from being read; None if it can be read in all partitions."""
        if version == 0:
            return None
        for folder in self._expected(version):
            found = self._damage_in(folder, version)
            if found is not None:
                return found
        return None

    def _expected(self, version: int) -> list[str]:
        """The folders of all partitions that have a version, also those that are missing."""
        ids = self.ids.get(version - 1, {})
        named = {f"state/{operator}/{place}" for operator, each in ids.items() for place in range(len(each))}
        return sorted(named | self.partitions.keys())

    def _damage_in(self, folder: str, version: int) -> Finding | None:
        for at in range(version, 0, -1):
            listed = self._written(folder, at)
            changes = [each for each in listed if each.is_changes]
            bases = [each for each in listed if not each.is_changes]
            faults = {each.name: self.fault(each.name) for each in listed}
            sound = any(faults[each.name] is None for each in changes)
            # Of the version itself the changes are read in any case: they name the versions before.
            if any(faults[each.name] is None for each in bases) and (sound or not changes or at < version):
                return None
            if not sound:
                bad = next((each for each in (*changes, *bases)), None)
                if bad is None:
                    return Finding(folder, f"version {at} of the state is missing")
                return Finding(bad.name, str(faults[bad.name]))
        return self._missing_base(folder, version)

    def _missing_base(self, folder: str, version: int) -> Finding | None:
        """The snapshot that the changes of a version begin at, if they do not go back to version 0."""
        changes = [each for each in self._written(folder, version) if each.is_changes]
        starts = [_first_version(self.files.read(each.name) or b"") for each in changes]
        base = max((start for start in starts if start is not None), default=1)
        if base <= 1:
            return None
        found = [each for each in self._written(folder, base) if not each.is_changes]
        if found:
            return Finding(found[0].name, str(self.fault(found[0].name)))
        return Finding(folder, f"the snapshot of version {base} of the state is missing")

    def _written(self, folder: str, version: int) -> list[StateFile]:
        """The files of a version by the writer that its commit names; by any writer if that is not known."""
        _, operator, partition = folder.split("/")
        writers = self.ids.get(version - 1, {}).get(operator)
        place = int(partition)
        known = writers[place] if writers is not None and place < len(writers) else None
        return [
            each
            for each in self.partitions.get(folder, [])
            if each.version == version and (known is None or each.writer in known)
        ]

    def is_computed(self, batch: int) -> bool:
        """Whether a batch may have gone on to its sinks: all partitions have the state that it commits before."""
        return all(
            any(each.version == batch + 1 for each in self.partitions.get(folder, []))
            for folder in self._expected(batch)
        )


def _first_version(changes: bytes) -> int | None:
    """The first of the versions before that a file of changes names; None if it names none, or cannot be read here."""
    if not changes.startswith(_LZ4) or len(changes) < _LZ4_HEAD:
        return None
    packed, size = struct.unpack("<II", changes[len(_LZ4) + 1 : len(_LZ4) + 9])
    block = changes[_LZ4_HEAD : _LZ4_HEAD + packed]
    if packed != size:
        try:
            block = pa.decompress(block, decompressed_size=size, codec="lz4_raw", asbytes=True)
        except (OSError, ValueError):
            return None
    named = _LINEAGE.search(block)
    return int(named[1]) if named else None


def ids_in(commit: Any) -> Ids:
    """The ids of writers in a commit; none under format version 1."""
    found = commit.get("stateUniqueIds") if isinstance(commit, dict) else None
    if not isinstance(found, dict):
        return {}
    return {str(operator): each for operator, each in found.items() if _is_ids(each)}


def _is_ids(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(stores, list) and all(isinstance(each, str) for each in stores) for stores in value
    )


def _numbers(names: Sequence[str]) -> list[str]:
    return sorted((name for name in names if name.isdecimal()), key=int)


def _named_in_zip(content: bytes) -> list[str] | None:
    """The files in ``SSTs`` that a snapshot of RocksDB names; None if it cannot be read."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            if packed.testzip() is not None:
                return None
            _, _, metadata = packed.read("metadata").partition(b"\n")
    except (zipfile.BadZipFile, KeyError, EOFError, OSError, ValueError):
        return None
    found = parsed_json(metadata)
    listed = found.get("sstFiles") if isinstance(found, dict) else None
    return [str(each.get("dfsSstFileName")) for each in listed or ()]
