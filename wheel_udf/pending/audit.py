"""The record of acts: who changed which pending entries, when and how.

Of the direct mode and a purgatory, each act is a file of the checkpoint that holds its record
(:mod:`wheel_udf.pending.acts_on_state`). The rest of this page is about the slot store.

The commit that adds an act's rows holds the record too, as the commit's ``userMetadata``. So either both are there or
neither, and a failure after the commit (no user name, no disk) leaves no act without a record. A commit's metadata
lasts as long as the table's log, so each act also copies the records that are not copied yet to a table::

    act --one commit--> slot store: rows + record        kept for delta.logRetentionDuration (default 30 days)
                             |
                             '--copy--> _acts in the store's folder, kept for good

    audit() = _acts + records that are not copied yet

A copy that fails is logged, and the next act makes it. The table's transaction ``acts`` is the number of the last act
that it has. A record that is there twice is returned once by :func:`audit`.
"""

from __future__ import annotations

import getpass
import json
import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession, functions as F

from wheel_udf.checkpoint.act_files import acts_of, earlier_records, keep_records
from wheel_udf.common.errors import ActError
from wheel_udf.common.records import typed_record
from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.spark.failures import first_line
from wheel_udf.spark.files import parsed_json
from wheel_udf.spark.jvm import SPARK_ERRORS
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.tables import delta_log as tables
from wheel_udf.tables.delta_transaction import append_once

