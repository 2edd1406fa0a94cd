"""Reads Spark's logs in a checkpoint: planned and committed batches, offsets of sources, whether the logs are sound.

Spark writes ``offsets/N`` (batch N is planned), runs the batch, and writes ``commits/N`` (batch N is committed)::

    offsets   0 1 2 3 4 5        batch 5 is planned and not committed: it replays, with the same rows
    commits   0 1 2 3 4

So at most the newest batch is planned and not committed. Spark reads the newest entries at a start; a crash of the
machine can damage those. An error names the damaged file and how to repair it.

Caveat: the format of these files is not documented by Spark; see ``spark/private_api.toml``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from wheel_udf.common.errors import REPAIR, CheckpointError
from wheel_udf.spark.files import local_folder, open_folder, parsed_json
from wheel_udf.spark.folder import Folder

RESTORE: Final = (
    "restore the folder from a copy; a new checkpoint folder reads the input again and delivers it again"
)


def planned_batch(path: str) -> int | None:
    """The batch that was planned (``offsets/N``) and not committed (no ``commits/N``); None if there is none."""
    files = open_folder(path)
    newest = _newest(files, "offsets")
    return newest if newest is not None and newest != _newest(files, "commits") else None


def last_planned(path: str) -> int | None:
    """The newest planned batch, committed or not; None before the first."""
    return _newest(open_folder(path), "offsets")


def last_committed(path: str) -> int | None:
    """The newest committed batch; None before the first."""
    return _newest(open_folder(path), "commits")


def committed_offsets(path: str) -> list[Any] | None:
    """Where the sources stood after the newest committed batch, as JSON values; None before the first one."""
    return _of_newest(path, "commits")


def planned_offsets(path: str) -> list[Any] | None:
    """Where the sources stand after the newest planned batch, as JSON values; None before the first one."""
    return _of_newest(path, "offsets")


def offsets_of_batch(path: str, batch_id: int) -> list[Any] | None:
    """Where the sources stand after a planned batch, as JSON values; None if it is not on record."""
    files = open_folder(path)
    content = files.read(f"offsets/{batch_id}")
    return None if content is None else list(map(_value, parsed_offsets(files, batch_id, content).values()))


def planned_watermark_ms(path: str) -> int | None:
    """The watermark of the newest planned batch (UTC epoch ms); None before the first one, or before any event time."""
    files = open_folder(path)
    newest = _newest(files, "offsets")
    if newest is None:
        return None
    metadata = (files.read(f"offsets/{newest}") or b"").split(b"\n")[1:2]
    found = parsed_json(metadata[0]) if metadata else None
    watermark_ms = found.get("batchWatermarkMs") if isinstance(found, dict) else None
    return watermark_ms or None if isinstance(watermark_ms, int) else None


def _of_newest(path: str, log: str) -> list[Any] | None:
    files = open_folder(path)
    newest = _newest(files, log)
    if newest is None:
        return None
    offsets = parsed_offsets(files, newest, files.read(f"offsets/{newest}") or b"")
    return [_value(text) for text in offsets.values()]


def batch_at(path: str, instant_ms: int) -> int | None:
    """The newest committed batch that had been planned by an instant (UTC epoch ms); None before the first one.

    Raises:
        CheckpointError: The record of batches does not go back so far, or is damaged.
    """
    files = open_folder(path)
    committed = sorted(int(name) for name in files.names("commits") if name.isdecimal())
    for batch in reversed(committed):
        content = files.read(f"offsets/{batch}")
        if content is not None and _planned_ms(files, batch, content) <= instant_ms:
            return batch
    if committed and committed[0] > 0:
        raise CheckpointError(
            "the checkpoint does not go back so far",
            field=files.name("commits"),
            value=f"batch {committed[0]} is the oldest on record",
            rule="spark.sql.streaming.minBatchesToRetain batches are kept",
        )
    return None


def _planned_ms(files: Folder, batch_id: int, content: bytes) -> int:
    """When a batch was planned: the second line of its record is JSON with the time."""
    metadata = parsed_json(content.split(b"\n")[1]) if b"\n" in content else None
    planned_ms = metadata.get("batchTimestampMs") if isinstance(metadata, dict) else None
    if not isinstance(planned_ms, int):
        raise _torn(files, batch_id, "it has no time")
    return planned_ms


def input_moved(path: str, batch_id: int, is_clock: Callable[[str], bool]) -> bool:
    """Whether a batch holds input: an offset of any source but the clock is another than in the batch before.

    Both formats of Spark 4.2 are read: ``v1``, a line for each source in order (``-``: no offset yet), and ``v2``,
    lines ``<source id>:<offset>`` (a source without an offset has none).

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
            "the plan of a batch is missing", field=files.name(f"offsets/{batch_id}"), hint=REPAIR
        )
    now = parsed_offsets(files, batch_id, content)
    earlier = files.read(f"offsets/{batch_id - 1}")
    before = parsed_offsets(files, batch_id - 1, earlier) if earlier is not None else {}
    return any(
        text is not None and not is_clock(text) and _value(text) != _value(before.get(source))
        for source, text in now.items()
    )


