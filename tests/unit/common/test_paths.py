"""What a path names, which paths are refused, and one folder inside another, however the two are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile import PATH_NAME
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.paths import as_pattern, inside, local_path, names_of, require_path


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


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("a%20b/c d", "a%20b/c d"),
        ("file:/a%20b", "/a%20b"),
        ("file:///a b#c?d", "/a b#c?d"),
        ("./a:b", "./a:b"),
        ("/a:b", "/a:b"),
        ("hdfs:/a", None),
        ("s3a://a/b", None),
        ("s:/a", None),
    ],
)
def test_a_path_names_a_place_as_hadoop_takes_it(path: str, local: str | None) -> None:
    assert local_path(path) == local


def test_all_ways_to_write_one_path_have_the_same_names() -> None:
    ways = ("/a b/c", "file:/a b/c", "file:///a b//c/", "/a b/x/../c")
    assert {names_of(way) for way in ways} == {("/", "a b", "c")}
    assert names_of("hdfs:/a/../b") == ("hdfs:", "/", "b")


def test_the_pattern_of_a_path_has_no_wildcards() -> None:
    assert as_pattern(r"a*?[b]{c,d}\e f#%41") == r"a\*\?\[b\]\{c,d\}\\e f#%41"


@pytest.mark.parametrize(
    "path",
    [
        *(PATH_NAME, f"/{PATH_NAME}/x", f"file:/{PATH_NAME}", f"s3a://bucket/{PATH_NAME}"),
        *("./a:b", "/a:b/c+d", "s3a://a:1/b*", "hdfs:/a", "file:///a", " a ", "a\nb"),
    ],
)
def test_a_path_that_hadoop_can_hold_is_taken(path: str) -> None:
    require_path(path)


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("a\0b", "a path with the character U+0000: rule: no file system has it in a name"),
        ("a\udcffb", "a path with the character U+DCFF: rule: no file system has it in a name"),
        ("a:b", "a colon in the first name of a path: rule: Hadoop takes what stands before it for the scheme of a URI"),
        ("a b:c/d", "a colon in the first name of a path"),
        ("file:a", "a colon in the first name of a path"),
        ("//a/b", "a path with two slashes at its start: rule: Hadoop takes the name behind them for a host"),
        ("file://a/b", "a path with two slashes at its start"),
        ("/a:b/[c]", "a path with a colon and the character [: rule: Spark reads such a path of files as a pattern"),
        ("s3a://a/b*/c:d", "a path with a colon and the character *"),
        ("./a:b/c\\d", "a path with a colon and the character \\"),
    ],
)  # fmt: skip
def test_a_path_that_hadoop_would_take_for_another_is_refused_with_its_character(
    path: str, fault: str
) -> None:
    with pytest.raises(ConfigError) as error:
        require_path(path)
    shown = error.value
    assert f"{shown.what}: rule: {shown.rule}".startswith(fault)
