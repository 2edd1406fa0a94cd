"""Golden checkpoints and stores: what a release has left, kept small, and continued by the tests of later ones.

::

    direct-8.tar.gz      in/ (the commands read)            checkpoint/
    tiered-8-2.tar.gz    in/                                checkpoint/   store/
    direct-5, tiered-5-2, direct-6, ..., watch-2            the same of the formats before, which this release goes on with
    shard-5.arrow, shard-6.arrow                            the state of a shard of these formats, for tests without Spark
    watch-3.tar.gz       operations/ events/                checkpoint/

The numbers are the format versions: of the state, of the store, of the purgatory's state. Absolute paths are replaced by :data:`PLACE`.
``python -m tests.golden.make`` makes them again; do that only when a format version is raised, and keep the old files.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Final

PLACE: Final = "/golden-place"
"""Stands for the folder in which a golden checkpoint was made."""

HERE: Final = Path(__file__).parent


def unpack(name: str, folder: Path) -> None:
    """Unpacks a golden checkpoint into a folder, as if it had been made there."""
    with tarfile.open(HERE / f"{name}.tar.gz") as packed:
        packed.extractall(folder, filter="data")
    for log in folder.glob("checkpoint/**/sources/*/[!.]*"):
        log.write_text(log.read_text().replace(PLACE, str(folder)))


def pack(name: str, folder: Path, parts: tuple[str, ...]) -> None:
    """Packs parts of a folder, without what a later start makes again.

    Raises:
        ValueError: A file other than the log of a source has the folder's path.
    """
    for log in folder.glob("checkpoint/**/sources/*/[!.]*"):
        log.write_text(log.read_text().replace(str(folder), PLACE))
    with tarfile.open(HERE / f"{name}.tar.gz", "w:gz", compresslevel=9) as packed:
        for file in sorted(each for part in parts for each in (folder / part).rglob("*")):
            if not file.is_file() or file.name.startswith(".") or file.suffix == ".lease":
                continue
            if str(folder).encode() in file.read_bytes():
                raise ValueError(file)
            packed.add(file, str(file.relative_to(folder)), filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