AUDIT_SCHEMA: Final = (
    "at timestamp, act string, by string, picked string, change string, rows long, batch long"
)
_NAMES: Final = ("act", "by", "picked", "change", "rows", "batch")
FORGOTTEN: Final = "(forgotten)"
"""Stands in a record for a text that had a forgotten id."""
_KEY: Final = "wheel_udf.act"
_MARK: Final = "acts"
"""Transactions of the table of records: the number of the last act that was copied, and all before it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Act:
    """A record.

    Attributes:
        at_ms: When it was done (UTC epoch ms).
        act: ``cancel``, ``move`` or ``reroute``; ``forget`` (:mod:`wheel_udf.transfer.forgetting`).
        by: The user who did it.
        picked: The selection.
        change: What was changed, such as ``to sms``; empty for a cancel.
        rows: Number of entries.
        batch: Number of the act on this store, from 0.
    """

    at_ms: int
    act: str
    by: str
    picked: str
    change: str
    rows: int
    batch: int

    def text(self) -> str:
        """The record as the metadata of a commit."""
        return json.dumps({_KEY: asdict(self)})

    @classmethod
    def of_text(cls, text: str | None) -> Act | None:
        """The record in a commit's metadata; None if it holds none.

        Raises:
            ActError: It holds one that this release cannot read.
        """
        noted = parsed_json((text or "").encode(errors="replace"))
        if not isinstance(noted, dict) or _KEY not in noted:
            return None
        record = typed_record(cls, noted[_KEY])
        if record is None:
            raise ActError("the record of an act cannot be read", field="userMetadata", value=text)
        return record


def arrived_by(batch: int) -> int:
    """The column ``arrived`` of the rows of an act: below 0, unlike the batches of the intake."""
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


def audit(spark: SparkSession, place: SlotStore | str) -> DataFrame:
    """Returns all acts, one row each (:data:`AUDIT_SCHEMA`).

    Args:
        spark: A session.
        place: The slot store; of the direct mode or a purgatory the checkpoint.

    Raises:
        ActError: The table of records, or one in the history of the store, cannot be read.
        CheckpointError: The file of an act is damaged.
    """
    if isinstance(place, str):
        records = [*earlier_records(place), *(record for record, _ in acts_of(place))]
        return _frame(spark, map(act_of_file, records))
    store = place
    copied, batches = _copied(spark, store)
    last = max(store.last_acts(), default=None)
    if last is not None and last not in batches:
        copied = copied.unionByName(_frame(spark, _in_log(spark, store)))
    return copied.dropDuplicates(["batch"])


def records_without(spark: SparkSession, place: SlotStore | str, ids: Sequence[str], ended: int) -> DataFrame:
    """Returns all acts (:data:`AUDIT_SCHEMA`) without these ids, and a record that so many ids were forgotten.

    Args:
        spark: A session.
        place: As for :func:`audit`, like the errors.
        ids: Values of ``schedule_id`` (of a purgatory: ``op_id``).
        ended: Number of pending entries that end with it.
    """
    columns = F.unix_millis("at").alias("at_ms"), *(F.col(name) for name in _NAMES)
    acts = [Act(**row.asDict()) for row in audit(spark, place).select(*columns).collect()]
    last = max((act.batch for act in acts), default=-1)
    name = "1 id" if len(ids) == 1 else f"{len(ids)} ids"
    forget = Act(wall_clock_ms(), "forget", user_name(), name, "", rows=ended, batch=last + 1)
    return _frame(spark, [*(_redacted(act, ids) for act in acts), forget])


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


def copy_records(spark: SparkSession, store: SlotStore, newest: Act) -> None:
    """Copies the records that are not in the table yet. The act is done, so a failure is logged and raises nothing.

    Args:
        spark: A session.
        store: The store.
        newest: The record of the act just committed.
    """
    try:
        missing = [newest]
        if newest.batch != _last_copied(spark, store) + 1:
            _, there = _copied(spark, store)
            missing = [act for act in _in_log(spark, store) if act.batch not in there]
        _append(spark, store, missing, newest.batch)
    except Exception as error:  # noqa: BLE001  # whatever it is, the act is done
        why = first_line(str(error))
        _log.warning(
            "the act is done, but its record is in the history of %s alone; the next act copies it to %s (%s)",
            store.path, _place(store), why,
        )  # fmt: skip


def take_over(place: SlotStore | str, acts: DataFrame) -> None:
    """Copies the records of another job to a new one, which has no acts yet. Their numbers come before those of the new
    one.

    Args:
        place: The new store; of the direct mode or a purgatory the new checkpoint.
        acts: The table of :func:`audit`.
    """
    last = acts.agg(F.max("batch")).collect()[0][0]
    if last is None:
        return
    earlier = acts.withColumn("batch", F.col("batch") - F.lit(last + 1))
    if not isinstance(place, str):
        earlier.coalesce(1).write.format("delta").mode("overwrite").save(_place(place))
        return
    named = earlier.select(F.unix_millis("at").alias("at_ms"), *(F.col(name) for name in _NAMES)).orderBy(
        "batch"
    )
    keep_records(place, [row.asDict() for row in named.collect()])


def _place(store: SlotStore) -> str:
    return f"{store.path}/_acts"


def _copied(spark: SparkSession, store: SlotStore) -> tuple[DataFrame, set[int]]:
    """The table of records, and the numbers of the acts that it has."""
    place = _place(store)
    if not tables.has_log(spark, place):
        return _frame(spark, []), set()
    try:
        records = spark.read.format("delta").load(place)
        return records, {row.batch for row in records.select("batch").collect()}
    except SPARK_ERRORS as fault:
        raise ActError(
            f"the record of acts cannot be read ({first_line(str(fault))})",
            field=place,
            hint="acts go on being recorded in the store's history: restore the table, or move it away",
        ) from None


def _last_copied(spark: SparkSession, store: SlotStore) -> int:
    """The number of the last act in the table, by its log alone; -1 if the log does not say."""
    place = _place(store)
    marks = tables.snapshot(spark, place).transactions() if tables.has_log(spark, place) else {}
    return marks.get(_MARK, -1)


def _append(spark: SparkSession, store: SlotStore, acts: list[Act], last: int) -> None:
    """Adds records to the table, which then has all up to the last; does nothing if another copy was first."""
    place, rows = _place(store), _frame(spark, acts).coalesce(1)
    if tables.has_log(spark, place):
        append_once(rows, place, rows.schema, (), app_id=_MARK, batch_id=last)
    else:
        mark = {"txnAppId": _MARK, "txnVersion": str(last)}
        rows.write.format("delta").mode("append").options(**mark).save(place)


def _in_log(spark: SparkSession, store: SlotStore) -> list[Act]:
    """The records in the commits that the table's log still has."""
    history = DeltaTable.forPath(spark, store.path).history().select("userMetadata")
    noted = history.where(F.col("userMetadata").contains(_KEY)).collect()
    return [act for row in noted if (act := Act.of_text(row.userMetadata)) is not None]


def _frame(spark: SparkSession, acts: Iterable[Act]) -> DataFrame:
    rows = [
        (datetime.fromtimestamp(act.at_ms / 1_000, UTC), act.act, act.by, act.picked, act.change, act.rows, act.batch)
        for act in acts
    ]  # fmt: skip
    return spark.createDataFrame(rows, AUDIT_SCHEMA)
