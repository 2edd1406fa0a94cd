"""Records of a fixed width in base64: any of them are read without the others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from wheel_udf.wheel.fixed_records import characters, single, to_text, windows


@given(size=st.integers(1, 40), width=st.integers(1, 9), data=st.data())
def test_records_are_read_alone_and_in_windows(size: int, width: int, data: st.DataObject) -> None:
    records = np.arange(size * width, dtype=np.uint64).astype(np.uint8).reshape(size, width)
    text = to_text(records)
    places = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=6)))
    ends = np.array([data.draw(st.integers(place, size)) for place in places.tolist()])

    assert len(text) == characters(size, width)
    assert (single("before" + text, 6, width, places) == records[places]).all()
    found = windows("before" + text, 6, width, size, places, ends)
    expected = np.concatenate([records[a:b] for a, b in zip(places, ends, strict=True)])
    assert (found == expected).all()


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_the_last_records_are_filled_up_to_three(size: int) -> None:
    assert len(to_text(np.ones((size, 5), np.uint8))) == -(-size // 3) * 20
