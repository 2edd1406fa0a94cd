"""A contract that cannot work is refused where it is made, and so are commands without a column for the due time."""

from __future__ import annotations

from typing import Any

import pytest

from wheel_udf.commands.contract import Contract
from wheel_udf.commands.parse import require_due_column
from wheel_udf.common.errors import ConfigError, ConfigErrors, ContractError


def test_a_contract_without_arguments_limits_nothing() -> None:
    assert Contract() == Contract(None, None, None, None, None, None)


def test_a_list_of_destinations_becomes_a_tuple_so_that_the_contract_stays_as_it_was_checked() -> None:
    names: Any = ["orders", "reminders_*"]

    assert Contract(destinations=names).destinations == ("orders", "reminders_*")


@pytest.mark.parametrize("name", ["max_delay_ms", "max_value_bytes", "max_ahead_ms", "max_lateness_ms"])
@pytest.mark.parametrize("value", [-1, 2**63, True, 1.5, "1 minute"])
def test_a_limit_is_a_whole_number_from_0(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"not a limit: {name} = .*rule: a whole number from 0"):
        Contract(**{name: value})


@pytest.mark.parametrize(("name", "value"), [("most_missed", -1), ("most_missed", "x"), ("levels", "fixed")])
def test_what_a_series_or_a_level_is_read_with_is_checked_at_once(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name} = {value!r}"):
        Contract(**{name: value})


@pytest.mark.parametrize("value", [(), "orders", {"orders"}])
def test_an_allow_list_is_a_tuple_with_something_in_it(value: Any) -> None:
    with pytest.raises(ConfigError, match="not an allow-list: destinations"):
        Contract(destinations=value)


@pytest.mark.parametrize("pattern", ["", "a b", "../x", "a/*", "[ab]", "..", "x" * 250, 5])
def test_a_pattern_that_no_name_can_match_is_refused(pattern: Any) -> None:
    with pytest.raises(ConfigError, match="no destination can match: destinations"):
        Contract(destinations=("orders", pattern))


@pytest.mark.parametrize("name", ["", ".", "..", "../../x", "a b", "a\n", "x" * 250, 5])
def test_the_default_destination_is_well_named(name: Any) -> None:
    with pytest.raises(ConfigError, match="not a destination: default_destination"):
        Contract(default_destination=name)


def test_the_default_destination_is_an_allowed_one() -> None:
    assert Contract(destinations=("a*",), default_destination="abc").default_destination == "abc"
    with pytest.raises(ConfigError) as caught:
        Contract(destinations=("a*", "c"), default_destination="b")

    assert str(caught.value) == (
        "not an allowed destination: default_destination = 'b'; rule: one of a*, c; hint: add it to destinations"
    )


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ConfigErrors) as caught:
        Contract(max_delay_ms=-1, max_ahead_ms=-2, destinations=("a/b", "c d"))

    assert [fault.field for fault in caught.value.faults] == [
        "max_delay_ms",
        "max_ahead_ms",
        "destinations",
        "destinations",
    ]


@pytest.mark.parametrize(
    ("names", "hint"),
    [
        (["schedule_id", "dealy"], "rename dealy to delay"),
        (["schedule_id", "deliverAt", "destination"], "rename deliverAt to deliver_at"),
        (["schedule_id", "deliver_time"], "rename deliver_time to deliver_at"),
        (["schedule_id", "at"], "for cancels alone add a column delay of nulls"),
    ],
)
def test_commands_without_a_column_for_the_due_time_are_refused_and_the_closest_is_named(
    names: list[str], hint: str
) -> None:
    with pytest.raises(ContractError) as caught:
        require_due_column([*names, "source_coordinates", "_corrupt_record"])
    assert str(caught.value) == (
        f"the commands have no column with a due time: columns found = '{', '.join(names)}'; "
        f"rule: a column deliver_at or delay; hint: {hint}"
    )


def test_a_column_for_the_due_time_may_be_written_in_any_case_but_for_keys_of_json() -> None:
    require_due_column(["SCHEDULE_ID", "Delay"])
    require_due_column(["schedule_id", "deliver_at"], exact=True)
    with pytest.raises(ContractError, match="hint: rename Delay to delay"):
        require_due_column(["schedule_id", "Delay"], exact=True)
