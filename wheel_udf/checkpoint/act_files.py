"""Acts: one small file each in the folder ``acts`` of a checkpoint, numbered from 0 without a gap.

::

    acts/0.json    {"record": {"act": "cancel", "by": "ada", ...}, "rows": {"<shard>": "<rows as text>", ...}}
    acts/1.json    tiered mode: {"record": ..., "rows": {"folder": "rows-3f..."}}
    acts/rows-3f...      rows of an act, in Parquet
    acts/earlier.json    records of the checkpoint from which the content came

A file is created as a whole or not at all, so an act and its record are both there or neither. Two that act at the same
time want the same number: one of them gets it, the other looks again at what is pending. The job takes the acts in
order. How many it has taken is in the offset of its clock (:mod:`wheel_udf.control.source`); in the tiered mode it is
in the log of the slot store (:attr:`wheel_udf.store.head.Head.acts_taken`).

In the tiered mode an act can change millions of entries and carries their payload, so its rows are in a folder, which
is written before the file that names it. The folder of an act is removed when the job takes the next act. A process
that is killed before it has created the file leaves a folder that nobody reads.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from wheel_udf.checkpoint.spark_logs import counted_in_offsets
from wheel_udf.common.errors import CheckpointError
from wheel_udf.spark.files import json_bytes, open_folder, parsed_json
from wheel_udf.spark.folder import Folder

_FOLDER: Final = "acts"
_EARLIER: Final = f"{_FOLDER}/earlier.json"
_ROWS_IN: Final = "folder"


def acts_taken(path: str, *, planned: bool = False) -> int:
    """The number of acts that a query's last committed (or last planned) batch and those before it have taken."""
    return counted_in_offsets(path, "acts", planned=planned)


def acts_made(path: str) -> int:
    """The number of acts."""
    numbers = {
        int(stem)
        for name in open_folder(path).names(_FOLDER)
        if (stem := name.removesuffix(".json")) != name and stem.isdecimal()
    }
    return len(numbers)


def create_act(path: str, number: int, record: Mapping[str, Any], rows: Mapping[str, str]) -> bool:
    """Records an act together with its rows, by shard (or of :func:`new_rows`). Returns False, and changes nothing, if
    the number is taken.
    """
    content = json_bytes({"record": dict(record), "rows": dict(rows)})
    return open_folder(path).create(f"{_FOLDER}/{number}.json", content)


def read_act(files: Folder, number: int) -> tuple[dict[str, Any], dict[str, str]] | None:
    """The record of an act and its rows by shard; None if there is no such act.

    Raises:
        CheckpointError: It is damaged.
    """
    name = f"{_FOLDER}/{number}.json"
    content = files.read(name)
    if content is None:
        return None
    found = parsed_json(content)
    if (
        not isinstance(found, dict)
        or not all(isinstance(found.get(part), dict) for part in ("record", "rows"))
        or not all(isinstance(text, str) for text in found["rows"].values())
    ):
        raise CheckpointError(
            "the file of an act is damaged",
            field=files.name(name),
            hint="restore it from a copy; without it, what it changed cannot be known",
        )
    return found["record"], found["rows"]


def acts_of(path: str, first: int = 0) -> list[tuple[dict[str, Any], dict[str, str]]]:
    """The acts from a number on: the record of each, and its rows by shard.

    Raises:
        CheckpointError: One of them is damaged.
    """
    files = open_folder(path)
    found: list[tuple[dict[str, Any], dict[str, str]]] = []
    while (act := read_act(files, first + len(found))) is not None:
        found.append(act)
    return found


def new_rows() -> dict[str, str]:
    """Names a folder for the rows of a new act: the value for ``rows``."""
    return {_ROWS_IN: f"rows-{uuid.uuid4().hex}"}


def rows_place(path: str, rows: Mapping[str, str]) -> str:
    """The place of the folder that the rows of an act are in."""
    return f"{path}/{_FOLDER}/{rows[_ROWS_IN]}"


def remove_rows(path: str, rows: Mapping[str, str]) -> None:
    """Removes the folder that the rows of an act are in; does nothing if it has none."""
    if _ROWS_IN in rows:
        open_folder(path).remove(f"{_FOLDER}/{rows[_ROWS_IN]}")


def earlier_records(path: str) -> list[dict[str, Any]]:
    """The records of the acts of the checkpoint from which the content came.

    Raises:
        CheckpointError: The file is damaged.
    """
    files = open_folder(path)
    content = files.read(_EARLIER)
    earlier = [] if content is None else parsed_json(content)
    if not isinstance(earlier, list):
        raise CheckpointError("the record of earlier acts is damaged", field=files.name(_EARLIER))
    return earlier


def keep_records(path: str, records: Sequence[Mapping[str, Any]]) -> None:
    """Keeps the records of acts of another checkpoint."""
    if records:
        open_folder(path).create(_EARLIER, json_bytes([dict(record) for record in records]))


def require_acts(path: str) -> None:
    """Refuses a checkpoint whose planned batch has taken an act that is not there.

    Raises:
        CheckpointError: It is missing, or damaged.
    """
    files = open_folder(path)
    for number in range(acts_taken(path), acts_taken(path, planned=True)):
        if read_act(files, number) is None:
            raise CheckpointError(
                "the file of an act is missing, and the planned batch has taken it",
                field=files.name(f"{_FOLDER}/{number}.json"),
                hint="restore it from a copy",
            )
