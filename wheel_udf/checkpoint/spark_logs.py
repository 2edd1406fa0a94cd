"""Spark's logs in a checkpoint: planned and committed batches, offsets of sources, whether the logs are sound.

Spark writes ``offsets/N`` (batch N is planned), runs the batch, and writes ``commits/N`` (batch N is committed)::

    offsets   0 1 2 3 4 5        batch 5 is planned and not committed: it replays, with the same rows
    commits   0 1 2 3 4

So at most the newest batch is planned and not committed. Spark reads the newest entries at a start; a crash of the
machine can damage those. An error names the damaged file and how to repair it.

A source of files notes in ``sources/N/...`` which files belong to which of its offsets (N: its position in the query);
without this log its offset means nothing, and all files would be read again. Kafka and Delta note nothing that a later
start needs: their offsets are enough.

Caveat: the format of these files is not documented by Spark; see ``spark/private_api.toml``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from wheel_udf.common.errors import REPAIR, CheckpointError
from wheel_udf.spark.files import open_folder, parsed_json
from wheel_udf.spark.folder import Folder

RESTORE: Final = (
    "restore the folder from a copy; a new checkpoint folder reads the input again and delivers it again"
)


@dataclass(frozen=True)
class Plan:
    """A planned batch.

    Attributes:
        planned_ms: When it was planned, UTC epoch ms.
        watermark_ms: Its watermark, UTC epoch ms; 0 without one.
        offsets: Where the sources stand after it, as JSON values by source; None where a source has no offset yet.
    """

    planned_ms: int
    watermark_ms: int
    offsets: dict[str, Any]


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


def state_format(path: str) -> int | None:
    """The format of the files of the state, which is that of the log of commits too: 2 if they have the names of the
    tasks that wrote them, else 1; None before the first committed batch.
    """
    batch_id = last_committed(path)
    if batch_id is None:
        return None
    head = (open_folder(path).read(f"commits/{batch_id}") or b"").partition(b"\n")[0]
    return 2 if head == b"v2" else 1


def committed_offsets(path: str) -> list[Any] | None:
    """Where the sources stood after the newest committed batch, as JSON values; None before the first one."""
    return _offsets_after(path, last_committed(path))


def read_to(path: str) -> tuple[int, int | None]:
    """The version of the slot store that the last committed batch of a wheel has read, and its clock (UTC epoch ms);
    before the first -1 and None.
    """
    offsets = committed_offsets(path)
    if offsets is None:
        return -1, None
    table = next(offset for offset in offsets if isinstance(offset, dict) and "reservoirVersion" in offset)
    # Delta's offset is either the next version with a negative index, or the version being read with the number of
    # files read.
    version = int(table["reservoirVersion"]) - (int(table["index"]) < 0)
    instants = (offset.get("instant_ms") for offset in offsets if isinstance(offset, dict))
    return version, max((at for at in instants if at is not None), default=None)


def planned_offsets(path: str) -> list[Any] | None:
    """Where the sources stand after the newest planned batch, as JSON values; None before the first one."""
    return _offsets_after(path, last_planned(path))


def _offsets_after(path: str, batch_id: int | None) -> list[Any] | None:
    offsets = None if batch_id is None else offsets_of_batch(path, batch_id)
    if batch_id is not None and offsets is None:
        raise _no_plan(open_folder(path), batch_id)
    return offsets


def counted_in_offsets(path: str, member: str, *, planned: bool = False) -> int:
    """A number in the offsets of a query's last committed (or last planned) batch; 0 before there is one."""
    offsets = (planned_offsets if planned else committed_offsets)(path) or []
    return max((int(each.get(member, 0)) for each in offsets if isinstance(each, dict)), default=0)


def query_id(path: str) -> str | None:
    """The id of a query; None before its first start."""
    metadata = parsed_json(open_folder(path).read("metadata") or b"")
    return metadata.get("id") if isinstance(metadata, dict) else None


def offsets_of_batch(path: str, batch_id: int) -> list[Any] | None:
    """Where the sources stand after a planned batch, as JSON values; None if it is not on record."""
    plan = plan_of(open_folder(path), batch_id)
    return None if plan is None else list(plan.offsets.values())


def planned_watermark_ms(path: str) -> int | None:
    """The watermark of the newest planned batch (UTC epoch ms); None before the first one, or before any event time."""
    files = open_folder(path)
    newest = _newest(files, "offsets")
    plan = None if newest is None else plan_of(files, newest)
    return plan.watermark_ms or None if plan else None


def batch_at(path: str, instant_ms: int) -> int | None:
    """The newest committed batch that had been planned by an instant (UTC epoch ms); None before the first one.

    Raises:
        CheckpointError: The record of batches does not go back so far, or is damaged.
    """
    files = open_folder(path)
    committed = sorted(int(name) for name in files.names("commits") if name.isdecimal())
    for batch in reversed(committed):
        plan = plan_of(files, batch)
        if plan is not None and plan.planned_ms <= instant_ms:
            return batch
    if committed and committed[0] > 0:
        raise CheckpointError(
            "the checkpoint does not go back so far",
            field=files.name("commits"),
            value=f"batch {committed[0]} is the oldest on record",
            rule="spark.sql.streaming.minBatchesToRetain batches are kept",
        )
    return None


