"""The words of the account: the type that settings use has the words that the operators count."""

from __future__ import annotations

from typing import get_args

from tests.unit.wheel import heap_model
from wheel_udf.common.outcomes import CANCEL_OUTCOMES, DECIDED, SCHEDULE_OUTCOMES, Decided


def test_the_type_of_outcomes_that_settings_name_has_every_way_in_which_an_operation_ends() -> None:
    assert get_args(Decided) == DECIDED


def test_the_words_of_the_account_are_those_of_the_model_which_has_its_own() -> None:
    assert tuple(SCHEDULE_OUTCOMES) == heap_model.SCHEDULE_OUTCOMES
    assert tuple(CANCEL_OUTCOMES) == heap_model.CANCEL_OUTCOMES