def require_sound_logs(files: Folder) -> None:
    """Checks the newest entries only: Spark reads those, and a crash of the machine can tear those."""
    planned, committed = _newest(files, "offsets"), _newest(files, "commits")
    if planned is None:
        if committed is not None or files.names("state"):
            raise CheckpointError(
                "the log of planned batches is gone", field=files.name("offsets"), hint=REPAIR
            )
        return
    identity = files.read("metadata")
    if identity is None or not has_id(identity):
        what = "the id of the query is missing" if identity is None else "the id of the query is damaged"
        raise CheckpointError(what, field=files.name("metadata"), hint=REPAIR)
    if committed is not None:
        _require_sound_commit(files, committed)
    _require_sound_offsets(files, planned)
    if (-1 if committed is None else committed) not in (planned, planned - 1):
        what = f"the newest planned batch is {planned} and the newest committed one is {committed}"
        raise CheckpointError(what, field=files.name(), rule="committed = planned, or one less", hint=REPAIR)
    if planned > 0 and files.read(f"offsets/{planned - 1}") is None:
        field = files.name(f"offsets/{planned - 1}")
        raise CheckpointError("the plan of a batch is missing", field=field, hint=REPAIR)


def has_id(metadata: bytes) -> bool:
    """Whether the content of ``metadata`` is the id of a query."""
    found = parsed_json(metadata)
    return isinstance(found, dict) and "id" in found


def clear_leftovers(path: str, files: Folder) -> None:
    """Deletes what a start left that was killed before it had planned its first batch.

    Spark begins batch 0 only where ``offsets`` and ``commits`` hold no file, not even a temporary one
    (STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY). It reads ``metadata`` in any case; without batches nothing depends on
    the id in it.
    """
    if _newest(files, "offsets") is not None:
        return
    left = [
        f"{log}/{name}" for log in ("offsets", "commits") for name in files.names(log) if name.startswith(".")
    ]
    metadata = files.read("metadata")
    if metadata is not None and not has_id(metadata):
        left += sorted({"metadata", ".metadata.crc"}.intersection(files.names()))
    folder = local_folder(path)
    if left and folder is None:  # without a lease: another process may be writing them
        what = "a start that was killed before its first batch has left files"
        hint = "see that no other process runs this checkpoint, and delete these files"
        raise CheckpointError(what, field=files.name(), value=left, hint=hint)
    for name in left:
        assert folder is not None, "refused above"
        (folder / name).unlink(missing_ok=True)


def parsed_commit(content: bytes) -> dict[str, Any] | None:
    """The commit of a batch; None if it is damaged."""
    head, _, body = content.partition(b"\n")
    found = parsed_json(body) if re.fullmatch(rb"v[0-9]+", head) else None
    return found if isinstance(found, dict) else None


def _require_sound_commit(files: Folder, batch_id: int) -> None:
    name = f"commits/{batch_id}"
    if parsed_commit(files.read(name) or b"") is None:
        raise CheckpointError("the commit of a batch is damaged", field=files.name(name), hint=REPAIR)


def _require_sound_offsets(files: Folder, batch_id: int) -> None:
    """Refuses the plan of a batch that cannot be read, or that lacks a source of the batch before.

    Raises:
        CheckpointError: Likewise.
    """
    now = parsed_offsets(files, batch_id, files.read(f"offsets/{batch_id}") or b"")
    if lacking := lacking_sources(files, batch_id, now):
        raise _torn(files, batch_id, lacking)


def lacking_sources(files: Folder, batch_id: int, now: Mapping[str, str | None]) -> str:
    """What a plan lacks of the plan before, as a clause; empty if it lacks nothing.

    Args:
        files: The checkpoint.
        batch_id: The batch.
        now: Its offsets.

    Raises:
        CheckpointError: The plan before is damaged.
    """
    earlier = files.read(f"offsets/{batch_id - 1}")
    before = parsed_offsets(files, batch_id - 1, earlier) if earlier is not None else {}
    missing = before.keys() - now.keys()
    return f"it lacks sources {sorted(missing)} of the batch before" if missing else ""


def parsed_offsets(files: Folder, batch_id: int, content: bytes) -> dict[str, str | None]:
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
    return CheckpointError(f"the plan of a batch is damaged, {why}", field=field, hint=REPAIR)


def _newest(files: Folder, log: str) -> int | None:
    return max((int(name) for name in files.names(log) if name.isdecimal()), default=None)


def _value(text: str | None) -> object:
    """Offsets are compared as JSON values: the order of keys in one (Kafka's partitions, say) is no movement."""
    return None if text is None else json.loads(text)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
