"""What is pending in a slot store, against a simple model: real data files, no Spark."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from wheel_udf.common.geometry import Wheel
from wheel_udf.pending.comparison import Moment, left_after, still_left, versions_of
from wheel_udf.shard.rows import CANCEL, COMMAND, FAR, FIRE_NOW, SCHEDULE
from wheel_udf.store import ranking, scan
from wheel_udf.store.head import Contents, Head
from wheel_udf.store.layout import INBOX, MARKS, NEAR, StoreLayout
from wheel_udf.store.log import StoreLog
from wheel_udf.store.scan import PENDING_SCHEMA, ROW_SCHEMA
from wheel_udf.store.table import PARTITIONED_BY
from wheel_udf.tables.delta_files import File

NAMES = "abcdefghij"
LAYOUT = StoreLayout(Wheel(1, 3, 4), state_levels=1)
CURSOR_MS = 4 * LAYOUT.window_ms
CLOCK_MS = CURSOR_MS - 3


@dataclass(frozen=True)
class Row:
    """A row of a store; `file` is one of the two that each partition has."""

    name: str
    seq: int
    op: int
    amend: int | None
    due_ms: int | None
    act: int
    is_refused: bool
    is_in_inbox: bool
    was_handed_over: bool
    file: int

    @property
    def place(self) -> tuple[int, int]:
        """The partition: near without a due time, or if another slot has it, too."""
        if self.due_ms is None or self.act != COMMAND or self.is_refused:
            return (MARKS, 0) if self.file and self.act == COMMAND and not self.is_refused else (NEAR, 7)
        if self.is_in_inbox and self.due_ms >= CURSOR_MS:
            return INBOX, 0
        if self.was_handed_over and self.due_ms < CURSOR_MS:
            return 2, self.due_ms // LAYOUT.width_ms(2)
        levels, slots = LAYOUT.place(np.array([self.due_ms]), CURSOR_MS)
        return int(levels[0]), int(slots[0])

    @property
    def is_far(self) -> bool:
        return self.place[0] > NEAR or self.place[0] == INBOX


ROWS = st.builds(
    Row,
    name=st.sampled_from("aaabbb" + NAMES),
    seq=st.integers(0, 1),
    op=st.sampled_from([SCHEDULE, SCHEDULE, CANCEL]),
    amend=st.sampled_from([None, 0, 1]),
    due_ms=st.integers(0, 30 * LAYOUT.window_ms),
    act=st.sampled_from([COMMAND, COMMAND, COMMAND, FAR, FIRE_NOW]),
    is_refused=st.just(False),
    is_in_inbox=st.booleans(),
    was_handed_over=st.booleans(),
    file=st.integers(0, 1),
).map(lambda row: Row(**(vars(row) | {"due_ms": None if row.op == CANCEL else row.due_ms})))


def hash_of(name: str) -> int:
    """Two ids have the same one."""
    return ord(name) // 2


def written(folder: Path, rows: list[Row]) -> dict[str, File]:
    files: dict[tuple[tuple[int, int], int], list[Row]] = {}
    for row in rows:
        files.setdefault((row.place, row.file), []).append(row)
    found = {}
    for number, ((place, _), mine) in enumerate(files.items()):
        name = f"{number}.parquet"
        table = pa.Table.from_pylist(
            [
                {
                    "schedule_id": row.name,
                    "id_hash": hash_of(row.name),
                    "seq": row.seq,
                    "op": row.op,
                    "amend": row.amend,
                    "deliver_at_ms": row.due_ms,
                    "act": row.act,
                    "arrived": 0,
                    "value": row.name.encode(),
                }
                for row in mine
            ],
            ROW_SCHEMA,
        )
        pq.write_table(table.drop_columns(list(PARTITIONED_BY)), folder / name)
        found[name] = File(place, len(mine), 1)
    return found


def key(row: Row) -> tuple[int, int, int, float]:
    return row.seq, row.op, -1 if row.amend is None else row.amend, -(row.due_ms or 0)


def expected(
    rows: list[Row], alive: set[tuple[str, int, int]], after_ms: int | None
) -> set[tuple[str, int, int, int]]:
    """(id, seq, amend, due) of what is pending."""
    fires = {
        row.name: max(r.seq for r in rows if r.act == FIRE_NOW and r.name == row.name)
        for row in rows
        if row.act == FIRE_NOW
    }
    standing = [
        row
        for row in rows
        if row.act == COMMAND and not (row.is_far and row.due_ms is not None and row.due_ms < CURSOR_MS)
    ]
    found = set()
    for name in {row.name for row in standing}:
        best = max((row for row in standing if row.name == name), key=key)
        if best.op == CANCEL or best.due_ms is None:
            continue
        if after_ms is not None:
            is_left = best.due_ms > after_ms and (best.is_far or best.seq > fires.get(name, -1))
        else:
            is_asked = not best.is_far and (best.due_ms <= CLOCK_MS or name in fires)
            is_left = not is_asked or (name, best.seq, best.amend or 0) in alive
        if is_left:
            found.add((name, best.seq, best.amend or 0, best.due_ms))
    return found


def facts(rows: pa.Table) -> list[tuple[str, int, int, int]]:
    columns = versions_of(rows).append_column("due", rows["deliver_at_ms"])
    return sorted(zip(*(column.to_pylist() for column in columns.columns), strict=True))


@given(
    rows=st.lists(ROWS, min_size=8, max_size=30),
    alive=st.sets(st.tuples(st.sampled_from(NAMES), st.integers(0, 1), st.integers(0, 1))),
    after_ms=st.none() | st.integers(0, CURSOR_MS),
    most=st.integers(1, 3),
)
def test_all_questions_are_answered_as_by_a_comparison_of_each_id(
    rows: list[Row], alive: set[tuple[str, int, int]], after_ms: int | None, most: int
) -> None:
    held = pa.Table.from_pylist(
        [{"schedule_id": name, "seq": seq, "amend": amend} for name, seq, amend in alive], ROW_SCHEMA
    )
    left = still_left(CLOCK_MS, versions_of(held)) if after_ms is None else left_after(after_ms)
    pending = expected(rows, alive, after_ms)
    nothing = PENDING_SCHEMA.empty_table()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "hash_of", hash_of)
        patch.setattr(ranking, "MOST_HASHES", most)
        contents = Contents(Head(3, CURSOR_MS, None, {}), written(Path(folder), rows))
        moment = Moment(StoreLog(folder, LAYOUT), contents, nothing, left, nothing, after_ms)
        assert facts(moment.whole(None)) == sorted(pending)
        for name in NAMES[:4]:
            assert facts(moment.whole([name])) == sorted(each for each in pending if each[0] == name)
        if after_ms is not None:
            return
        assert moment.divided.count() == len(pending)
        first = moment.divided.first(most)
        in_order = sorted(pending, key=lambda row: (row[3], row[0]))
        assert facts(first) == sorted(in_order[:most])
        assert pc.all(pc.equal(first["value"], first["schedule_id"].cast(pa.binary()))).as_py() is not False
