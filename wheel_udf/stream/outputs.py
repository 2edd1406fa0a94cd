"""Selects from the frame of an operator by ``kind``: firings, outcomes, rejects, status rows.

::

    frame of schedule()   fired | missed | rejected | status        fired(), rejects(), status()
    frame of watch()      outcome | rejected | status               outcomes(), rejects(), status()

    in a batch that is written: leaving() for the destinations, refused() for the rejects
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame, functions as F

from wheel_udf.common.errors import ContractError
from wheel_udf.common.package_data import toml_of
from wheel_udf.stream.frame_facts import FrameFacts, facts_of
from wheel_udf.stream.status_row import WatchStatus, WheelStatus

SHAPES: Final[Mapping[str, Any]] = toml_of(__name__, "shapes.toml")
"""The rows that leave, by kind."""

FIRED_COLUMNS, LEVEL_COLUMNS, SERIES_COLUMNS, TRIED_COLUMNS, DEAD_COLUMNS, OUTCOME_COLUMNS, REJECT_COLUMNS = (
    tuple(SHAPES[kind]["columns"])
    for kind in ("fired", "leveled", "repeated", "tried", "dead", "outcome", "reject")
)
RETURNING: Final = "returning"
"""Column of firings with retries: what else an entry has to come back with (a struct)."""

WATCH_REJECT_COLUMNS = (
    *("error_code", "error_message", "record", "source", "op_id", "group"),
    *("destination", "key", "value", "headers", "rejected_at"),
)


def columns_of(kind: str) -> str:
    """The columns of a kind of row, as DDL."""
    return ", ".join(f"{name} {of_type}" for name, of_type in SHAPES[kind]["columns"].items())


def fired(scheduled: DataFrame) -> DataFrame:
    """The firings of a wheel (:data:`FIRED_COLUMNS`, with delay levels also :data:`LEVEL_COLUMNS`, and
    if commands may repeat :data:`SERIES_COLUMNS`, with retries :data:`TRIED_COLUMNS`).

    Raises:
        ContractError: Not a frame of ``schedule``.
    """
    facts = facts_of(scheduled)
    if facts.is_purgatory:
        raise ContractError(
            "a frame of watch() has outcomes and no firings", field="kind", hint="use outcomes(frame)"
        )
    return scheduled.where("kind = 'fired'").select(*_fired_columns(facts))


def outcomes(watched: DataFrame) -> DataFrame:
    """The outcomes of a purgatory (:data:`OUTCOME_COLUMNS`).

    Raises:
        ContractError: Not a frame of ``watch``.
    """
    if not facts_of(watched).is_purgatory:
        raise ContractError(
            "a frame of schedule() has firings and no outcomes", field="kind", hint="use fired(frame)"
        )
    return watched.where("kind = 'outcome'").select(*OUTCOME_COLUMNS)


def rejects(frame: DataFrame) -> DataFrame:
    """The rejected and missed rows, each with its reason (:data:`REJECT_COLUMNS`; of a purgatory
    :data:`WATCH_REJECT_COLUMNS`).

    Raises:
        ContractError: The frame was made by neither operator.
    """
    columns = WATCH_REJECT_COLUMNS if facts_of(frame).is_purgatory else REJECT_COLUMNS
    return frame.where("kind IN ('rejected', 'missed')").select(*columns)


def status(frame: DataFrame) -> DataFrame:
    """The status rows: one per touched shard and batch, with the columns of
    :class:`~wheel_udf.stream.status_row.WheelStatus` (``WatchStatus``).

    Raises:
        ContractError: The frame was made by neither operator.
    """
    columns = status_class(facts_of(frame)).type_of()
    parsed = F.from_json("status", columns)
    return frame.where("kind = 'status'").select(parsed.alias("status")).select("status.*")


def status_class(facts: FrameFacts) -> type[WheelStatus | WatchStatus]:
    """The class of a frame's status rows."""
    return WatchStatus if facts.is_purgatory else WheelStatus


def _fired_columns(facts: FrameFacts) -> tuple[str, ...]:
    leveled = LEVEL_COLUMNS if facts.leveled else ()
    tried = TRIED_COLUMNS if facts.retries else ()
    return (*FIRED_COLUMNS, *leveled, *(SERIES_COLUMNS if facts.repeats else ()), *tried)


# --- in a batch that is written -------------------------------------------------------------------


def columns_leaving(facts: FrameFacts) -> list[Column]:
    """The columns of :func:`leaving`."""
    if facts.is_purgatory:
        names: tuple[str, ...] = (*OUTCOME_COLUMNS, "source")
    else:
        names = (*_fired_columns(facts), "source", *((RETURNING,) if facts.retries else ()))
    return [F.col(name) for name in names]


def leaving(frame: DataFrame, columns: list[Column], kind: str) -> DataFrame:
    """The rows of a kind for the destinations: ``fired``, or ``outcome``, of which some have no destination.

    Those for the sender have the kind ``ahead``; their ``fired_at`` is when they are to be sent.
    """
    return frame.where(f"kind = '{kind}' AND destination IS NOT NULL").select(columns)


def dead_letters(frame: DataFrame) -> DataFrame:
    """The dead letters of a frame of ``schedule`` with retries (:data:`DEAD_COLUMNS`)."""
    source = F.split("source", "/")
    is_record = F.col("source").rlike(r"\A[^/]+/[0-9]+/[0-9]+\z")
    named = {
        "occurrence": F.col("occurrence") if "occurrence" in frame.columns else F.lit(None).cast("bigint"),
        "attempts": F.col("attempt"),
        "dead_at": F.col("fired_at"),
        "source_topic": F.when(is_record, source[0]),
        "source_partition": F.when(is_record, source[1].cast("int")),
        "source_offset": F.when(is_record, source[2].cast("bigint")),
    }
    return frame.where("kind = 'dead'").select(
        *(named.get(name, F.col(name)).alias(name) for name in DEAD_COLUMNS)
    )


def refused(frame: DataFrame, facts: FrameFacts) -> DataFrame:
    """The rejects of either operator, with :data:`REJECT_COLUMNS`; ``schedule_id`` of an operation is its ``op_id``."""
    rows = frame.where("kind IN ('rejected', 'missed')")
    if not facts.is_purgatory:
        return rows.select(*REJECT_COLUMNS)
    others = {
        "schedule_id": "op_id AS schedule_id",
        "seq": "CAST(NULL AS BIGINT) AS seq",
        "deliver_at": "CAST(NULL AS TIMESTAMP) AS deliver_at",
    }
    return rows.selectExpr(*(others.get(name, name) for name in REJECT_COLUMNS))
