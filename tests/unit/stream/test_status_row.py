"""The status row: one declaration gives its JSON, its columns and the answer for the clock source."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from wheel_udf.control.board import ShardReport
from wheel_udf.stream.status_row import ShardStatus, WatchStatus, WheelStatus, codes_of

COMMON: dict[str, Any] = {
    "shard": 1, "batch_id": 7, "query_id": "q", "run": None, "clock_ms": 50, "watermark_ms": 40, "next_due_ms": 60,
    "pending": 3, "received": 2, "fired_now": 1, "rejected_now": 0, "lateness": "{}", "destinations": {"out": 1},
    "largest": {"out": 9}, "codes": {"no_id": 1}, "state_bytes": 100, "remembered": 2, "by_level": {"1": 3}, "due_within": {"1m": 3},
    "last_due_ms": 90, "by_destination": None,
}  # fmt: skip
OF_WHEEL = {
    "far": 0,
    "levels": {"30s": 2},
    "held_by": {"out": 1},
    "missed_now": 0,
    "refused_now": 0,
    "full": {"pending": 0.5},
    "spread_now": 0,
    "ambiguous_now": 0,
    "in_flight": 3,
    "handed": {"out": 2},
    "handed_largest": {"out": 90},
    "confirmed_now": 1,
    "dead_to": {"dead": 1},
    "beyond_ms": 70,
    "complete_ms": None,
}
OF_WATCH = {"resting": 0, "ahead": 1, "decided_now": 2}


@pytest.mark.parametrize(("status", "own"), [(WheelStatus, OF_WHEEL), (WatchStatus, OF_WATCH)])
def test_a_status_row_has_in_json_the_columns_that_are_declared(
    status: type[ShardStatus], own: dict[str, Any]
) -> None:
    row = status(**COMMON, **own, counts=dict.fromkeys(status.COUNTED, 4))

    assert status.from_json(row.to_json()) == row
    declared = [
        column.split()[0]
        for column in status.type_of().replace(", long>", "").replace(", double>", "").split(", ")
    ]
    assert list(json.loads(row.to_json())) == declared
    assert json.loads(row.to_json()) == {**COMMON, **own, **dict.fromkeys(status.COUNTED, 4)}


def test_the_answer_of_a_status_row_says_whether_the_shard_received_rows_unless_told_otherwise() -> None:
    row = WatchStatus(**COMMON, **OF_WATCH, counts=dict.fromkeys(WatchStatus.COUNTED, 0))

    assert row.report() == ShardReport(7, 60, 50, 40, held_input=True)
    assert row.report(held_input=False) == ShardReport(7, 60, 50, 40, held_input=False)


def test_rejects_are_counted_by_the_code_at_the_beginning_of_their_reason() -> None:
    reasons = [
        '{"error_code":"no_id","error_message":"\\"error_code\\":\\"other\\""}',
        '{"error_code": "limit_pending", "error_message": "full"}',
        '{"error_code":"no_id","error_message":"x","record":"{}"}',
    ]

    assert codes_of(pa.chunked_array([reasons])) == {"no_id": 2, "limit_pending": 1}
    assert codes_of(pa.chunked_array([], pa.string())) == {}