def input_moved(path: str, batch_id: int, is_clock: Callable[[Any], bool]) -> bool:
    """Whether a batch holds input: an offset of any source but the clock is another than in the batch before.

    Args:
        path: The checkpoint folder.
        batch_id: A planned batch. Compared with no offset at all if the batch before is not on record.
        is_clock: Tells an offset of the clock source.

    Raises:
        CheckpointError: That batch is not on record, or its record is damaged.
    """
    files = open_folder(path)
    now, before = plan_of(files, batch_id), plan_of(files, batch_id - 1)
    if now is None:
        raise _no_plan(files, batch_id)
    # As JSON values: the order of keys in one (Kafka's partitions, say) is no movement.
    return any(
        offset is not None
        and not is_clock(offset)
        and (before is None or offset != before.offsets.get(source))
        for source, offset in now.offsets.items()
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
    if committed is not None and parsed_commit(files.read(f"commits/{committed}") or b"") is None:
        raise CheckpointError(
            "the commit of a batch is damaged", field=files.name(f"commits/{committed}"), hint=REPAIR
        )
    plan = parsed_plan(files, planned, files.read(f"offsets/{planned}") or b"")
    if lacking := lacking_sources(files, planned, plan):
        raise _torn(files, planned, lacking)
    if (-1 if committed is None else committed) not in (planned, planned - 1):
        what = f"the newest planned batch is {planned} and the newest committed one is {committed}"
        raise CheckpointError(what, field=files.name(), rule="committed = planned, or one less", hint=REPAIR)
    if planned > 0 and files.read(f"offsets/{planned - 1}") is None:
        raise _no_plan(files, planned - 1)


def has_id(metadata: bytes) -> bool:
    """Whether the content of ``metadata`` is the id of a query."""
    found = parsed_json(metadata)
    return isinstance(found, dict) and "id" in found


def clear_leftovers(files: Folder) -> None:
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
    for name in left:
        files.remove(name)


def parsed_commit(content: bytes) -> dict[str, Any] | None:
    """The commit of a batch; None if it is damaged."""
    head, _, body = content.partition(b"\n")
    found = parsed_json(body) if re.fullmatch(rb"v[0-9]+", head) else None
    return found if isinstance(found, dict) else None


def lacking_sources(files: Folder, batch_id: int, plan: Plan) -> str:
    """What a plan lacks of the plan before, as a clause; empty if it lacks nothing.

    Raises:
        CheckpointError: The plan before is damaged.
    """
    before = plan_of(files, batch_id - 1)
    missing = before.offsets.keys() - plan.offsets.keys() if before else ()
    return f"it lacks sources {sorted(missing)} of the batch before" if missing else ""


def plan_of(files: Folder, batch_id: int) -> Plan | None:
    """A planned batch; None if it is not on record. Raises as :func:`parsed_plan`."""
    content = files.read(f"offsets/{batch_id}")
    return None if content is None else parsed_plan(files, batch_id, content)


def parsed_plan(files: Folder, batch_id: int, content: bytes) -> Plan:
    """A planned batch from the content of its file.

    Both formats of Spark are read: ``v1``, a line for each source in order (``-``: no offset yet), and ``v2``, lines
    ``<source id>:<offset>`` (a source without an offset has none).

    Raises:
        CheckpointError: It is damaged.
    """
    try:
        version, metadata, *lines = content.decode().split("\n")
    except ValueError:
        raise _torn(files, batch_id, "it is empty or cut off") from None
    if version == "v1":
        texts = {str(position): "null" if line == "-" else line for position, line in enumerate(lines)}
    elif version == "v2":
        texts = {source: text for source, _, text in (line.partition(":") for line in lines)}
    else:
        raise _torn(files, batch_id, f"its format is {version!r}, known are 'v1' and 'v2'")
    try:
        described, offsets = json.loads(metadata), {each: json.loads(text) for each, text in texts.items()}
        planned_ms, watermark_ms = (described.get(f"batch{name}Ms", 0) for name in ("Timestamp", "Watermark"))
    except (ValueError, AttributeError, RecursionError):  # also brackets a thousand deep
        raise _torn(files, batch_id, "it is cut off") from None
    if not offsets or not type(planned_ms) is type(watermark_ms) is int:
        raise _torn(files, batch_id, "it is cut off")
    return Plan(planned_ms, watermark_ms, offsets)


def _torn(files: Folder, batch_id: int, why: str) -> CheckpointError:
    field = files.name(f"offsets/{batch_id}")
    return CheckpointError(f"the plan of a batch is damaged, {why}", field=field, hint=REPAIR)


def _no_plan(files: Folder, batch_id: int) -> CheckpointError:
    field = files.name(f"offsets/{batch_id}")
    return CheckpointError("the plan of a batch is missing", field=field, hint=REPAIR)


def _newest(files: Folder, log: str) -> int | None:
    return max((int(name) for name in files.names(log) if name.isdecimal()), default=None)


def source_log(path: str, number: int) -> Iterator[tuple[str, bytes]]:
    """Yields the files in the log of a source: name and content.

    Args:
        path: The checkpoint folder.
        number: Position of the source in the query, from 0.
    """
    folder = open_folder(f"{path}/sources/{number}")
    for name in sorted(folder.names()):
        content = None if name.startswith(".") else folder.read(name)
        if content is not None:
            yield name, content


def write_source_log(path: str, number: int, log: Mapping[str, bytes]) -> None:
    """Writes the log of a source, as :func:`source_log` gives it, into a checkpoint that has no batches yet."""
    folder = open_folder(f"{path}/sources/{number}")
    for name, content in log.items():
        folder.replace(name, content)
