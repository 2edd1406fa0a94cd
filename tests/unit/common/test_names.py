"""Names of destinations and topics, and the allow-list that they are matched against."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import pytest

from wheel_udf.common.names import AllowList, is_destination_name, is_destination_pattern


@pytest.mark.parametrize("pattern", ["*", "a*", "?", "...", "??", "a.b-c_D9", "x" * 249, "*.."])
def test_a_pattern_is_a_name_with_wildcards(pattern: str) -> None:
    assert is_destination_pattern(pattern)


@pytest.mark.parametrize("pattern", ["", ".", "..", "a/b*", "[a]", "x" * 250, "*\n", None, 7])
def test_what_no_name_can_match_is_not_a_pattern(pattern: object) -> None:
    assert not is_destination_pattern(pattern)
    assert not is_destination_name(pattern)


def test_the_first_pattern_that_matches_is_the_answer() -> None:
    allowed = AllowList(["t.1", "reminders_*", "*_EWR", "shard-??"])
    names = ["t.1", "tx1", "reminders_", "reminders_EWR", "x_EWR", "shard-1", "shard-01", "Reminders_x"]

    found = [allowed.first(name) for name in names]

    assert found == ["t.1", None, "reminders_*", "reminders_*", "*_EWR", None, "shard-??", None]


def test_names_and_expression_for_spark_allow_what_the_list_allows() -> None:
    patterns = ["t.1", "a-b", "reminders_*", "*_EWR", "shard-??", "x.?"]
    allowed = AllowList(patterns)
    names = [
        *patterns,
        "t.1",
        "tx1",
        "reminders_EWR",
        "EWR",
        "_EWR",
        "shard-01",
        "x.y",
        "xay",
        "a-b",
        "A-b",
        "x.",
    ]

    assert allowed.names == ("t.1", "a-b")
    assert allowed.expression is not None
    for name in filter(is_destination_name, names):
        by_columns = name in allowed.names or re.fullmatch(allowed.expression, name) is not None
        assert by_columns == (allowed.first(name) is not None), name
        assert by_columns == (name in allowed), name
        assert by_columns == any(fnmatchcase(name, pattern) for pattern in patterns), name


def test_names_alone_need_no_expression() -> None:
    assert AllowList(["a", "b"]).expression is None
    assert AllowList(["a*"]).names == ()
