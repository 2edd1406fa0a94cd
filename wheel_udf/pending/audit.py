"""The record of acts: who changed which pending entries, when and how.

Each act is a file of the checkpoint that holds its record and its rows (:mod:`wheel_udf.checkpoint.act_files`)::

    selected entries --keep--> count, rows --create--> acts/7.json: record, rows --> the job
                         ^                    |
                         `--- number taken ---'  by another act, which may have changed what is pending

:func:`record_act` makes both at once, so an act is recorded if and only if it is done; :func:`audit` reads the records.
"""

from __future__ import annotations

import getpass
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from wheel_udf.checkpoint.act_files import (
    acts_made,
    acts_of,
    create_act,
    earlier_records,
    keep_records,
    remove_rows,
)
from wheel_udf.common.errors import ActError
from wheel_udf.common.records import typed_record
from wheel_udf.control.wall import wall_clock_ms

AUDIT_SCHEMA: Final = (
    "at timestamp, act string, by string, picked string, change string, rows long, batch long"
)
FORGOTTEN: Final = "(forgotten)"
"""Stands in a record for a text that had a forgotten id."""
MOST_TRIES: Final = 20

Rows = Mapping[str, str]
"""The rows of an act, as :func:`wheel_udf.checkpoint.act_files.create_act` takes them."""


@dataclass(frozen=True, slots=True)
class Act:
    """A record.

    Attributes:
        at_ms: When it was done (UTC epoch ms).
        act: Its verb, such as ``cancel`` or ``fire-now``; ``forget`` (:mod:`wheel_udf.transfer.forgetting`).
        by: The user who did it.
        picked: The selection.
        change: What was changed, such as ``to sms``; empty for a cancel.
        rows: Number of entries.
        batch: Number of the act on this checkpoint, from 0.
    """

    at_ms: int
    act: str
    by: str
    picked: str
    change: str
    rows: int
    batch: int


def arrived_by(batch: int) -> int:
    """The column ``arrived`` of the rows of an act in a slot store: below 0, unlike the batches of the intake."""
    return -1 - batch


def act_of(arrived: int) -> int | None:
    """The number of the act that a row is of; None if it is of the intake."""
    return -1 - arrived if arrived < 0 else None


def user_name() -> str:
    """The user of this process; its number if it has no name, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def record_act(
    checkpoint: str, keep: Callable[[], tuple[int, Rows]], *, act: str, picked: str, change: str
) -> int:
    """Records an act, which the job takes then.

    Args:
        checkpoint: Of the query that holds the state.
        keep: Selects pending entries, and returns their number and the rows of the act. Called again if another act
            comes between.
        act: As :attr:`Act.act`, like `picked` and `change`.
        picked: The selection.
        change: What is changed.

    Returns:
        The number of selected entries. With 0, nothing is recorded.

    Raises:
        ActError: Too many acts at the same time.
    """
    for _ in range(MOST_TRIES):
        number = acts_made(checkpoint)
        count, rows = keep()
        if not count:
            return 0
        record = Act(wall_clock_ms(), act, user_name(), picked, change, rows=count, batch=number)
        if create_act(checkpoint, number, asdict(record), rows):
            return count
        remove_rows(checkpoint, rows)
    raise ActError(
        f"gave up after {MOST_TRIES} conflicting acts",
        field=checkpoint,
        hint="nothing was changed: try again",
    )


def records_of(checkpoint: str) -> list[Act]:
    """The records of all acts of a checkpoint, in order.

    Raises:
        ActError: A record is of another release.
        CheckpointError: The file of an act is damaged.
    """
    records = [*earlier_records(checkpoint), *(record for record, _ in acts_of(checkpoint))]
    return [act_of_file(record) for record in records]


def audit(spark: SparkSession, checkpoint: str) -> DataFrame:
    """Returns all acts, one row each (:data:`AUDIT_SCHEMA`).

    Args:
        spark: A session.
        checkpoint: Of the query that holds the state (:attr:`wheel_udf.pending.entries.PendingWork.query`).

    Raises:
        ActError, CheckpointError: As :func:`records_of`.
    """
    rows = [
        (datetime.fromtimestamp(each.at_ms / 1_000, UTC), *astuple(each)[1:])
        for each in records_of(checkpoint)
    ]
    return spark.createDataFrame(rows, AUDIT_SCHEMA)


def records_without(checkpoint: str, ids: Sequence[str], ended: int) -> list[Act]:
    """The records of all acts without these ids, and a record that so many ids were forgotten.

    Args:
        checkpoint: As for :func:`records_of`, like the errors.
        ids: Values of ``schedule_id`` (of a purgatory: ``op_id``).
        ended: Number of pending entries that end with it.
    """
    acts = records_of(checkpoint)
    last = max((act.batch for act in acts), default=-1)
    name = "1 id" if len(ids) == 1 else f"{len(ids)} ids"
    forget = Act(wall_clock_ms(), "forget", user_name(), name, "", rows=ended, batch=last + 1)
    return [*(_redacted(act, ids) for act in acts), forget]


def _redacted(act: Act, ids: Sequence[str]) -> Act:
    picked, change = (FORGOTTEN if has_id(text, ids) else text for text in (act.picked, act.change))
    return replace(act, picked=picked, change=change)


def has_id(text: str, ids: Sequence[str]) -> bool:
    """Whether a text of a record contains one of the ids, as it is or as Python or SQL write it."""
    return any(form in text for each in ids for form in (each, repr(each)[1:-1], each.replace("'", "''")))


def act_of_file(noted: dict[str, Any]) -> Act:
    """The record in the file of an act.

    Raises:
        ActError: This release cannot read it.
    """
    record = typed_record(Act, noted)
    if record is None:
        raise ActError("the record of an act cannot be read", field="record", value=json.dumps(noted))
    return record


def take_over(checkpoint: str, records: Sequence[dict[str, Any]]) -> None:
    """Copies the records of another job to a new checkpoint, which has no acts yet. Their numbers come before those of
    the new one.

    Args:
        checkpoint: The new checkpoint.
        records: Those of :func:`records_of`, as dicts.
    """
    acts = [act_of_file(record) for record in records]
    last = max((act.batch for act in acts), default=-1)
    keep_records(checkpoint, [asdict(replace(act, batch=act.batch - last - 1)) for act in acts])
