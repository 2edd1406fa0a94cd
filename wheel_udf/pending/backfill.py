"""Delivers the occurrences of series in a range of time once more: an act that adds entries, and changes none.

::

    series "report-7", 0 9 * * *                       entries, due at once, with its payload
    --from 2026-11-01 --to 2026-11-03            -->   report-7@2026-11-01T09:00:00Z    deliver_at 2026-11-01 09:00
                                                       report-7@2026-11-02T09:00:00Z    deliver_at 2026-11-02 09:00

Each occurrence is a SCHEDULE of its own, whose id is that of the series, ``@`` and the nominal time; its ``seq`` is
that of the series. It has no ``max_lateness`` and no ``spread``, and fires like anything that is late: oldest first,
under the limits of the job. The same act within ``memory`` counts as a repetition (``duplicate``); after it, it
delivers again.

The rows of this act carry the payload, because the shard of such an id does not hold the series.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from wheel_udf.commands.columns import utc_text
from wheel_udf.common.command_facts import MAX_ID_BYTES
from wheel_udf.common.errors import ActError
from wheel_udf.common.instants import instant_text_ms
from wheel_udf.pending.acts_on_state import keep_by_shard, state_clock_ms
from wheel_udf.pending.acts_on_store import keep_rows
from wheel_udf.pending.audit import record_act
from wheel_udf.pending.changes import as_stored
from wheel_udf.pending.entries import PendingWork, pending
from wheel_udf.pending.picked import Picked
from wheel_udf.policies.series_range import occurrences_in
from wheel_udf.wheel.acted import ADD

MOST: Final = 1_000
"""How many occurrences an act delivers at most, if neither it nor the contract says."""

_CARRIED: Final = ("schedule_id", "seq", "destination", "key", "value", "headers", "source")
_FOUND: Final = pa.schema(
    [
        ("schedule_id", pa.string()),
        ("seq", pa.int64()),
        ("destination", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.string()),
        ("source", pa.string()),
        ("deliver_at_ms", pa.int64()),
    ]
)


def backfill(
    spark: SparkSession,
    work: PendingWork,
    picked: Picked,
    *,
    from_ms: int,
    to_ms: int,
    most: int | None = None,
    dry_run: bool = False,
) -> int:
    """Delivers the occurrences of pending series, paused ones too, in ``[from, to)`` with the next batch.

    Args:
        spark: A session.
        work: Where the series are.
        picked: The selection; other entries are not selected.
        from_ms: From here (UTC epoch ms).
        to_ms: To here, exclusive; up to the clock.
        most: How many at most; None: ``most_missed`` of the contract, or :data:`MOST`.
        dry_run: Count the occurrences and change nothing.

    Returns:
        The number of occurrences.

    Raises:
        ActError: The range is empty or in the future, the occurrences are too many, an id would be too long, the
            predicate cannot be used, or too many conflicting acts.
        CheckpointError: There is no checkpoint, or it is damaged.
    """
    _require_range(spark, work, from_ms, to_ms)
    if most is None:
        most = MOST if work.contract is None else work.contract.most_missed
    if most < 1:
        raise ActError("not a number of occurrences", field="most", value=most, rule="at least 1")

    def found() -> DataFrame:
        series = picked.of(pending(spark, work, ids=picked.ids)).where("repeat IS NOT NULL")
        rows = _occurrences(series, from_ms, to_ms, most)
        return rows if work.store is None else as_stored(rows, state_clock_ms(spark, work.query))

    def count(rows: DataFrame) -> int:
        return _checked_count(rows, most)

    if dry_run:
        return count(found())
    text = f"from {instant_text_ms(from_ms)} to {instant_text_ms(to_ms)}"
    return record_act(
        work.query,
        lambda: (keep_by_shard if work.store is None else keep_rows)(work.query, found(), count),
        act="backfill",
        picked=str(picked),
        change=text,
    )


def _require_range(spark: SparkSession, work: PendingWork, from_ms: int, to_ms: int) -> None:
    if from_ms >= to_ms:
        rule = f"after {instant_text_ms(from_ms)}"
        raise ActError("an empty range", field="to", value=instant_text_ms(to_ms), rule=rule)
    if to_ms > (clock_ms := state_clock_ms(spark, work.query)):
        rule = f"up to {instant_text_ms(clock_ms)}, the clock of the job"
        hint = "what is still to come is delivered in its time"
        raise ActError(
            "a range in the future", field="to", value=instant_text_ms(to_ms), rule=rule, hint=hint
        )


def _occurrences(series: DataFrame, from_ms: int, to_ms: int, most: int) -> DataFrame:
    """The occurrences as rows of an act; if there are more than `most`, some of them that are more."""

    def listed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = pa.Table.from_batches([batch])
            places, at_ms = occurrences_in(rows["repeat"], rows["anchor_ms"].to_numpy(), from_ms, to_ms, most)
            # A series can have more than the bound: what is more is not needed.
            places, at_ms = places[: most + 1], at_ms[: most + 1]
            chosen = rows.select(_CARRIED).take(pa.array(places))
            yield from chosen.append_column("deliver_at_ms", pa.array(at_ms)).cast(_FOUND).to_batches()

    found = series.select(*_CARRIED, "repeat", "anchor_ms").mapInArrow(listed, from_arrow_schema(_FOUND))
    name = F.concat(
        "schedule_id", F.lit("@"), F.replace(utc_text(F.col("deliver_at_ms")), F.lit(" "), F.lit("T"))
    )
    others = {
        "amend": "int", "delay_level_ms": "long", "level_error_ms": "long", "occurrence": "long",
        "max_lateness_ms": "long",
    }  # fmt: skip
    return found.limit(most + 1).select(
        name.alias("schedule_id"),
        *(each for each in _FOUND.names if each != "schedule_id"),
        F.lit(ADD).cast("byte").alias("op"),
        *(F.lit(0 if each == "amend" else None).cast(kind).alias(each) for each, kind in others.items()),
    )


def _checked_count(rows: DataFrame, most: int) -> int:
    count, longest = rows.agg(F.count(F.lit(1)), F.max(F.octet_length("schedule_id"))).collect()[0]
    if count > most:
        raise ActError(
            "too many occurrences for an act",
            field="most",
            value=f"more than {most:,}",
            rule=f"up to {most:,}",
            hint="a shorter range or fewer series, or a larger bound (--most)",
        )
    if longest is not None and longest > MAX_ID_BYTES:
        rule = f"up to {MAX_ID_BYTES} bytes with the time of the occurrence"
        raise ActError("an id is too long", field="schedule_id", value=f"{longest} bytes", rule=rule)
    return int(count)
