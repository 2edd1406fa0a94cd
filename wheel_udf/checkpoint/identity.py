"""The identity of a checkpoint: what its first start was given and every later start is compared with.

A checkpoint is a folder. Spark writes ``metadata``, ``offsets/N``, ``commits/N``, ``state/`` and ``sources/`` into it
(:mod:`wheel_udf.checkpoint.spark_logs`); this package adds files of its own::

    wheel.json            the identity: geometry, shards, clock, transaction id     written once, at the first start
    wheel-settings.json   settings that change rows, each with its first batch      replaced when they change
    wheel-topics.json     the id of each Kafka topic that is read                   see wheel_udf.job.source_topics
    wheel.lease           locked by the process that runs the checkpoint            freed by the kernel at its end
    wheel-exported.json   the content has left                                      see wheel_udf.checkpoint.move_marks
    wheel-import.json     the content comes from another checkpoint                 likewise

The folder of a tiered run holds two checkpoints, ``intake`` and ``wheel``; that of a direct run or of a purgatory is a
checkpoint itself. So a folder shows its mode, whatever release made it, and a start in another mode is refused.

Rules
    * No start from the beginning without being asked. A folder with Spark's logs and without ``wheel.json``, a damaged
      newest log entry or a missing ``metadata`` is an error that names the file and the repair. (Spark would write a
      new ``metadata``, and would read a checkpoint without offsets from the start of its input.)
    * The transaction id (``app_id``) is made once and kept. A renamed job keeps the id of its first start. A new
      checkpoint never gets an old id: Delta skips, without a message, versions that it has seen from an id.
    * A process that is killed before the first batch is planned leaves temporary files of Spark, with which Spark
      refuses to start. They are deleted at the next start.

Call the functions that write while holding the lease (:mod:`wheel_udf.checkpoint.lease`). Each file is replaced as a
whole (:mod:`wheel_udf.spark.files`).
"""

from __future__ import annotations

import re
import uuid
from dataclasses import asdict, dataclass, fields
from typing import Final

from wheel_udf import __version__
from wheel_udf.checkpoint.lease import LEASE_FILE
from wheel_udf.checkpoint.move_marks import IMPORTED, require_startable
from wheel_udf.checkpoint.spark_logs import RESTORE, clear_leftovers, require_sound_logs
from wheel_udf.common.errors import CheckpointError, GeometryChangedError
from wheel_udf.shard.formats import FORMAT_VERSION
from wheel_udf.spark.files import json_bytes, open_folder, parsed_json
from wheel_udf.spark.folder import Folder

TIERED_PARTS: Final = ("intake", "wheel")
"""The folders of the two queries of a tiered run, in the folder of its checkpoint."""

