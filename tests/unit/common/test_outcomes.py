"""The words of the account: the type that settings use has the words that the operators count."""

from __future__ import annotations

from typing import get_args

from wheel_udf.common import DECIDED, Decided


def test_the_type_of_outcomes_that_settings_name_has_every_way_in_which_an_operation_ends() -> None:
    assert get_args(Decided) == DECIDED
