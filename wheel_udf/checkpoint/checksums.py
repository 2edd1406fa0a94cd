"""Checks the files of a checkpoint against the checksums beside them.

::

    offsets/.7.crc                       Hadoop's, on local file systems: CRC-32 of each 512 bytes     of any file
    state/0/1/8_<id>.changelog.crc       Spark's, on all file systems: size and CRC-32C, as JSON       of state files

Spark refuses a file if any of the two differs.

Cost: O(bytes). CRC-32C, a loop of Python, is computed only where Hadoop's checksums do not decide. A file is read into
memory.
"""

from __future__ import annotations

import struct
import zlib
from functools import cache
from typing import Final

from wheel_udf.spark.files import parsed_json
from wheel_udf.spark.folder import Folder

_HADOOP_HEAD: Final = b"crc\x00"
_POLYNOMIAL: Final = 0x82F63B78


def fault_of(files: Folder, name: str, content: bytes) -> str | None:
    """Compares the content of a file with all checksums beside it.

    Args:
        files: Folder of the checkpoint.
        name: The file, relative to it.
        content: Its content.

    Returns:
        What is wrong with it, as a clause; None if nothing is known to be wrong.
    """
    hadoops = _matches_hadoop(files, name, content)
    sparks = _matches_spark(files, f"{name}.crc", content, is_confirmed=hadoops is True)
    if hadoops is not False and sparks is not False:
        return None if content or hadoops or sparks else "it is empty"
    return "it does not match its checksum" if content else "it is empty"


def companions(files: Folder, name: str) -> list[str]:
    """The files of checksums that belong to a file."""
    known = (_hidden(name), f"{name}.crc", _hidden(f"{name}.crc"))
    return [each for each in known if files.read(each) is not None]


def _hidden(name: str) -> str:
    folder, slash, file = name.rpartition("/")
    return f"{folder}{slash}.{file}.crc"


def _matches_hadoop(files: Folder, name: str, content: bytes) -> bool | None:
    """Whether Hadoop's checksums fit; None without any."""
    checksums = files.read(_hidden(name))
    if checksums is None:
        return None
    if len(checksums) < 8 or not checksums.startswith(_HADOOP_HEAD) or len(checksums) % 4:
        return False
    step = struct.unpack(">I", checksums[4:8])[0]
    if not step:
        return False
    found = [zlib.crc32(content[at : at + step]) for at in range(0, len(content), step)]
    return found == list(struct.unpack(f">{len(checksums) // 4 - 2}I", checksums[8:]))


def _matches_spark(files: Folder, name: str, content: bytes, *, is_confirmed: bool) -> bool | None:
    """Whether Spark's checksum fits, and is sound itself; None without one."""
    checksum = files.read(name)
    if checksum is None:
        return None
    said, own = parsed_json(checksum), _matches_hadoop(files, name, checksum)
    if not isinstance(said, dict) or own is False:
        return False
    if said.get("algorithm") != "CRC32C":
        return None
    value = said.get("value")
    if said.get("mainFileSize") != len(content) or not isinstance(value, int):
        return False
    return (is_confirmed and own is True) or value & 0xFFFFFFFF == crc32c(content)


def crc32c(content: bytes) -> int:
    """The CRC-32C of bytes."""
    table, register = _table(), 0xFFFFFFFF
    for byte in content:
        register = table[(register ^ byte) & 0xFF] ^ (register >> 8)
    return register ^ 0xFFFFFFFF


@cache
def _table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [each >> 1 ^ (_POLYNOMIAL if each & 1 else 0) for each in table]
    return table
