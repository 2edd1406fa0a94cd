"""The checker itself, without a job: it accepts a right run of the input, and nothing less."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.faults.checker import ledger_faults, watch_faults_of
from tests.faults.inputs import Watched, commands_of_act, files, watched
from wheel_udf.testing import ledger

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 6


def released(batches: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The rows of a right run: of each id the highest version, unless it was cancelled, when it is due, or when it is
    read.
    """
    last: dict[str, dict[str, Any]] = {}
    for row in (row for rows in batches for row in rows if row["schedule_id"] is not None):
        if row["seq"] > last.get(row["schedule_id"], {"seq": 0})["seq"]:
            last[row["schedule_id"]] = row
    return [
        {name: row[name] for name in ("schedule_id", "seq", "deliver_at", "destination")}
        | {
            "fired_at": max(row["deliver_at"], row["event_time"]),
            "fire_id": row["schedule_id"],
            "table": row["destination"],
        }
        for row in last.values()
        if "op" not in row
    ]


REJECTED = [{"schedule_id": None, "error_code": "no_schedule_id", "error_message": "no id"}] * COUNT


def kinds(fired: list[dict[str, Any]], seed: int = 1) -> list[str]:
    commands = [row for rows in files(seed, COUNT) for row in rows]
    return sorted({fault.split(":")[0] for fault in ledger_faults(commands, fired, REJECTED, COUNT)})


def test_a_right_run_has_no_fault_and_nothing_undecided() -> None:
    assert [seed for seed in range(30) if kinds(released(files(seed, COUNT)), seed)] == []


def test_a_row_that_is_missing_twice_early_or_cancelled_is_found() -> None:
    right = released(files(1, COUNT))
    assert kinds(right[1:]) == ["lost"]
    assert kinds([*right, right[0]]) == ["twice"]
    assert kinds([right[0] | {"fired_at": files(1, 1)[0][0]["event_time"]}, *right[1:]]) == ["early"]
    cancelled = next(row for rows in files(1, COUNT) for row in rows if "op" in row)
    entry = next(
        row for rows in files(1, COUNT) for row in rows if row["schedule_id"] == cancelled["schedule_id"]
    )
    late = released([[entry]])
    assert "after_cancel" in kinds([*right, *late])


def test_the_commands_of_an_act_are_those_of_its_rows_as_it_changed_them() -> None:
    first = files(1, COUNT)[0]
    (cancelled, *_), (moved, *_), (rerouted, *_) = (commands_of_act(act, COUNT, first) for act in (3, 1, 2))
    assert (cancelled["schedule_id"], cancelled["op"], cancelled["seq"]) == ("act3-0", "CANCEL", 1)
    assert (moved["schedule_id"], moved["amend"], moved["seq"]) == ("act1-0", 1, 1)
    assert (rerouted["schedule_id"], rerouted["destination"]) == ("act2-0", "left")


def test_an_operation_that_is_missing_twice_or_of_another_outcome_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = watched(1, COUNT)
    right = [dict(zip(("op_id", "outcome", "table"), row, strict=True)) for row in sorted(made.expected)]

    def faults(rows: list[dict[str, Any]], watch: Watched = made) -> list[str]:
        tables = {"tables": pa.Table.from_pylist(rows), "rejects": pa.table({"op_id": [None] * COUNT})}
        monkeypatch.setattr(ledger, "read_delta", lambda folder: tables[folder.name])
        return [fault.split(":")[0] for fault in watch_faults_of(tmp_path, watch)]

    assert {outcome for _, outcome, _ in made.expected} == {"completed", "cancelled", "expired"}
    assert faults(right) == []
    assert faults(right[1:]) == ["missing"]
    assert faults([*right, right[0]]) == ["twice"]
    assert faults([right[0] | {"outcome": "other"}, *right[1:]]) == ["missing", "not expected"]
