"""Inspects a checkpoint at rest: what is damaged in it, and what keeps it from going on at a batch.

::

    to go on with batch N          plan N-1    plan N    commit N-1    state N
    repeat it, as it was planned   sound       sound     sound         readable
    plan it anew                   sound, and  --        sound         readable
                                   plan N-2

Everything else may be damaged or missing: no start reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from wheel_udf.checkpoint.checksums import fault_of
from wheel_udf.checkpoint.chunk_refs import ChunkRefs
from wheel_udf.checkpoint.planned_settings import PlannedSettings
from wheel_udf.checkpoint.spark_logs import has_id, lacking_sources, parsed_commit, parsed_plan
from wheel_udf.checkpoint.state_files import Finding, StateFiles, ids_in
from wheel_udf.common.errors import CheckpointError
from wheel_udf.spark.files import open_folder, parsed_json

_MISSING: Final = "it is missing"


@dataclass(frozen=True)
class Resume:
    """How a checkpoint can go on.

    Attributes:
        batch: The batch that runs next.
        repeats: Whether it is repeated as it was planned; else it is planned anew.
    """

    batch: int
    repeats: bool


class Inspection:
    """The findings in a checkpoint. Reads all of its files once.

    Args:
        path: The checkpoint folder.
    """

    def __init__(self, path: str) -> None:
        self.path, self.files = path, open_folder(path)
        self.plans = {batch: self._plan_fault(batch) for batch in self._listed("offsets")}
        self.commits = {batch: self._commit_fault(batch) for batch in self._listed("commits")}
        sound = [batch for batch, fault in self.commits.items() if fault is None]
        self.state = StateFiles(self.files, {batch: ids_in(self._commit(batch)) for batch in sound})
        self.chunks = ChunkRefs(self.files)

    def _listed(self, log: str) -> list[int]:
        return sorted(int(name) for name in self.files.names(log) if name.isdecimal())

    def _plan_fault(self, batch: int) -> str | None:
        content = self.files.read(f"offsets/{batch}") or b""
        fault = fault_of(self.files, f"offsets/{batch}", content)
        if fault is not None:
            return fault
        try:
            plan = parsed_plan(self.files, batch, content)
        except CheckpointError as error:
            return error.what.partition(", ")[2]
        with suppress(CheckpointError):
            return lacking_sources(self.files, batch, plan) or None
        return None

    def _commit_fault(self, batch: int) -> str | None:
        content = self.files.read(f"commits/{batch}") or b""
        fault = fault_of(self.files, f"commits/{batch}", content)
        return fault or (None if parsed_commit(content) is not None else "it is cut off")

    def _commit(self, batch: int) -> Any:
        return parsed_commit(self.files.read(f"commits/{batch}") or b"")

    @property
    def newest(self) -> int | None:
        """The newest batch on record, even if damaged; None before the first. A lost plan may have left its state."""
        made = [each.version - 1 for listed in self.state.partitions.values() for each in listed]
        return max((*self.plans, *self.commits, *made), default=None)

    def resumes(self) -> Iterator[Resume]:
        """All ways to go on, by how much of the checkpoint they keep."""
        if self.newest is None:
            return
        yield Resume(self.newest + 1, repeats=False)
        for batch in range(self.newest, -1, -1):
            yield Resume(batch, repeats=True)
            if batch > 0:
                yield Resume(batch, repeats=False)

    def obstacles(self, resume: Resume) -> Iterator[Finding]:
        """Missing parts that a way to go on needs."""
        batch = resume.batch
        plans = [batch - 1, batch] if resume.repeats else [batch - 2, batch - 1]
        for each in plans:
            if each >= 0 and (fault := self.plans.get(each, _MISSING)) is not None:
                yield Finding(f"offsets/{each}", fault)
        if batch > 0 and (fault := self.commits.get(batch - 1, _MISSING)) is not None:
            yield Finding(f"commits/{batch - 1}", fault)
            return  # it names the files of the state
        damage = self.state.damage(batch) or self.chunks.damage(batch)
        if damage is not None:
            yield damage

    @cached_property
    def damage(self) -> tuple[Finding, ...]:
        """All that is damaged or missing in the logs and the state, whether it is needed or not."""
        found = [
            Finding(f"{log}/{batch}", fault)
            for log, entries in (("offsets", self.plans), ("commits", self.commits))
            for batch in range(min(entries, default=0), max(entries, default=-1) + 1)
            if (fault := entries.get(batch, _MISSING)) is not None
        ]
        faults = {name: self.state.fault(name) for name in self.state.all_names()}
        found += [Finding(name, fault) for name, fault in faults.items() if fault is not None]
        return tuple(dict.fromkeys((*found, *self.chunks.all_damage())))

    @cached_property
    def metadata(self) -> Finding | None:
        """The fault of the id of the query; None if it is sound, or no batch needs it yet."""
        content = self.files.read("metadata")
        if self.newest is None or (content is not None and self._is_sound_id(content)):
            return None
        return Finding("metadata", _MISSING if content is None else "it is damaged")

    def _is_sound_id(self, content: bytes) -> bool:
        return has_id(content) and fault_of(self.files, "metadata", content) is None

    @cached_property
    def irreplaceable(self) -> tuple[Finding, ...]:
        """Damaged parts without a replacement: logs of sources, descriptions of the state, the journal of settings."""
        places = {*self.state.partitions, *(each.rpartition("/")[0] for each in self.state.partitions)}
        folders = [f"sources/{number}" for number in self.files.names("sources")]
        folders += [f"{place}/_metadata" for place in sorted(places)]
        listed = ((folder, name) for folder in folders for name in self.files.names(folder))
        names = [f"{folder}/{name}" for folder, name in listed if not name.startswith(".")]
        found = [(name, self._content_fault(name)) for name in names]
        if not self._has_sound_journal:
            found.append(("wheel-settings.json", "it is damaged"))
        return tuple(Finding(name, fault) for name, fault in found if fault is not None)

    def _content_fault(self, name: str) -> str | None:
        content = self.files.read(name)
        return None if content is None else fault_of(self.files, name, content)

    @cached_property
    def _has_sound_journal(self) -> bool:
        try:
            PlannedSettings(self.path).settings_of(0)
        except CheckpointError:
            return False
        return True

    def knows_settings_of(self, batch: int) -> bool:
        """Whether the settings of a planned batch are on record, or were never recorded (a query of the library)."""
        content = self.files.read("wheel-settings.json")
        return (
            content is None
            or parsed_json(content) == []
            or PlannedSettings(self.path).settings_of(batch) is not None
        )
