"""What the wheel keeps in a checkpoint beside Spark's own logs, and what it reads from those.

A checkpoint is a folder. Spark writes ``metadata``, ``offsets/N`` (batch N is planned), ``commits/N`` (batch N is done),
``state/`` and ``sources/`` into it; this module adds three files::

    wheel.json            who this checkpoint is: geometry, shards, clock, transaction id    written once, at the first start
    wheel-settings.json   settings that change rows, with the first batch they apply to      replaced when they change
    wheel.lease           locked by the process that runs the checkpoint                     freed by the kernel at its end

Rules
    * Nothing starts afresh in silence. A folder with Spark's logs and without ``wheel.json``, a damaged newest log entry or a
      missing ``metadata`` is an error that names the file and says how to repair it. (Spark itself would make a new
      ``metadata``, and would read a checkpoint without offsets from the start of its input.)
    * The transaction id (``app_id``) is made once and kept. A renamed job goes on under the id it had; a fresh checkpoint
      never gets an old one, because Delta skips, in silence, versions that it has seen from an id.
    * Batch ids follow Spark's order of writing: ``offsets/N``, the batch, ``commits/N``. So at most the newest batch is
      planned and not committed; that one replays, with the settings it was planned with.

Who writes holds the :class:`Lease`: one process at a time. Each file is replaced whole (:mod:`wheel_udf.files`).

Caveats: the lease is a lock of the local kernel. On another file system (``hdfs:``, ``s3a:``, ...) no lease is taken in this
release, and only Spark's own checks stand between two runs of one checkpoint. Where the Python of a driver is killed, its
JVM ends at the closing of its standard input: a batch that it had begun may still write for a moment, which the
transaction ids and Spark's logs tolerate.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from types import TracebackType
from typing import Any, Final, Self

from wheel_udf import __version__
from wheel_udf.errors import CheckpointError, GeometryChangedError, LeaseError
from wheel_udf.files import Folder, local_folder, open_folder

FORMAT_VERSION: Final = 5
"""Version of ``wheel.json`` and of the state that goes with it."""

_IDENTITY: Final = "wheel.json"
_SETTINGS: Final = "wheel-settings.json"
_LEASE: Final = "wheel.lease"
_SPARKS: Final = frozenset({"metadata", "offsets", "commits", "state", "sources"})

_RESTORE: Final = (
    "restore the folder from a copy; a new checkpoint folder reads the input anew and delivers again"
)
_REPLAY: Final = "delete it and its .crc file: the batch replays, and Delta tables skip what they hold of it"
_REPLAN: Final = (
    "if the batch has written to no table, delete it and its .crc file: the batch is planned anew; "
    "else restore the folder from a copy"
)
_NEW_ID: Final = (
    'write the file by hand, {"id":"<any new UUID>"}: nothing that the wheel keeps depends on the old one'
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a checkpoint is, as ``wheel.json`` keeps it.

    Attributes:
        format_version: Of this file and of the state.
        wheel: The fingerprint of the geometry.
        shards: Over how many groups the entries are spread.
        clock: Kind of clock (processing, event, simulated).
        app_id: Id of the transactions in Delta tables: the name at the first start and a random part.
        package_version: The release that made the checkpoint.
    """

    format_version: int
    wheel: str
    shards: int
    clock: str
    app_id: str
    package_version: str


def open_checkpoint(
    path: str, *, name: str, wheel_fingerprint: str, shards: int, clock_kind: str
) -> Identity:
    """The identity of a checkpoint: made at the first start, compared at every later one.

    Call it while holding the :class:`Lease`.

    Args:
        path: The checkpoint folder: a local path, a ``file:`` URI, or a URI that Hadoop knows (needs a running session).
        name: The job's name; becomes the readable part of a new ``app_id``.
        wheel_fingerprint: What :meth:`wheel_udf.geometry.Wheel.fingerprint` says.
        shards: Number of shards.
        clock_kind: Kind of clock.

    Raises:
        GeometryChangedError: The checkpoint was made with others; all differences, both values of each.
        CheckpointError: Damaged, foreign, or Spark's without the wheel's.
    """
    files = open_folder(path)
    app_id = f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name)[:100]}-{uuid.uuid4().hex}"
    asked = Identity(FORMAT_VERSION, wheel_fingerprint, shards, clock_kind, app_id, __version__)
    content = files.read(_IDENTITY)
    if content is None:
        _require_unused(files)
        files.replace(_IDENTITY, _json_bytes(asdict(asked)))
        return asked
    stored = _identity(files, content)
    _require_same(files, stored, asked)
    _require_sound_logs(files)
    return stored


