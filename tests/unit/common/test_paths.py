"""One folder inside another, however the two are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheel_udf.common import overlap


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/b/c", True),
        ("a/b/c", "a/b/", True),
        ("a/b", "a/bc", False),
        ("a/../a/./b", "a//b/c", True),
        ("/a", "/b", False),
        ("/", "/b", True),
        ("file:/a/b", "/a/b/c", True),
        ("file:///a/b", "/a/b", True),
        ("s3a://a/b", "s3a://a/b/c", True),
        ("s3a://a/b/../c", "s3a://a/c/d", True),
        ("s3a://a", "s3a://a/b", True),
        ("s3a://a/b", "s3a://c/b", False),
        ("s3a://a/b", "/a/b", False),
    ],
)
def test_two_folders_overlap_if_one_is_the_other_or_inside_it(one: str, other: str, expected: bool) -> None:
    assert overlap(one, other) is expected
    assert overlap(other, one) is expected


def test_a_relative_path_is_that_of_the_process_and_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "tables")
    assert overlap("a/b", str(Path.cwd() / "a"))
    assert overlap(str(tmp_path / "link" / "x"), str(tmp_path / "tables"))
