"""Any text as the predicate of an act: it selects rows of the pending table, or it is an error in our words before anything runs."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.hostile import BAD_NAMES, mangled_at_random
from wheel_udf.common import ActError
from wheel_udf.pending.acts import Picked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GOOD = [
    "destination = 'orders' and seq >= 7",
    "schedule_id like 'a%' or schedule_id in ('b', \"c\")",
    "deliver_at < timestamp'2026-01-01 00:00:00Z' + interval 1 hour",
]
BAD = [
    *("", " ", "1", "seq", "'true'", "nothing = 1", "seq = 1 = 1", "true; DROP TABLE t", "true) or (true", "seq =="),
    *("count(*) > 1", "rank() over (order by seq) = 1", "explode(array(true))", "no_such_function(1)", "schedule_id.x"),
    *("\0", "seq\0 = 1", "\ud800", "seq = '\ud800'", "(" * 5_000 + "true" + ")" * 5_000, "not " * 20_000 + "true"),
]  # fmt: skip


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.sql(
        "SELECT * FROM VALUES ('a', 7L, 'orders', timestamp'2026-01-01 00:00:00Z'), ('b', 1L, 'sms', NULL) "
        "AS t(schedule_id, seq, destination, deliver_at)"
    )


def outcome(rows: DataFrame, predicate: str) -> DataFrame | str:
    try:
        return Picked(where=predicate).of(rows)
    except ActError as error:
        return str(error)


def test_what_is_no_condition_on_a_row_is_refused_with_the_columns(rows: DataFrame) -> None:
    for predicate in BAD:
        found = outcome(rows, predicate)
        assert isinstance(found, str), predicate[:100]
        assert found.startswith("this predicate cannot be used"), predicate[:100]
        assert "rule: SQL over schedule_id, seq, destination, deliver_at" in found
        assert len(found) < 2_000


def test_damaged_predicates_select_rows_of_the_table_or_are_refused(rows: DataFrame) -> None:
    make = Random(18)
    names = [f"schedule_id = '{name}'".encode() for name in BAD_NAMES]
    damaged = [mangled_at_random(make, [each.encode() for each in GOOD] + names) for _ in range(150)]
    damaged += [make.choice(GOOD).encode()[: make.randrange(30)] for _ in range(50)]
    found = [outcome(rows, octets.decode(errors="surrogateescape")) for octets in damaged]

    good = [each for each in found if not isinstance(each, str)]
    assert all(each.columns == rows.columns for each in good)
    assert min(len(good), len(found) - len(good)) > 20
    assert all(each.startswith("this predicate cannot be used") for each in found if isinstance(each, str))


def test_good_predicates_and_hostile_ids_are_taken_as_they_are(rows: DataFrame) -> None:
    assert [Picked(where=each).of(rows).count() for each in GOOD] == [1, 2, 1]
    assert Picked(ids=["a", *filter(None, BAD_NAMES)]).of(rows).count() == 1
