"""Paths and URIs of folders: which file system they name, which of them Hadoop can read, how Spark's readers take them.
No file system is asked.

A path is taken as Hadoop's ``Path`` takes it: what stands before a colon in front of the first slash is the scheme of
a URI, and ``%20`` is never decoded.

::

    folder         other                inside(folder, other)
    data/tables    data/tables/x/y      ("x", "y")
    data/tables    data/tables/         ()
    data/tables    data/tables2         None
    data/x         file:/work/data/x    (), if the process runs in /work
    s3a://a/x      s3a://b/x            None
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Final

from wheel_udf.common.errors import ConfigError

_PATTERN_CHARACTERS: Final = re.compile(r"[*?\[\]{}\\]")


def local_path(path: str) -> str | None:
    """Returns the path on the local file system that a path or a ``file:`` URI names; None for another file system."""
    uri = re.fullmatch(r"file:(?://)?(/.*)", path, re.DOTALL)
    if uri:
        return uri[1]
    return None if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path) else path


def as_pattern(path: str) -> str:
    r"""Escapes a path for Spark's readers of files, in which ``* ? [ ] { } \`` are wildcards."""
    return _PATTERN_CHARACTERS.sub(r"\\\g<0>", path)


def require_path(path: str, field: str | None = None) -> None:
    """Checks that Hadoop and Spark can hold a path or URI, and that it names the same folder there as in this process.

    Raises:
        ConfigError: They cannot; the error names the character.
    """
    bad = next((each for each in path if each == "\0" or "\ud800" <= each <= "\udfff"), None)
    if bad is not None:
        rule = "no file system has it in a name"
        raise ConfigError(f"a path with the character U+{ord(bad):04X}", field=field, value=path, rule=rule)
    if re.match(r"(file:)?//[^/]", path):
        what, hint = "a path with two slashes at its start", "one slash, or three after file:"
        raise ConfigError(
            what, field=field, value=path, rule="Hadoop takes the name behind them for a host", hint=hint
        )
    if re.match(r"[^/]*:", path) and not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", path):
        rule = "Hadoop takes what stands before it for the scheme of a URI"
        raise ConfigError(
            "a colon in the first name of a path", field=field, value=path, rule=rule, hint=f"./{path}"
        )
    local = local_path(path)
    names = re.sub(r"[^/]*:(//[^/]*)?", "", path, count=1) if local is None else str(Path(local).absolute())
    wildcard = _PATTERN_CHARACTERS.search(names)
    if ":" in names and wildcard is not None:
        what = f"a path with a colon and the character {wildcard[0]}"
        rule = "Spark reads such a path of files as a pattern, in which Hadoop allows no colon"
        raise ConfigError(what, field=field, value=names, rule=rule, hint="rename one of the folders")


def inside(folder: str, other: str) -> tuple[str, ...] | None:
    """The names that lead from a folder to another path; empty if they are one, None if the path is not inside.

    Symbolic links of the local file system are followed where they exist.
    """
    first, second = names_of(folder), names_of(other)
    return second[len(first) :] if second[: len(first)] == first else None


def names_of(path: str) -> tuple[str, ...]:
    """The names from the root on, the same for all ways to write one path; scheme and host are one name."""
    local = local_path(path)
    if local is not None:
        return PurePosixPath(os.path.realpath(local)).parts
    split = re.fullmatch(r"([^/]*:(?://[^/]*)?)(.*)", path, re.DOTALL)  # path has a colon
    root, names = split.groups()  # type: ignore[union-attr]
    return root, *PurePosixPath(normpath(names or "/")).parts
