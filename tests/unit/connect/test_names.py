"""Names of tables, and the allow-list of ``deliver_outbox``."""

from __future__ import annotations

import pytest

from wheel_udf.connect.routing import Route, route_faults, targets_of
from wheel_udf.connect.tables import TableName, checkpoint_fault, is_table_name, name_fault

ORDERS = Route("orders_*", TableName("main", "shop", "due_{destination}"))
AUDIT = Route("audit", TableName("main", "ops", "audit"))


@pytest.mark.parametrize("text", ["orders", "shop.orders", "main.shop.orders-2", "A.b_c.0"])
def test_the_name_of_a_table_has_one_to_three_parts(text: str) -> None:
    assert is_table_name(text)
    assert name_fault("table", text) is None


@pytest.mark.parametrize(
    "text", ["", ".", "a.", "a.b.c.d", "a b", "a`b", "a;b", "ä", "a/b", "x" * 256, None, 7]
)
def test_anything_else_is_none_so_no_name_leads_out_of_its_quotes(text: object) -> None:
    assert not is_table_name(text)
    fault = name_fault("outbox", text)
    assert fault is not None
    assert str(fault).startswith("not the name of a table: outbox")


def test_a_name_is_quoted_part_by_part() -> None:
    name = TableName("main", "shop", "out-box")
    assert (name.plain, name.quoted) == ("main.shop.out-box", "`main`.`shop`.`out-box`")
    assert name.with_suffix("_routed").plain == "main.shop.out-box_routed"


@pytest.mark.parametrize("text", ["", " ", "/", None])
def test_an_empty_text_is_no_folder_of_checkpoints(text: object) -> None:
    assert checkpoint_fault(text) is not None
    assert checkpoint_fault("/Volumes/main/shop/wheel") is None


def test_each_destination_has_its_table_or_shares_one() -> None:
    found = targets_of(
        [ORDERS, AUDIT], ["orders_eu", "audit", "other", "orders_with.dot", "orders_" + "x" * 200]
    )
    assert sorted(each.plain for each in found) == ["main.ops.audit", "main.shop.due_orders_eu"]


def test_the_first_pattern_that_matches_decides() -> None:
    anything = Route("*", TableName("main", "shop", "rest"))
    assert {each.plain for each in targets_of([anything, AUDIT], ["audit"])} == {"main.shop.rest"}


@pytest.mark.parametrize(
    "destinations",
    [
        {"orders_*": "main.shop.due_{destination}"},
        {"a": "b"},
        {"*": "{destination}"},
    ],
)
def test_a_sound_allow_list(destinations: dict[str, str]) -> None:
    assert route_faults(destinations) == []


@pytest.mark.parametrize(
    ("destinations", "faults"),
    [
        ({}, ["no destination: destinations; rule: at least one pattern"]),
        ({"a b": "x"}, ["not a destination pattern"]),
        ({"a": "{destination}.x"}, ["not the name of a table"]),
        ({"a": "{destination}{destination}"}, ["not the name of a table"]),
        ({"a": "x.{other}"}, ["not the name of a table"]),
        ({"a b": "", "c": "d"}, ["not a destination pattern", "not the name of a table"]),
    ],
)
def test_all_faults_of_an_allow_list_are_reported(destinations: dict[str, str], faults: list[str]) -> None:
    found = [str(each) for each in route_faults(destinations)]
    assert len(found) == len(faults)
    assert all(text.startswith(fault) for text, fault in zip(found, faults, strict=True))
