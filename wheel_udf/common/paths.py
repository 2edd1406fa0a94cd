"""Paths and URIs of folders, compared without a file system.

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
from pathlib import PurePosixPath
from posixpath import normpath


def inside(folder: str, other: str) -> tuple[str, ...] | None:
    """The names that lead from a folder to another path; empty if they are one, None if the path is not inside.

    Symbolic links of the local file system are followed where they exist.
    """
    first, second = _parts(folder), _parts(other)
    return second[len(first) :] if second[: len(first)] == first else None


def _parts(path: str) -> tuple[str, ...]:
    """The names from the root on; the scheme and the host count as one of them."""
    local = re.fullmatch(r"file:(?://)?(/.*)", path, re.DOTALL)
    remote = None if local else re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]+://[^/]*)(/.*)?", path, re.DOTALL)
    if remote:
        return remote[1], *PurePosixPath(normpath(remote[2] or "/")).parts
    return PurePosixPath(os.path.realpath(local[1] if local else path)).parts
