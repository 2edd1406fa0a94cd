"""Paths and URIs of folders, compared without a file system.

::

    data/tables, data/tables/x           overlap: one is inside the other
    data/tables, data/tables2            do not
    data/x, file:/work/data/x            overlap, if the process runs in /work
    s3a://a/x, s3a://b/x                 do not
"""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from posixpath import normpath


def overlap(one: str, other: str) -> bool:
    """Whether two folders are the same, or one of them is inside the other. Symbolic links are followed where they exist."""
    (_, first), (_, second) = sorted((len(parts), parts) for parts in map(_parts, (one, other)))
    return second[: len(first)] == first


def _parts(path: str) -> tuple[str, ...]:
    """The names from the root on; the scheme and the host count as one of them."""
    local = re.fullmatch(r"file:(?://)?(/.*)", path, re.DOTALL)
    remote = None if local else re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]+://[^/]*)(/.*)?", path, re.DOTALL)
    if remote:
        return remote[1], *PurePosixPath(normpath(remote[2] or "/")).parts
    return PurePosixPath(os.path.realpath(local[1] if local else path)).parts
