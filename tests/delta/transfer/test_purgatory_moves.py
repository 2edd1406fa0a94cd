"""A purgatory that moves, by the verbs of the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.delta.job.test_purgatory_jobs import Case, at

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.sentinel
def test_operations_ends_and_events_of_a_purgatory_go_on_in_another_checkpoint_with_another_wheel(
    spark: SparkSession, tmp_path: Path
) -> None:
    case = Case(spark, tmp_path, "unpaid_orders")
    export, new = str(tmp_path / "export"), str(tmp_path / "new")
    moved = ("--set", f"checkpoint={new}", "--set", "wheel.size=8")
    case.write(
        "orders",
        *({"order": name, "placed_at": at("10:00:00"), "total": 1} for name in ("paid", "later", "never")),
    )
    # The payment of `early` is ahead of the clock: its order comes after the move.
    case.write(
        "payments",
        {"order": "paid", "what": "paid", "at": at("10:01:00")},
        {"order": "early", "what": "paid", "at": at("10:04:00")},
    )
    assert case.run("10:02:00") == 0, case.err

    assert case.say("export", "--to", export) == 0, case.err
    assert "2 pending; counted so far: 1 completed, 2 events" in case.out
    assert case.run("10:02:00") == 2
    assert "was exported to" in case.err
    assert case.say("import", "--from", export, *moved) == 0, case.err
    assert f"imported {export} into {new}" in case.out

    case.write("orders", {"order": "early", "placed_at": at("10:03:00"), "total": 1})
    case.write("orders", {"order": "paid", "placed_at": at("10:00:00"), "total": 1})
    case.write("payments", {"order": "later", "what": "paid", "at": at("10:20:00")})
    assert case.say("run", "--trigger", "available-now", "--until", at("11:00:00"), *moved) == 0, case.err
    assert case.table("orders_to_close", "op_id", "outcome") == [("never", "expired")]
    assert "3 completed + 1 expired + 0 cancelled + 1 duplicate" in case.out
