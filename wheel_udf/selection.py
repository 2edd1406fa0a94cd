"""What is selected from the frame of an operator by ``kind``: what was released, outcomes, rejects, status; of a wheel and of a purgatory.

A frame may be the operator's own or one that was written and read again, so what it is of is seen by its columns.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from wheel_udf.by_shard import status_of
from wheel_udf.errors import ContractError
from wheel_udf.prepared import Prepared
from wheel_udf.state import OUTCOMES
from wheel_udf.watch_state import COUNTED

FIRED_COLUMNS = (
    "schedule_id", "seq", "fire_id", "destination", "key", "value", "headers", "deliver_at", "fired_at", "lateness_ms",
)  # fmt: skip
LEVEL_COLUMNS = ("scheduled_at", "level_error_ms")
"""With delay levels: when it was to be released, a timestamp, and how much later that is than ``deliver_at``, in ms."""
OUTCOME_COLUMNS = (
    "op_id", "group", "outcome", "by_key", "at", "decided_at", "present", "missing", "generation", "destination", "key", "value",
    "headers", "fire_id",
)  # fmt: skip
REJECT_COLUMNS = (
    "error_code", "error_message", "record", "source", "schedule_id", "seq", "destination", "key", "value", "headers",
    "deliver_at", "rejected_at",
)  # fmt: skip
WATCH_REJECT_COLUMNS = (
    *("error_code", "error_message", "record", "source", "op_id", "group"),
    *("destination", "key", "value", "headers", "rejected_at"),
)

_STATUS_TYPE = ", ".join(
    [
        "far long, levels map<string, long>, missed_now long, refused_now long, full map<string, double>, spread_now long",
        *(f"{name} long" for name in OUTCOMES),
    ]
)
_WATCH_STATUS_TYPE = ", ".join(
    ["resting long, ahead long, decided_now long", *(f"{name} long" for name in COUNTED)]
)


def fired(scheduled: DataFrame) -> DataFrame:
    """The released rows of a wheel, with the columns of a delivery (:data:`FIRED_COLUMNS`, with delay levels :data:`LEVEL_COLUMNS` too).

    Raises:
        ContractError: The frame is a purgatory's.
    """
    if is_of_purgatory(scheduled):
        raise ContractError("what a purgatory releases are outcomes", field="kind", hint="outcomes(frame)")
    return scheduled.where("kind = 'fired'").select(*FIRED_COLUMNS, *_level_columns(scheduled))


def outcomes(watched: DataFrame) -> DataFrame:
    """The outcomes of a purgatory (:data:`OUTCOME_COLUMNS`).

    Raises:
        ContractError: The frame is a wheel's.
    """
    if not is_of_purgatory(watched):
        raise ContractError("what a wheel releases are no outcomes", field="kind", hint="fired(frame)")
    return watched.where("kind = 'outcome'").select(*OUTCOME_COLUMNS)


def rejects(frame: DataFrame) -> DataFrame:
    """The rows that could not be used, and those that were missed, each with its reason (:data:`REJECT_COLUMNS`; of a purgatory
    :data:`WATCH_REJECT_COLUMNS`).
    """
    columns = WATCH_REJECT_COLUMNS if is_of_purgatory(frame) else REJECT_COLUMNS
    return frame.where("kind IN ('rejected', 'missed')").select(*columns)


def status(frame: DataFrame) -> DataFrame:
    """One row per touched shard and batch: clock, next due, pending, and all counts by outcome since the beginning."""
    return status_of(frame, _WATCH_STATUS_TYPE if is_of_purgatory(frame) else _STATUS_TYPE)


def is_of_purgatory(frame: DataFrame) -> bool:
    """Whether a frame is of ``watch`` and not of ``schedule``."""
    return "op_id" in frame.columns


def _level_columns(scheduled: DataFrame) -> tuple[str, ...]:
    return LEVEL_COLUMNS if LEVEL_COLUMNS[0] in scheduled.columns else ()


# --- as a batch is written -------------------------------------------------------------------------------------------


def leaving(frame: DataFrame) -> DataFrame:
    """What goes to destinations: the released rows, or the outcomes that have one; and their ``source``."""
    if is_of_purgatory(frame):
        return _OUTCOMES.select(frame.where("kind = 'outcome' AND destination IS NOT NULL"))
    rows = _LEVELED_ROWS if _level_columns(frame) else _FIRED_ROWS
    return rows.select(frame.where("kind = 'fired'"))


def refused(frame: DataFrame) -> DataFrame:
    """The rejects, all with :data:`REJECT_COLUMNS`; ``schedule_id`` of an operation is its id."""
    rows = _WATCH_REJECTS if is_of_purgatory(frame) else _REJECTS
    return rows.select(frame.where("kind IN ('rejected', 'missed')"))


_FIRED_ROWS = Prepared(lambda: [F.col(name) for name in (*FIRED_COLUMNS, "source")])
_LEVELED_ROWS = Prepared(lambda: [F.col(name) for name in (*FIRED_COLUMNS, *LEVEL_COLUMNS, "source")])
_OUTCOMES = Prepared(lambda: [F.col(name) for name in (*OUTCOME_COLUMNS, "source")])
_REJECTS = Prepared(lambda: [F.col(name) for name in REJECT_COLUMNS])
_WATCH_REJECTS = Prepared(
    lambda: [
        *(F.col(name) for name in ("error_code", "error_message", "record", "source")),
        F.col("op_id").alias("schedule_id"),
        F.lit(None).cast("long").alias("seq"),
        *(F.col(name) for name in ("destination", "key", "value", "headers")),
        F.lit(None).cast("timestamp").alias("deliver_at"),
        F.col("rejected_at"),
    ]
)
