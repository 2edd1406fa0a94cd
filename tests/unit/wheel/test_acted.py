"""Acts on entries of the state: their rows have no payload, and are completed from the entries that they change."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
from hypothesis import given, strategies as st

from tests.unit.wheel.heap_model import CANCEL, SCHEDULE, HeapModel
from wheel_udf.common.geometry import Wheel
from wheel_udf.shard.arrow_text import table_to_text
from wheel_udf.shard.state import ShardState
from wheel_udf.testing.frames import commands_table, rows_of
from wheel_udf.wheel.acted import ACT_SCHEMA, ADD, acts_of_texts, as_commands
from wheel_udf.wheel.step import advance

WHEEL = Wheel(tick_ms=1, size=4, levels=3)
Row = dict[str, Any]


def schedule(schedule_id: str, seq: int, due_ms: int, **others: Any) -> Row:
    return {"schedule_id": schedule_id, "seq": seq, "deliver_at_ms": due_ms, "destination": "out"} | others


def change(schedule_id: str, seq: int, amend: int, due_ms: int, to: str = "out") -> Row:
    return {
        "schedule_id": schedule_id,
        "seq": seq,
        "amend": amend,
        "deliver_at_ms": due_ms,
        "destination": to,
        "op": 0,
    }


def cancel(schedule_id: str, seq: int, amend: int = 0) -> Row:
    return {"schedule_id": schedule_id, "seq": seq, "amend": amend, "op": 1}


def table(*acts: Row) -> pa.Table:
    return acts_of_texts(
        [table_to_text(pa.Table.from_pylist([act], schema=ACT_SCHEMA)) for act in acts], ACT_SCHEMA
    )


class Shard:
    """A shard that takes commands and acts."""

    def __init__(self) -> None:
        self.state, self.late = ShardState.empty(WHEEL), 0

    def batch(self, now_ms: int, commands: list[Row], *acts: Row) -> list[Row]:
        rows = commands_table(commands)
        if acts:
            acted, late = as_commands(self.state, table(*acts))
            rows, self.late = pa.concat_tables([rows, acted]), self.late + late
        step = advance(self.state, rows, now_ms, memory_ms=None)
        self.state = step.state
        return rows_of(step.fired)

    @property
    def counts(self) -> Row:
        found = {name: count for name, count in self.state.counts.items() if count}
        return found | {"superseded": found.get("superseded", 0) + self.late} if self.late else found


def test_a_change_has_the_payload_of_its_entry_and_a_cancel_needs_none() -> None:
    shard = Shard()
    payload = {"key": b"k", "value": b"v", "headers": "[]", "source": "t/0/1", "max_lateness_ms": 5}
    shard.batch(0, [schedule("a", 1, 10, **payload), schedule("b", 1, 90), schedule("c", 1, 10)])
    assert shard.batch(1, [], change("a", 1, 1, 20), change("a", 1, 2, 20, "mail"), cancel("c", 1)) == []
    (fired,) = shard.batch(20, [])
    assert fired | payload == fired
    assert (fired["schedule_id"], fired["amend"], fired["deliver_at_ms"], fired["destination"]) == (
        "a",
        2,
        20,
        "mail",
    )
    assert shard.counts == {"fired": 1, "superseded": 2, "cancelled": 1, "applied": 1}


def test_a_change_of_what_no_longer_waits_is_late() -> None:
    shard = Shard()
    shard.batch(0, [schedule("fired", 1, 5), schedule("newer", 1, 50), schedule("ended", 1, 50)])
    shard.batch(5, [schedule("newer", 2, 60), {"schedule_id": "ended", "op": "CANCEL", "seq": 1}])
    late = [change(name, 1, 1, 70) for name in ("fired", "newer", "ended", "never")]
    assert shard.batch(6, [schedule("fired", 2, 80)], *late) == []
    assert [(row["schedule_id"], row["seq"]) for row in shard.batch(100, [])] == [("newer", 2), ("fired", 2)]
    assert shard.late == 4


def test_a_command_of_the_producer_in_the_batch_of_an_act_wins_by_its_version() -> None:
    shard = Shard()
    shard.batch(0, [schedule("a", 1, 10), schedule("b", 1, 10)])
    same_seq_cancel = {"schedule_id": "b", "op": "CANCEL", "seq": 1}
    shard.batch(1, [schedule("a", 2, 12), same_seq_cancel], change("a", 1, 1, 99), change("b", 1, 1, 99))
    assert [(row["schedule_id"], row["seq"]) for row in shard.batch(99, [])] == [("a", 2)]


def test_an_act_that_adds_an_entry_brings_its_payload() -> None:
    shard = Shard()
    added = schedule("a@1", 1, 5, value=b"v", key=b"k", headers="[]", amend=0) | {"op": ADD}
    (fired,) = shard.batch(7, [], added)
    assert (fired["schedule_id"], fired["deliver_at_ms"], fired["value"], fired["key"]) == (
        "a@1",
        5,
        b"v",
        b"k",
    )
    assert shard.batch(8, [], added) == []
    assert shard.counts == {"fired": 1, "duplicate": 1}


@given(st.integers(0, 2**32))
def test_acts_without_payload_do_what_acts_with_payload_do_in_a_heap(seed: int) -> None:
    rng, shard, model = random.Random(seed), Shard(), HeapModel(None)
    seqs = dict.fromkeys("abcd", 0)
    now, waiting = 0, []  # type: int, list[tuple[Row, Row]]
    for _ in range(rng.randint(1, 12)):
        now += rng.choice((0, 1, 3, 10, 40))
        commands = []
        for name in rng.sample(sorted(seqs), rng.randint(0, 3)):
            seqs[name] += 1
            if rng.random() < 0.2:
                commands.append({"schedule_id": name, "op": "CANCEL", "seq": seqs[name]})
            else:
                commands.append(
                    schedule(name, seqs[name], now + rng.randint(-2, 30), value=bytes([rng.randrange(3)]))
                )
        taken = [each for each in waiting if rng.random() < 0.6]
        waiting = [each for each in waiting if each not in taken]
        full = [_model_row(row) for row in rows_of(commands_table(commands))] + [whole for _, whole in taken]
        fired, _ = model.batch(full, now)
        got = shard.batch(now, commands, *(act for act, _ in taken))
        assert [_key(row) for row in got] == [_key(row) for row in fired]
        assert shard.counts == {name: count for name, count in model.counts.items() if count}
        open_acts = {(act["schedule_id"], act["seq"]) for act, _ in waiting}
        for entry in rows_of(shard.state.entries()):
            # A second act on a version is made of what the first has left: here one waits at a time.
            if (entry["schedule_id"], entry["seq"]) not in open_acts and rng.random() < 0.5:
                waiting.append(_act_on(entry, rng, now))


def _act_on(entry: Row, rng: random.Random, now: int) -> tuple[Row, Row]:
    """An act as the shard gets it, and as the model does: with the whole payload."""
    if rng.random() < 0.3:
        act = cancel(entry["schedule_id"], entry["seq"], entry["amend"])
        return act, _model_row(entry | act | {"op": CANCEL, "seq_given": True, "deliver_at_ms": None})
    act = change(
        entry["schedule_id"], entry["seq"], entry["amend"] + 1, now + rng.randint(-1, 20), rng.choice("xy")
    )
    return act, _model_row(entry | act | {"op": SCHEDULE, "seq_given": False})


def _model_row(row: Row) -> Row:
    return {"act": 0, "amend": 0} | row


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(
        row[name] for name in ("schedule_id", "seq", "amend", "deliver_at_ms", "destination", "value")
    )
