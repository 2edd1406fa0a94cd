"""Marks of moves in a checkpoint: what was exported may not start again, and what is being imported may not start yet.

::

    wheel-exported.json   the content has left to this export     written last by an export, in the old checkpoint
    wheel-import.json     an import is under way, or done         written first by an import, and again as its last step

A checkpoint that is written anew in its own place (:func:`empty_for_import`) has the first mark until it is empty, and
the second one from then on.

A start, a dry run and a second import look at both (:mod:`wheel_udf.checkpoint.identity`). Without the first mark, a
job that is started by habit would deliver a second time what its successor delivers; without the second, a killed
import would begin with a part of the entries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from wheel_udf.checkpoint.lease import LEASE_FILE
from wheel_udf.common.errors import CheckpointError
from wheel_udf.common.records import typed_record
from wheel_udf.spark.files import json_bytes, open_folder, parsed_json
from wheel_udf.spark.folder import Folder

EXPORTED: Final = "wheel-exported.json"
IMPORTED: Final = "wheel-import.json"
FORGETTING: Final = "-forgetting"
"""The end of the name of the export from which a checkpoint is written anew in its own place."""


@dataclass(frozen=True)
class Mark:
    """A mark.

    Attributes:
        export_id: The export.
        place: Where it is.
        done: Of an import, whether it is complete.
    """

    export_id: str
    place: str
    done: bool = True


def mark_exported(path: str, export_id: str, place: str) -> None:
    """Marks a checkpoint as moved: no start until somebody deletes the mark."""
    open_folder(path).replace(EXPORTED, json_bytes(asdict(Mark(export_id, place))))


def empty_for_import(
    path: str, export_id: str, place: str, require_leases: Callable[[], None] = lambda: None
) -> None:
    """Empties an exported checkpoint, so that the export can be imported into the same place. A start is refused all
    the time.

    Call it while holding the lease. One that was killed is done again.

    Args:
        path: The checkpoint.
        export_id: The export, which is complete.
        place: Where it is.
        require_leases: Raises a LeaseError if the lease is lost; called before each change.
    """
    require_leases()
    mark_exported(path, export_id, place)
    mark_import(path, export_id, place, done=False)
    files = open_folder(path)
    for name in files.names():
        if not any(kept in name for kept in (LEASE_FILE, EXPORTED, IMPORTED)):
            require_leases()
            files.remove(name)
    files.remove(EXPORTED)


def is_emptied(path: str, export_id: str) -> bool:
    """Whether :func:`empty_for_import` has finished."""
    coming = import_mark(path)
    return coming is not None and coming.export_id == export_id and export_mark(path) is None


def mark_import(path: str, export_id: str, place: str, *, done: bool) -> None:
    """Marks a checkpoint as being imported, or as imported."""
    open_folder(path).replace(IMPORTED, json_bytes(asdict(Mark(export_id, place, done))))


def export_mark(path: str) -> Mark | None:
    """The mark of an export; None if there is none.

    Raises:
        CheckpointError: It is damaged.
    """
    return _mark(open_folder(path), EXPORTED)


def import_mark(path: str) -> Mark | None:
    """The mark of an import; None if there is none.

    Raises:
        CheckpointError: It is damaged.
    """
    return _mark(open_folder(path), IMPORTED)


def require_startable(files: Folder, importing: str | None = None) -> None:
    """Refuses a checkpoint whose content has left, and one whose content has not wholly come.

    Args:
        files: Its folder.
        importing: The export that is being imported; its own mark refuses nothing.

    Raises:
        CheckpointError: It is one of them.
    """
    left, coming = _mark(files, EXPORTED), _mark(files, IMPORTED)
    is_coming = coming is not None and not coming.done and coming.export_id != importing
    mark = coming if is_coming else left
    if mark is None:
        return
    if mark.place.endswith(FORGETTING):
        raise CheckpointError(
            "ids are being forgotten: the checkpoint is written anew, and that has not finished",
            field=files.name(),
            hint="run the same wheel-udf forget again, which goes on where it stopped",
        )
    if is_coming:
        raise CheckpointError(
            f"the import of {mark.place} has not finished",
            field=files.name(IMPORTED),
            hint="run the same import again, which goes on where it stopped; "
            "or delete the checkpoint folder (and the store) and begin anew",
        )
    raise CheckpointError(
        f"the content of this checkpoint was exported to {mark.place}",
        field=files.name(EXPORTED),
        hint="run the job that has imported it; if none has, or ever will, delete this file to go on here",
    )


def _mark(files: Folder, name: str) -> Mark | None:
    content = files.read(name)
    if content is None:
        return None
    mark = typed_record(Mark, parsed_json(content))
    if mark is None:
        raise CheckpointError(
            "the mark of a move is damaged",
            field=files.name(name),
            hint="of an unfinished import: delete the checkpoint folder; else restore the file from a copy",
        )
    return mark
