"""The facts about the frame of an operator, in the metadata of its column ``kind``, for code that selects from it or
delivers it.

::

    schedule(...) --> kind {"wheel_udf": {"is_purgatory": false, "wheel": "tick_ms=1000,...", "shards": 4, ...}}
                      schedule_id, ...

Spark keeps the metadata through filters, caches, ``foreachBatch`` and the memory sink, and in Delta tables
and Parquet files; JSON and CSV files lose it.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, field

from pyspark.sql import Column, DataFrame, functions as F

from wheel_udf.common.errors import ContractError
from wheel_udf.control.board import ShardBoard
from wheel_udf.policies.punctual import Punctual
from wheel_udf.policies.retries import NO_RETRIES, Retries

_METADATA_KEY = "wheel_udf"


@dataclass(frozen=True, kw_only=True)
class FrameFacts:
    """Facts about the frame of an operator.

    Attributes:
        is_purgatory: Whether it is of ``watch``: its rows are outcomes of operations and not firings.
        wheel: Fingerprint of what must not change while a checkpoint lives: geometry, delay levels, and of a
            purgatory its format version.
        shards: Number of shards.
        clock: Kind of clock.
        board: Folder of the board.
        frame: Name of this frame on the board.
        repeats: Whether commands may be series, so that the frame has two more columns.
        leveled: Whether there are delay levels, so that the frame has two more columns.
        retries: Which destinations are tried again; with any, the frame has more columns.
        stored: Whether far entries wait in a slot store.
        punctual: How entries are handed to a sender; None without one.
    """

    is_purgatory: bool = False
    wheel: str
    shards: int
    clock: str
    board: str = field(default_factory=lambda: str(ShardBoard().folder))
    frame: str = field(default_factory=lambda: uuid.uuid4().hex)
    leveled: bool = False
    repeats: bool = False
    retries: Retries = NO_RETRIES
    stored: bool = False
    punctual: Punctual | None = None

    def kind_column(self) -> Column:
        """The column ``kind`` of the frame, with these facts as its metadata."""
        return F.col("kind").alias("kind", metadata={_METADATA_KEY: json.dumps(asdict(self))})


def facts_of(frame: DataFrame) -> FrameFacts:
    """The facts about a frame of ``schedule`` or ``watch``.

    Raises:
        ContractError: The frame has none: another function made it, or it was written to a format that loses
            them.
    """
    fields = {field.name: field for field in frame.schema.fields}
    text = fields["kind"].metadata.get(_METADATA_KEY, "{}") if "kind" in fields else "{}"
    facts = json.loads(text)
    if "is_purgatory" not in facts:
        raise ContractError(
            "this frame was not made by schedule() or watch() of this version",
            field="columns",
            value=frame.columns,
            rule="a frame of schedule() or watch(), with its column `kind` and the metadata of that column",
            hint="pass the frame itself, or one read from Delta or Parquet, which keep the metadata",
        )
    punctual = facts.get("punctual")
    more = {
        "punctual": Punctual(**punctual) if punctual else None,
        "retries": Retries.from_json(facts["retries"]),
    }
    return FrameFacts(**facts | more)
