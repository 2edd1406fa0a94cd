"""Entries that come back: what a batch could not deliver, and may deliver later, goes back to the wheel.

::

    write_batch --rows that were left out--> ReturnedRows --<checkpoint>/returned/N.json--> board --> the next tick
                                                  '-- breakers: the destinations that rest ---------------^

A batch writes its file before it is committed, so none of its rows is lost; a batch that is repeated delivers again,
and writes the file anew. The shards decide when an entry is tried again (:mod:`wheel_udf.policies.retries`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from wheel_udf.checkpoint.returned_files import Returned, ReturnedFiles
from wheel_udf.checkpoint.spark_logs import query_id
from wheel_udf.common.command_facts import LONGEST_ERROR
from wheel_udf.control.board import BREAKERS, FRAMES, RETURNED, ActRows, Link, Resting, ShardBoard
from wheel_udf.policies.retries import RETURNED_SCHEMA, Retries
from wheel_udf.shard.arrow_text import table_to_text
from wheel_udf.sinks.breaker import Breakers
from wheel_udf.sinks.destinations import LeftOut
from wheel_udf.spark.frames import filled
from wheel_udf.stream.outputs import RETURNING
from wheel_udf.stream.sharding import shard_of_id

_OF_REFUSAL = {"is_final": True, "is_tried": True}

_KEPT = 16
"""After so many files those are removed that the shards have taken."""


class ReturnedRows:
    """Keeps the rows of one query that come back.

    Args:
        checkpoint: Of the query.
        board: Its board.
        frame: The name of its frame on the board.
        shards: Number of shards.
        retries: Which destinations are tried again.

    Attributes:
        breakers: The breakers of these destinations.
        clock_ms: The clock of the last batch.
        query_id: The query.
        returned: How many rows of the last batch come back.
    """

    def __init__(self, checkpoint: str, board: ShardBoard, frame: str, shards: int, retries: Retries) -> None:
        self._checkpoint, self._board, self._frame = checkpoint, board, frame
        self._shards, self._retries = shards, retries
        self._files = ReturnedFiles(checkpoint)
        self.breakers = Breakers()
        self.clock_ms, self.query_id, self.returned = 0, "", 0

    def prepare(self) -> None:
        """Posts what no committed batch has taken. Call it before the query starts.

        Raises:
            CheckpointError: A file is damaged or missing.
        """
        query = query_id(self._checkpoint)
        if query is None:
            return  # the first start
        self.query_id = query
        # What an earlier run in this process has posted may be of a batch that is repeated.
        self._board.remove(RETURNED, self.query_id)
        self._board.remove(BREAKERS, self.query_id)
        for number, each in self._files.look().items():
            self._post(number, each)
        if self._frame:
            self._board.put(FRAMES, self._frame, Link(self.query_id))

    def begin(self, query_id: str, clock_ms: int) -> None:
        """Begins a batch."""
        self.query_id, self.clock_ms, self.returned = query_id, clock_ms, 0
        if self._files.taken < self._files.next and not self._is_posted(self._files.next - 1):
            self._post_again()

    def _is_posted(self, number: int) -> bool:
        return self._board.has(RETURNED, f"{self.query_id}/{number}")

    def _post_again(self) -> None:
        """Posts what no committed batch has taken, and what rests: the board was emptied."""
        self._files.forget()
        for number, each in self._files.waiting().items():
            self._post(number, each)
        if resting := dict(self.breakers.closed_until()):
            self._board.put(BREAKERS, self.query_id, Resting(resting))

    def takes(self, destination: str) -> bool:
        """Whether rows of this destination come back."""
        return self._retries.of(destination) is not None

    def keep(
        self, left_out: Sequence[LeftOut], rows_to: Mapping[str, int], batch_id: int
    ) -> tuple[list[LeftOut], int]:
        """As :meth:`wheel_udf.sinks.batch_writer.Returns.keep`."""
        names = [name for name in rows_to if self.takes(name)]
        table = self._collected(left_out, names)
        self.returned = table.num_rows
        if table.num_rows:
            returned = Returned(batch_id, _by_shard(table))
            self._post(self._files.keep(returned), returned)
            if self._files.next - self._files.taken > _KEPT:
                for number in self._files.forget():
                    self._board.remove(RETURNED, f"{self.query_id}/{number}")
        else:
            self._files.drop_repeated()
        self._note(names, rows_to, table)
        counts = {pair["values"]: pair["counts"] for pair in pc.value_counts(table["part"]).to_pylist()}
        rest = [
            LeftOut({}, left.rows.where(~F.col("destination").isin(names)), count)
            for part, left in enumerate(left_out)
            if left.rows is not None and (count := left.row_count - counts.get(part, 0))
        ]
        return rest, sum(left.row_count for left in rest)

    def keep_again(self, batch_id: int) -> None:
        """As :meth:`wheel_udf.sinks.batch_writer.Returns.keep_again`."""
        repeated = self._files.repeated
        if repeated is not None and repeated.batch == batch_id:
            self._post(self._files.keep(repeated), repeated)

    def _post(self, number: int, returned: Returned) -> None:
        self._board.put(RETURNED, f"{self.query_id}/{number}", ActRows(dict(returned.rows)))

    def _collected(self, left_out: Sequence[LeftOut], names: list[str]) -> pa.Table:
        """The rows of these destinations: ``part``, the number of their :class:`LeftOut`, their shard, and
        ``RETURNED_SCHEMA``.
        """
        schema = pa.schema([("part", pa.int32()), ("shard", pa.int32()), *RETURNED_SCHEMA])
        frames = [
            _as_returned(left.rows.where(F.col("destination").isin(names)), part, self._shards)
            for part, left in enumerate(left_out)
            if left.rows is not None
        ]
        if not frames or not names:
            return schema.empty_table()
        found = reduce(DataFrame.unionByName, frames).toArrow()
        return found.select(schema.names).cast(schema)

    def _note(self, names: Sequence[str], rows_to: Mapping[str, int], table: pa.Table) -> None:
        """Tells the breakers what the batch has done, and the shards which destinations rest."""
        before = dict(self.breakers.closed_until())
        for name in names:
            retry = self._retries.of(name)
            assert retry is not None, "it takes the rows of this destination"
            mine = table.filter(pc.equal(table["destination"], name))
            later = mine.filter(pc.invert(mine["is_final"]))
            failed = int(pc.sum(later["is_tried"]).as_py() or 0)
            self.breakers.note(
                name,
                (retry.breaker_failures, retry.breaker_cooldown_ms),
                taken=rows_to[name] - later.num_rows,
                failed=failed,
                clock_ms=self.clock_ms,
                why=later["error"][0].as_py() if later.num_rows else "",
            )
        after = dict(self.breakers.closed_until())
        if after != before:
            self._board.put(BREAKERS, self.query_id, Resting(after))


def _as_returned(rows: DataFrame, part: int, shards: int) -> DataFrame:
    """Rows that were left out, as ``RETURNED_SCHEMA`` with their part and shard."""
    given: dict[str, Column] = {
        "part": F.lit(part),
        "shard": shard_of_id(F.col("schedule_id"), shards),
        "attempt": F.col("attempt") - 1,
        "error": F.substring("error_message", 1, LONGEST_ERROR),
        **{
            name: F.coalesce(name, F.lit(value)) if name in rows.columns else F.lit(value)
            for name, value in _OF_REFUSAL.items()
        },
    }
    returning = rows.schema[RETURNING].dataType.names  # type: ignore[attr-defined]  # a struct
    schema = from_arrow_schema(pa.schema([("part", pa.int32()), ("shard", pa.int32()), *RETURNED_SCHEMA]))
    return filled(rows, schema, {name: F.col(RETURNING)[name] for name in returning} | given)


def _by_shard(table: pa.Table) -> dict[str, str]:
    return {
        str(shard): table_to_text(
            table.filter(pc.equal(table["shard"], shard)).select(RETURNED_SCHEMA.names).cast(RETURNED_SCHEMA)
        )
        for shard in pc.unique(table["shard"]).to_pylist()
    }