def planned_batch(path: str) -> int | None:
    """The batch that was planned (``offsets/N``) and not committed (no ``commits/N``); None if there is none."""
    files = open_folder(path)
    newest = _newest(files, "offsets")
    return newest if newest is not None and newest != _newest(files, "commits") else None


def last_planned(path: str) -> int | None:
    """The newest planned batch, committed or not; None before the first."""
    return _newest(open_folder(path), "offsets")


def committed_offsets(path: str) -> list[Any] | None:
    """Where the sources stood after the newest committed batch, as JSON values; None before the first one."""
    files = open_folder(path)
    committed = _newest(files, "commits")
    if committed is None:
        return None
    offsets = _offsets(files, committed, files.read(f"offsets/{committed}") or b"")
    return [_value(text) for text in offsets.values()]


def batch_at(path: str, instant_ms: int) -> int | None:
    """The newest committed batch that had been planned by an instant (UTC epoch ms); None before the first one.

    Raises:
        CheckpointError: The record of batches does not go back so far.
    """
    files = open_folder(path)
    committed = sorted(int(name) for name in files.names("commits") if name.isdigit())
    for batch in reversed(committed):
        content = files.read(f"offsets/{batch}")
        if content is not None and _planned_ms(content) <= instant_ms:
            return batch
    if committed and committed[0] > 0:
        raise CheckpointError(
            "the checkpoint does not go back so far",
            field=files.name("commits"),
            value=f"batch {committed[0]} is the oldest on record",
            rule="spark.sql.streaming.minBatchesToRetain batches are kept",
        )
    return None


def _planned_ms(content: bytes) -> int:
    """When a batch was planned: the second line of its record is JSON with the time."""
    return int(json.loads(content.decode().splitlines()[1])["batchTimestampMs"])


def input_moved(path: str, batch_id: int, is_clock: Callable[[str], bool]) -> bool:
    """Whether a batch holds input: an offset of any source but the clock is another than in the batch before.

    Both formats of Spark 4.2 are read: ``v1``, a line for each source in order (``-``: no offset yet), and ``v2``, lines
    ``<source id>:<offset>`` (a source without an offset has none).

    Args:
        path: The checkpoint folder.
        batch_id: A planned batch. Compared with no offset at all if the batch before is not on record.
        is_clock: Tells an offset of the clock source by its text.

    Raises:
        CheckpointError: That batch is not on record, or its record is damaged.
    """
    files = open_folder(path)
    content = files.read(f"offsets/{batch_id}")
    if content is None:
        raise CheckpointError(
            "the plan of a batch is missing", field=files.name(f"offsets/{batch_id}"), hint=_RESTORE
        )
    now = _offsets(files, batch_id, content)
    earlier = files.read(f"offsets/{batch_id - 1}")
    before = _offsets(files, batch_id - 1, earlier) if earlier is not None else {}
    return any(
        text is not None and not is_clock(text) and _value(text) != _value(before.get(source))
        for source, text in now.items()
    )


