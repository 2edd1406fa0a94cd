"""One folder inside another, however the two are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheel_udf.common.paths import inside


@pytest.mark.parametrize(
    ("folder", "other", "names"),
    [
        ("a/b", "a/b", ()),
        ("a/b", "a/b/c/d", ("c", "d")),
        ("a/b/c", "a/b", None),
        ("a/b", "a/bc", None),
        ("a/../a/./b/", "a//b/c", ("c",)),
        ("/", "/b", ("b",)),
        ("file:/a/b", "/a/b/c", ("c",)),
        ("/a/b", "file:///a/b", ()),
        ("s3a://a/b", "s3a://a/b/c", ("c",)),
        ("s3a://a/b/../c", "s3a://a/c/d", ("d",)),
        ("s3a://a", "s3a://a/b", ("b",)),
        ("s3a://a/b", "s3a://c/b", None),
        ("s3a://a/b", "/a/b", None),
    ],
)
def test_the_way_from_a_folder_to_what_is_inside_it(
    folder: str, other: str, names: tuple[str, ...] | None
) -> None:
    assert inside(folder, other) == names


def test_a_relative_path_is_that_of_the_process_and_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "tables")
    assert inside(str(Path.cwd() / "a"), "a/b") == ("b",)
    assert inside(str(tmp_path / "tables"), str(tmp_path / "link" / "x")) == ("x",)
