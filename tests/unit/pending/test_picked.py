"""The selection of an act, before Spark sees it."""

from __future__ import annotations

import pytest

from tests.hostile import BAD_NAMES
from wheel_udf.common import ActError
from wheel_udf.pending.acts import Picked


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
