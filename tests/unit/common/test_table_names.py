"""Names of tables: which are names, which table a destination has, which names mean one table."""

from __future__ import annotations

import pytest

from wheel_udf.common.errors import ConfigError
from wheel_udf.common.table_names import is_same, may_be_one, table_name


@pytest.mark.parametrize(
    ("text", "parts", "sql"),
    [
        ("due", ("due",), "`due`"),
        ("main.reminders.due", ("main", "reminders", "due"), "`main`.`reminders`.`due`"),
        ("`my-main`.a.`b.c``d`", ("my-main", "a", "b.c`d"), "`my-main`.`a`.`b.c``d`"),
        ("a.{destination}", ("a", "{destination}"), "`a`.`{destination}`"),
        ("a.due_{destination}_v2", ("a", "due_{destination}_v2"), "`a`.`due_{destination}_v2`"),
    ],
)
def test_a_name_has_one_to_three_parts(text: str, parts: tuple[str, ...], sql: str) -> None:
    name = table_name(text)

    assert (name.parts, name.sql, str(name)) == (parts, sql, text)


@pytest.mark.parametrize(
    "text",
    ["", ".", "a.", ".a", "a..b", "a.b.c.d", "a-b", "a b", "a/b", "`a", "a`b`", "a.{name}", "a;DROP TABLE b"],
)
def test_other_texts_are_no_names(text: str) -> None:
    with pytest.raises(ConfigError, match="not the name of a table"):
        table_name(text)


@pytest.mark.parametrize(
    "text", ["{destination}.due", "main.{destination}.due", "a.{destination}_{destination}"]
)
def test_a_destination_stands_in_the_last_part_once(text: str) -> None:
    with pytest.raises(ConfigError, match="destinations may not choose the schema of their table"):
        table_name(text)


@pytest.mark.parametrize(
    ("template", "destination", "sql"),
    [
        ("a.{destination}", "late", "`a`.`late`"),
        ("a.{destination}", "a.b-c", "`a`.`a.b-c`"),
        ("a.due_{destination}", "late", "`a`.`due_late`"),
        ("a.all", "late", "`a`.`all`"),
    ],
)
def test_a_destination_has_a_table_in_the_schema_of_its_sink(
    template: str, destination: str, sql: str
) -> None:
    assert table_name(template).of(destination).sql == sql


@pytest.mark.parametrize(
    ("table", "destination"),
    [("due_late_v2", "late"), ("DUE_Late_v2", "Late"), ("due__v2", None), ("late", None)],
)
def test_the_destination_of_a_table_is_found_without_case(table: str, destination: str | None) -> None:
    assert table_name("a.due_{destination}_v2").destination_of(table) == destination


@pytest.mark.parametrize(
    ("name", "pattern", "template", "is_one"),
    [
        ("a.rejects", "r*", "a.{destination}", True),
        ("a.Rejects", "R*", "A.{destination}", True),
        ("spark_catalog.a.rejects", "*", "a.{destination}", True),
        ("rejects", "*", "default.{destination}", True),
        ("a.rejects", "late*", "a.{destination}", False),
        ("a.rejects", "*", "b.{destination}", False),
        ("a.rejects", "*", "main.a.{destination}", False),
        ("a.rejects", "*", "a.due_{destination}", False),
        ("a.due_rejects", "rejects", "a.due_{destination}", True),
        ("a.all", "late*", "a.ALL", True),
        ("a.all", "late*", "a.others", False),
    ],
)
def test_a_table_may_be_that_of_a_destination(
    name: str, pattern: str, template: str, *, is_one: bool
) -> None:
    assert may_be_one(table_name(name), pattern, table_name(template)) == is_one


def test_names_are_the_same_with_the_defaults_of_spark() -> None:
    assert is_same(table_name("due"), table_name("Spark_catalog.default.DUE"))
    assert not is_same(table_name("a.due"), table_name("b.due"))
