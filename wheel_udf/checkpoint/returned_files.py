"""Entries that come back: one small file for each batch that could not deliver some, in the folder ``returned`` of a
checkpoint, numbered from 0 without a gap.

::

    returned/0.json    {"batch": 17, "rows": {"<shard>": "<rows as text>", ...}}

How many the shards have taken is in the offset of the clock (:mod:`wheel_udf.control.contributors`). A batch writes its
file before it is committed. A repetition of the batch writes it anew, because other rows may have failed, or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from wheel_udf.checkpoint.spark_logs import counted_in_offsets, last_committed
from wheel_udf.common.errors import CheckpointError
from wheel_udf.spark.files import json_bytes, open_folder, parsed_json
from wheel_udf.spark.folder import Folder

_FOLDER: Final = "returned"


@dataclass(frozen=True)
class Returned:
    """What a batch could not deliver: the batch, and the rows as text by shard."""

    batch: int
    rows: Mapping[str, str]


def returned_taken(path: str, *, planned: bool = False) -> int:
    """The number of files that a query's last committed (or last planned) batch and those before it have taken."""
    return counted_in_offsets(path, "returned", planned=planned)


def _numbers(files: Folder) -> list[int]:
    names = files.names(_FOLDER)
    return sorted(int(name.removesuffix(".json")) for name in names if name.endswith(".json"))


def returned_waiting(path: str) -> int:
    """The number of files that no committed batch of a query has taken."""
    numbers = _numbers(open_folder(path))
    if not numbers:
        return 0
    taken = returned_taken(path)
    return sum(number >= taken for number in numbers)


def returned_after(files: Folder, batch: int) -> Iterator[str]:
    """The files of a checkpoint's folder with what batches after one could not deliver."""
    for number in _numbers(files):
        name = f"{_FOLDER}/{number}.json"
        found = parsed_json(files.read(name) or b"")
        if isinstance(found, dict) and isinstance(found.get("batch"), int) and found["batch"] > batch:
            yield name


class ReturnedFiles:
    """The files of one checkpoint.

    Args:
        path: The checkpoint folder.

    Attributes:
        taken: The number of the first file that no committed batch has taken.
        next: The number of the next file.
        repeated: The file of a batch that is not committed and will be repeated, as number `next`; None if there is
            none.
    """

    def __init__(self, path: str) -> None:
        self._path, self._files = path, open_folder(path)
        self.taken = self.next = 0
        self.repeated: Returned | None = None

    def look(self) -> dict[int, Returned]:
        """Looks at the folder; returns the files that no committed batch has taken, by number, and removes the others.

        Raises:
            CheckpointError: A planned batch has taken a file that is not there, or one is damaged.
        """
        numbers, planned = _numbers(self._files), returned_taken(self._path, planned=True)
        self.taken = self.next = returned_taken(self._path)
        found: dict[int, Returned] = {}
        if not numbers and self.taken == planned:
            return found
        committed = last_committed(self._path)
        while (each := self._read(self.next)) is not None:
            if committed is None or each.batch > committed:
                self.repeated = each
                break
            found[self.next] = each
            self.next += 1
        if self.next < planned:
            raise CheckpointError(
                "what a batch could not deliver is missing, and the planned batch has taken it",
                field=self._files.name(f"{_FOLDER}/{self.next}.json"),
                hint="restore it from a copy",
            )
        self._files.remove_files(_FOLDER, [f"{number}.json" for number in numbers if number < self.taken])
        return found

    def waiting(self) -> dict[int, Returned]:
        """The files from `taken` up to `next`, by number."""
        found = {number: self._read(number) for number in range(self.taken, self.next)}
        return {number: each for number, each in found.items() if each is not None}

    def keep(self, returned: Returned) -> int:
        """Writes the next file; returns its number."""
        content = json_bytes({"batch": returned.batch, "rows": dict(returned.rows)})
        self._files.replace(f"{_FOLDER}/{self.next}.json", content)
        self.repeated = None
        self.next += 1
        return self.next - 1

    def drop_repeated(self) -> None:
        """Removes the file of a batch whose repetition has delivered all."""
        if self.repeated is not None:
            self._files.remove(f"{_FOLDER}/{self.next}.json")
            self.repeated = None

    def forget(self) -> range:
        """Removes the files that committed batches have taken; returns their numbers."""
        gone = range(self.taken, max(self.taken, returned_taken(self._path)))
        self._files.remove_files(_FOLDER, [f"{number}.json" for number in gone])
        self.taken = gone.stop
        return gone

    def _read(self, number: int) -> Returned | None:
        name = f"{_FOLDER}/{number}.json"
        content = self._files.read(name)
        if content is None:
            return None
        found = parsed_json(content)
        if (
            not isinstance(found, dict)
            or type(found.get("batch")) is not int
            or not isinstance(found.get("rows"), dict)
        ):
            raise CheckpointError(
                "the file of what was not delivered is damaged", field=self._files.name(name)
            )
        return Returned(found["batch"], found["rows"])
