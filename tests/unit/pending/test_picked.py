"""The selection of an act, before Spark sees it."""

from __future__ import annotations

import pytest

from tests.hostile import BAD_NAMES
from wheel_udf.common.errors import ActError, ConfigError
from wheel_udf.pending.acts import Picked
from wheel_udf.pending.entries import PendingWork


def test_what_is_not_utf8_on_the_command_line_was_a_failure_of_the_gateway_to_the_jvm() -> None:
    not_utf8 = b"seq = '\xff'".decode(errors="surrogateescape")
    with pytest.raises(ActError, match=r"not a text: where = .*; rule: UTF-8"):
        Picked(where=not_utf8)
    with pytest.raises(ActError, match=r"not a text: id = .*; rule: UTF-8"):
        Picked(ids=["a", not_utf8])


def test_hostile_ids_are_selected_as_they_are() -> None:
    assert Picked(ids=BAD_NAMES).ids == BAD_NAMES
    with pytest.raises(ActError, match="without ids and without a predicate"):
        Picked()


@pytest.mark.parametrize(
    ("field", "given"),
    [("checkpoint", None), ("checkpoint", 7), ("store", "data/store"), ("contract", "strict")],
)
def test_a_place_of_another_type_is_refused_with_the_way_to_give_paths(field: str, given: object) -> None:
    values = {"checkpoint": "data/checkpoint"} | {field: given}
    with pytest.raises(
        ConfigError,
        match=rf"a value of another type: {field}.*PendingWork\.of\(spark, checkpoint, store\)",
    ):
        PendingWork(**values)  # type: ignore[arg-type]