_IDENTITY: Final = "wheel.json"
_SPARKS: Final = frozenset({"metadata", "offsets", "commits", "state", "sources"})


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a checkpoint, as ``wheel.json`` stores it.

    Attributes:
        format_version: Of this file and of the state.
        wheel: The fingerprint of the geometry.
        shards: Number of shards that the entries are distributed over.
        clock: Kind of clock (processing, event, simulated).
        app_id: Id of the transactions in Delta tables: the job's name at the first start and a random part.
        package_version: The release that made the checkpoint.
    """

    format_version: int
    wheel: str
    shards: int
    clock: str
    app_id: str
    package_version: str

    @property
    def mode(self) -> str:
        """``direct``, ``tiered`` or ``purgatory``; follows from wheel and clock."""
        if ",purgatory=" in self.wheel:
            return "purgatory"
        is_part_of_tiered = ",state_levels=" in self.wheel or self.clock == "store"
        return "tiered" if is_part_of_tiered else "direct"


def check_checkpoint(path: str, *, wheel_fingerprint: str, shards: int, clock_kind: str) -> Identity | None:
    """Compares a checkpoint with settings. Creates nothing and needs no lease.

    Args:
        path: As for :func:`open_checkpoint`, like the other arguments.
        wheel_fingerprint: From :meth:`wheel_udf.common.geometry.Wheel.fingerprint`.
        shards: Number of shards.
        clock_kind: Kind of clock.

    Returns:
        The identity of the checkpoint; None if the first start is still to come.

    Raises:
        GeometryChangedError: As :func:`open_checkpoint`.
        CheckpointError: As :func:`open_checkpoint`.
    """
    asked = Identity(FORMAT_VERSION, wheel_fingerprint, shards, clock_kind, "", __version__)
    return _compared(open_folder(path), asked)


def require_checkpoint(path: str) -> None:
    """Refuses a folder without a checkpoint, which would look like one in which nothing is pending.

    Raises:
        CheckpointError: There is no such folder, or nothing is in it.
    """
    files = open_folder(path)
    if not {*files.names()} - {LEASE_FILE}:
        raise CheckpointError(
            "there is no checkpoint",
            field=files.name(),
            rule="the folder of a job that was started",
            hint="check the path; a job makes the folder at its first start",
        )


def check_tiered_folder(path: str) -> None:
    """Refuses a folder that cannot hold a tiered run's two checkpoints: it is a checkpoint itself. Creates nothing.

    Raises:
        GeometryChangedError: It is the checkpoint of a direct run or of a purgatory.
        CheckpointError: It is a part of a tiered checkpoint, or a checkpoint of Spark alone, or damaged.
    """
    files = open_folder(path)
    content, names = files.read(_IDENTITY), set(files.names())
    if content is None:
        if {"metadata", "offsets"} <= names:
            raise _not_ours(files, sorted(names))
        return
    mode = _identity(files, content).mode
    if mode == "tiered":
        what = "the folder is the checkpoint of one of the two queries of a tiered run"
        raise CheckpointError(what, field=files.name(), hint="use the folder above it")
    raise _changed(files, [f"mode {mode} there, tiered here"])


def open_checkpoint(
    path: str,
    *,
    name: str,
    wheel_fingerprint: str,
    shards: int,
    clock_kind: str,
    importing: str | None = None,
) -> Identity:
    """Returns the identity of a checkpoint: made at the first start, compared at every later one.

    Call it while holding the :class:`Lease`.

    Args:
        path: The checkpoint folder: a local path, a ``file:`` URI, or a URI that Hadoop knows (needs a running
            session).
        name: The job's name; becomes the readable part of a new ``app_id``.
        wheel_fingerprint: From :meth:`wheel_udf.common.geometry.Wheel.fingerprint`.
        shards: Number of shards.
        clock_kind: Kind of clock.
        importing: Id of the export that is being imported; None at a start.

    Raises:
        GeometryChangedError: The checkpoint was made with other values or in another mode; all differences are named,
            with both values.
        CheckpointError: The checkpoint is damaged, foreign, or a checkpoint of Spark without ``wheel.json``; or its
            content was exported, or its import has not finished.
    """
    files = open_folder(path)
    app_id = f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name)[:100]}-{uuid.uuid4().hex}"
    asked = Identity(FORMAT_VERSION, wheel_fingerprint, shards, clock_kind, app_id, __version__)
    stored = _compared(files, asked, importing)
    if stored is None:
        files.replace(_IDENTITY, json_bytes(asdict(asked)))
        return asked
    clear_leftovers(files)
    return stored


def identity_of(path: str) -> Identity:
    """Returns the identity of a checkpoint that has one. Compares nothing but the format, and creates nothing.

    Raises:
        CheckpointError: There is none, or it is damaged.
        GeometryChangedError: It is of another format version.
    """
    files = open_folder(path)
    content = files.read(_IDENTITY)
    if content is None:
        raise CheckpointError("there is no checkpoint of this package", field=files.name(_IDENTITY))
    stored = _identity(files, content)
    if stored.format_version != FORMAT_VERSION:
        raise _changed(
            files, [f"format version {stored.format_version} there, {FORMAT_VERSION} here"], stored
        )
    return stored


def _compared(files: Folder, asked: Identity, importing: str | None = None) -> Identity | None:
    """Returns the stored identity after comparing it; None in a folder for a first start."""
    require_startable(files, importing)
    content = files.read(_IDENTITY)
    if content is not None:
        stored = _identity(files, content)
        _require_same(files, stored, asked)
        require_sound_logs(files)
        return stored
    if any(files.read(f"{part}/{_IDENTITY}") is not None for part in TIERED_PARTS):
        raise _changed(files, [f"mode tiered there, {asked.mode} here"])
    _require_unused(files)
    return None


def _identity(files: Folder, content: bytes) -> Identity:
    found = parsed_json(content)
    kinds = {field.name: int if field.type == "int" else str for field in fields(Identity)}
    if not isinstance(found, dict) or not all(type(found.get(name)) is kind for name, kind in kinds.items()):
        hint = f"{RESTORE}; its app_id is also in the log of each Delta table that it wrote (txn.appId)"
        raise CheckpointError(
            "the identity of the checkpoint is damaged", field=files.name(_IDENTITY), hint=hint
        )
    return Identity(**{name: found[name] for name in kinds})


def _require_same(files: Folder, stored: Identity, asked: Identity) -> None:
    compared = {
        "format_version": "format version",
        "mode": "mode",
        "wheel": "wheel",
        "shards": "shards",
        "clock": "clock",
    }
    differences = [
        f"{word} {getattr(stored, name)} there, {getattr(asked, name)} here"
        for name, word in compared.items()
        if getattr(stored, name) != getattr(asked, name)
    ]
    if differences:
        raise _changed(files, differences, stored)


def _changed(files: Folder, differences: list[str], stored: Identity | None = None) -> GeometryChangedError:
    what = f"the checkpoint was made with other settings ({'; '.join(differences)})"
    other_format = stored is not None and stored.format_version != FORMAT_VERSION
    way = f"wheel-udf export of release {stored.package_version}" if stored and other_format else "export"
    hint = f"use the settings it was made with; or move its content into a new checkpoint: {way}, then import"
    return GeometryChangedError(what, field=files.name(), hint=hint)


def _require_unused(files: Folder) -> None:
    found = sorted(
        name
        for name in files.names()
        if name not in (LEASE_FILE, IMPORTED) and not name.startswith((f".{_IDENTITY}", f".{IMPORTED}"))
    )
    if found:
        raise _not_ours(files, found)


def _not_ours(files: Folder, found: list[str]) -> CheckpointError:
    if _SPARKS.intersection(found):
        what = f"the folder holds a checkpoint of Spark without {_IDENTITY}"
        hint = f"if it was the wheel's, {RESTORE}; else use a new folder"
    else:
        what, hint = "the folder is not empty and holds no checkpoint", "use a new folder"
    return CheckpointError(what, field=files.name(), value=found, hint=hint)