class PlannedSettings:
    """A journal of the settings that change the rows of a batch, with the first batch each applies to.

    At a start: ``record(settings, last_planned + 1)``; in each batch: ``settings_of(batch_id)``. A batch that was planned
    under earlier settings finds them again, later ones find the new. No more is kept than a replay can ask for.

    Args:
        path: The checkpoint folder.
    """

    def __init__(self, path: str) -> None:
        self._files = open_folder(path)

    def record(self, settings: Mapping[str, Any], from_batch: int) -> None:
        """Notes that `settings` (anything JSON can hold) apply from a batch on that is not yet planned.

        Raises:
            CheckpointError: The journal is damaged.
        """
        wanted = json.loads(json.dumps(dict(settings)))  # as it will be read back: tuples are lists then
        entries = self._entries()
        earlier = [entry for entry in entries if entry["from_batch"] < from_batch][-1:]
        if not earlier or earlier[0]["settings"] != wanted:
            earlier.append({"from_batch": from_batch, "settings": wanted})
        if earlier != entries:
            self._files.replace(_SETTINGS, _json_bytes(earlier))

    def settings_of(self, batch_id: int) -> dict[str, Any] | None:
        """The settings of a batch; None if none were recorded for it.

        Raises:
            CheckpointError: The journal is damaged.
        """
        found: dict[str, Any] | None = None
        for entry in self._entries():
            if entry["from_batch"] <= batch_id:
                found = entry["settings"]
        return found

    def _entries(self) -> list[dict[str, Any]]:
        content = self._files.read(_SETTINGS)
        entries = _parsed(content) if content is not None else []
        if not isinstance(entries, list) or not all(_is_entry(entry) for entry in entries):
            raise CheckpointError(
                "the journal of settings is damaged", field=self._files.name(_SETTINGS), hint=_RESTORE
            )
        return entries


