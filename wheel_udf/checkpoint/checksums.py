"""Checks the files of a checkpoint against the checksums beside them.

::

    offsets/.7.crc                       Hadoop's, on local file systems: CRC-32 of each 512 bytes     of any file
    state/0/1/8_<id>.changelog.crc       Spark's, on all file systems: size and CRC-32C, as JSON       of state files

A content that one checksum confirms is sound: where the other one differs, the file of that checksum is what is
damaged. Spark refuses a file if any of the two differs.

Cost: O(bytes); CRC-32C (numpy, many lanes at once) takes much longer than CRC-32. A file is read into memory.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from wheel_udf.spark.files import parsed_json
from wheel_udf.spark.folder import Folder

_HADOOP_HEAD: Final = b"crc\x00"
_LANE: Final = 256
_LANES: Final = 4096
_POLYNOMIAL: Final = 0x82F63B78

Words = np.ndarray[Any, np.dtype[np.uint32]]


@dataclass(frozen=True)
class Check:
    """The result of a check.

    Attributes:
        fault: What is wrong with the content, as a clause; None if nothing is known to be wrong.
        bad_checksums: Files of checksums that are damaged while the content is sound.
        is_checked: Whether there was any checksum.
    """

    fault: str | None
    bad_checksums: tuple[str, ...] = ()
    is_checked: bool = True


def check_file(files: Folder, name: str, content: bytes) -> Check:
    """Compares the content of a file with all checksums beside it.

    Args:
        files: Folder of the checkpoint.
        name: The file, relative to it.
        content: Its content.
    """
    verdicts = {
        checksum: matches
        for checksum, matches in (
            (_hidden(name), _matches_hadoop(files.read(_hidden(name)), content)),
            (f"{name}.crc", _matches_spark(files, f"{name}.crc", content)),
        )
        if matches is not None
    }
    if not verdicts:
        return Check("it is empty" if not content else None, is_checked=False)
    bad = [checksum for checksum, matches in verdicts.items() if not matches]
    if len(bad) == len(verdicts):
        return Check("it is empty" if not content else "it does not match its checksum")
    # A checksum of Spark has one of Hadoop's for itself.
    beside = [_hidden(each) for each in bad if each == f"{name}.crc"]
    return Check(None, (*bad, *(each for each in beside if files.read(each) is not None)))


def companions(files: Folder, name: str) -> list[str]:
    """The files of checksums that belong to a file."""
    known = (_hidden(name), f"{name}.crc", _hidden(f"{name}.crc"))
    return [each for each in known if files.read(each) is not None]


def _hidden(name: str) -> str:
    folder, slash, file = name.rpartition("/")
    return f"{folder}{slash}.{file}.crc"


def _matches_hadoop(checksums: bytes | None, content: bytes) -> bool | None:
    """Whether Hadoop's checksums fit; None without any."""
    if checksums is None:
        return None
    if len(checksums) < 8 or not checksums.startswith(_HADOOP_HEAD) or len(checksums) % 4:
        return False
    step = struct.unpack(">I", checksums[4:8])[0]
    if not step:
        return False
    found = [zlib.crc32(content[at : at + step]) for at in range(0, len(content), step)]
    return found == list(struct.unpack(f">{len(checksums) // 4 - 2}I", checksums[8:]))


def _matches_spark(files: Folder, name: str, content: bytes) -> bool | None:
    """Whether Spark's checksum fits, and is sound itself; None without one."""
    checksum = files.read(name)
    if checksum is None:
        return None
    said = parsed_json(checksum)
    if not isinstance(said, dict) or _matches_hadoop(files.read(_hidden(name)), checksum) is False:
        return False
    if said.get("algorithm") != "CRC32C":
        return None
    value = said.get("value")
    right_size = said.get("mainFileSize") == len(content)
    return right_size and isinstance(value, int) and value & 0xFFFFFFFF == crc32c(content)


def crc32c(content: bytes) -> int:
    """The CRC-32C of bytes.

    The register of a CRC is linear, so lanes of 256 bytes are computed at once, each from a register of 0, and then
    folded: the register of A is moved on by the length of B and added to that of B. The inverted register that a CRC
    starts with is the same as inverted first bytes.
    """
    if len(content) < 4:
        register = 0xFFFFFFFF
        for byte in content:
            register = int(_table()[(register ^ byte) & 0xFF]) ^ (register >> 8)
        return register ^ 0xFFFFFFFF
    data = np.frombuffer(content, np.uint8).copy()
    data[:4] ^= 0xFF
    # Zeros in front do not change a register of 0.
    lanes = np.concatenate([np.zeros(-len(data) % _LANE, np.uint8), data]).reshape(-1, _LANE)
    register = 0
    for at in range(0, len(lanes), _LANES):
        for word in _registers(lanes[at : at + _LANES]).tolist():
            register = _moved(register) ^ word
    return register ^ 0xFFFFFFFF


def _registers(lanes: np.ndarray[Any, np.dtype[np.uint8]]) -> Words:
    register = np.zeros(len(lanes), np.uint32)
    for column in np.ascontiguousarray(lanes.T):
        register = _table()[(register ^ column) & 0xFF] ^ (register >> 8)
    return register


def _moved(register: int) -> int:
    """A register after a lane of zeros."""
    first, second, third, fourth = _lane_tables()
    return (
        first[register & 0xFF]
        ^ second[register >> 8 & 0xFF]
        ^ third[register >> 16 & 0xFF]
        ^ fourth[register >> 24]
    )


@cache
def _table() -> Words:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1).astype(np.uint32)
    return table


@cache
def _lane_tables() -> list[list[int]]:
    """For each byte of a register, what each of its values becomes by a lane of zeros."""
    registers = np.concatenate(
        [np.arange(256, dtype=np.uint32) << np.uint32(shift) for shift in (0, 8, 16, 24)]
    )
    for _ in range(_LANE):
        registers = _table()[registers & 0xFF] ^ (registers >> 8)
    return [[int(word) for word in part] for part in registers.reshape(4, 256)]