class Lease:
    """The right to run a checkpoint, for one process at a time; a context manager.

    The kernel holds the lock and frees it when the process ends, however it ends: after a kill -9 the next start takes over
    at once. Threads of one process exclude each other too. On file systems other than the local one nothing is locked.

    Args:
        path: The checkpoint folder; made if it is missing.
    """

    def __init__(self, path: str) -> None:
        folder = local_folder(path)
        self._file = folder / _LEASE if folder is not None else None
        self._lock: int | None = None

    def acquire(self) -> Self:
        """Takes the lease.

        Raises:
            LeaseError: Another holds it; its process id and host are named.
        """
        if self._file is None:
            return self
        self._file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(handle)
            os.close(handle)
            hint = "stop that one first, or use another checkpoint"
            raise LeaseError(
                f"the checkpoint is in use by {holder}", field=str(self._file), hint=hint
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, _json_bytes({"pid": os.getpid(), "host": socket.gethostname()}), 0)
        self._lock = handle
        return self

    def close(self) -> None:
        """Gives the lease back; a second call does nothing.

        The file stays: were it deleted, two processes could come to lock two files of the same name.
        """
        handle, self._lock = self._lock, None
        if handle is not None:
            os.ftruncate(handle, 0)
            os.close(handle)

    def __enter__(self) -> Self:
        """See :meth:`acquire`."""
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Gives the lease back."""
        self.close()


def _holder(handle: int) -> str:
    noted = _parsed(os.pread(handle, 4096, 0))
    # Between the lock and the note there is a moment without a note.
    return f"process {noted['pid']} on {noted['host']}" if isinstance(noted, dict) else "another process"


# --- identity ---------------------------------------------------------------------------------------------------------


def _identity(files: Folder, content: bytes) -> Identity:
    found = _parsed(content)
    kinds = {field.name: int if field.type == "int" else str for field in fields(Identity)}
    if not isinstance(found, dict) or not all(type(found.get(name)) is kind for name, kind in kinds.items()):
        hint = f"{_RESTORE}; its app_id also stands in the log of each Delta table that it wrote (txn.appId)"
        raise CheckpointError(
            "the identity of the checkpoint is damaged", field=files.name(_IDENTITY), hint=hint
        )
    return Identity(**{name: found[name] for name in kinds})


def _require_same(files: Folder, stored: Identity, asked: Identity) -> None:
    compared = {"format_version": "format version", "wheel": "wheel", "shards": "shards", "clock": "clock"}
    differences = [
        f"{word} {getattr(stored, name)} there, {getattr(asked, name)} here"
        for name, word in compared.items()
        if getattr(stored, name) != getattr(asked, name)
    ]
    if differences:
        what = f"the checkpoint was made with other settings ({'; '.join(differences)})"
        hint = "use the settings it was made with, or a new checkpoint folder"
        raise GeometryChangedError(what, field=files.name(), hint=hint)


def _require_unused(files: Folder) -> None:
    found = sorted(name for name in files.names() if name != _LEASE and not name.startswith(f".{_IDENTITY}"))
    if not found:
        return
    if _SPARKS.intersection(found):
        what = f"the folder holds a checkpoint of Spark without {_IDENTITY}"
        hint = f"if it was the wheel's, {_RESTORE}; else use a new folder"
    else:
        what, hint = "the folder is not empty and holds no checkpoint", "use a new folder"
    raise CheckpointError(what, field=files.name(), value=found, hint=hint)


# --- Spark's logs -----------------------------------------------------------------------------------------------------


def _require_sound_logs(files: Folder) -> None:
    """Looks at the newest entries only: those are the ones that Spark reads, and that a crash of the machine can tear."""
    planned, committed = _newest(files, "offsets"), _newest(files, "commits")
    if planned is None:
        if committed is not None or files.names("state"):
            raise CheckpointError(
                "the log of planned batches is gone", field=files.name("offsets"), hint=_RESTORE
            )
        return
    identity = files.read("metadata")
    if identity is None or "id" not in (_parsed(identity) or {}):
        what = "the id of the query is missing" if identity is None else "the id of the query is damaged"
        raise CheckpointError(what, field=files.name("metadata"), hint=_NEW_ID)
    if committed is not None:
        _require_sound_commit(files, committed)
    _require_sound_offsets(files, planned)
    if (-1 if committed is None else committed) not in (planned, planned - 1):
        what = f"the newest planned batch is {planned} and the newest committed one is {committed}"
        raise CheckpointError(
            what, field=files.name(), rule="committed = planned, or one less", hint=_RESTORE
        )


def _require_sound_commit(files: Folder, batch_id: int) -> None:
    name = f"commits/{batch_id}"
    head, _, body = (files.read(name) or b"").partition(b"\n")
    if not re.fullmatch(rb"v[0-9]+", head) or not isinstance(_parsed(body), dict):
        raise CheckpointError("the commit of a batch is damaged", field=files.name(name), hint=_REPLAY)


def _require_sound_offsets(files: Folder, batch_id: int) -> None:
    now = _offsets(files, batch_id, files.read(f"offsets/{batch_id}") or b"")
    earlier = files.read(f"offsets/{batch_id - 1}")
    missing = _offsets(files, batch_id - 1, earlier).keys() - now.keys() if earlier is not None else set()
    if missing:
        raise _torn(files, batch_id, f"it lacks sources {sorted(missing)} of the batch before")


def _offsets(files: Folder, batch_id: int, content: bytes) -> dict[str, str | None]:
    """The offsets of a planned batch as texts, by source; None where a source has none yet."""
    try:
        version, metadata, *lines = content.decode().split("\n")
    except ValueError:
        raise _torn(files, batch_id, "it is empty or cut off") from None
    if version == "v1":
        found = {str(position): None if line == "-" else line for position, line in enumerate(lines)}
    elif version == "v2":
        found = {source: text for source, _, text in (line.partition(":") for line in lines)}
    else:
        raise _torn(files, batch_id, f"its format is {version!r}, known are 'v1' and 'v2'")
    if not found or not all(text is None or _is_json(text) for text in (metadata, *found.values())):
        raise _torn(files, batch_id, "it is cut off")
    return found


def _torn(files: Folder, batch_id: int, why: str) -> CheckpointError:
    field = files.name(f"offsets/{batch_id}")
    return CheckpointError(f"the plan of a batch is damaged, {why}", field=field, hint=_REPLAN)


def _newest(files: Folder, log: str) -> int | None:
    return max((int(name) for name in files.names(log) if name.isdecimal()), default=None)


def _value(text: str | None) -> object:
    """Offsets are compared as JSON values: the order of keys in one (Kafka's partitions, say) is no movement."""
    return None if text is None else json.loads(text)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _is_entry(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and type(entry.get("from_batch")) is int
        and isinstance(entry.get("settings"), dict)
    )


def _parsed(content: bytes) -> Any:
    """The JSON value, or None where there is none."""
    try:
        return json.loads(content)
    except ValueError:
        return None


def _json_bytes(value: object) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()
