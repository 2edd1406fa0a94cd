"""A checkpoint as Spark 4.2 leaves it, in plain files with their checksums, and ways to damage it."""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from io import BytesIO
from pathlib import Path

from wheel_udf.checkpoint.checksums import crc32c

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1795230300430,"conf":{}}'
PARTITIONS = 2


def put(file: Path, content: bytes) -> Path:
    """Writes a file and Hadoop's checksums of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    sums = [zlib.crc32(content[at : at + 512]) for at in range(0, len(content), 512)]
    file.with_name(f".{file.name}.crc").write_bytes(b"crc\x00" + struct.pack(f">I{len(sums)}I", 512, *sums))
    return file


def plan(folder: Path, batch: int) -> Path:
    """The plan of a batch that has read one more file."""
    lines = ["v1", METADATA, f'{{"wheel_clock":{batch}}}', f'{{"logOffset":{batch}}}']
    return put(folder / "offsets" / str(batch), "\n".join(lines).encode())


def commit(folder: Path, batch: int) -> Path:
    """The commit of a batch; it names the writer of its state."""
    ids = {"0": [[f"w{batch}"] for _ in range(PARTITIONS)]}
    text = json.dumps({"nextBatchWatermarkMs": 0, "stateUniqueIds": ids})
    return put(folder / "commits" / str(batch), f"v2\n{text}".encode())


def state(folder: Path, batch: int, *, since: int = 1) -> list[Path]:
    """What a batch has changed in each partition, since the snapshot of a version."""
    return [changes(folder, partition, batch, since) for partition in range(PARTITIONS)]


def changes(folder: Path, partition: int, batch: int, since: int) -> Path:
    """What a batch has changed in one partition: a block as LZ4 writes one that does not get smaller."""
    earlier = [{"version": each, "checkpointUniqueId": f"w{each - 1}"} for each in range(since, batch + 1)]
    lineage = json.dumps(earlier, separators=(",", ":")).encode()
    block = b"\x00\x02v3\x00\x00" + lineage + b"changes of the shards"
    return with_checksum(
        folder / "state" / "0" / str(partition) / f"{batch + 1}_w{batch}.changelog",
        b"LZ4Block\x15" + struct.pack("<III", len(block), len(block), 0) + block,
    )


def snapshot(folder: Path, version: int) -> list[Path]:
    """A snapshot of each partition, with one file of RocksDB."""
    made = []
    for partition in range(PARTITIONS):
        place = folder / "state" / "0" / str(partition)
        put(place / "SSTs" / f"{version:06}-a.sst", b"rows")
        packed = BytesIO()
        with zipfile.ZipFile(packed, "w") as file:
            named = {"sstFiles": [{"dfsSstFileName": f"{version:06}-a.sst"}]}
            file.writestr("metadata", f"v1\n{json.dumps(named)}")
        made.append(with_checksum(place / f"{version}_w{version - 1}.zip", packed.getvalue()))
    return made


def with_checksum(file: Path, content: bytes) -> Path:
    """Writes a file of the state and Spark's checksum of it."""
    value = crc32c(content)
    signed = value - (1 << 32) if value >= 1 << 31 else value
    said = {"algorithm": "CRC32C", "value": signed, "mainFileSize": len(content)}
    put(file.with_name(f"{file.name}.crc"), json.dumps(said).encode())
    return put(file, content)


def run(folder: Path, committed: int, *, planned: bool = False) -> Path:
    """A checkpoint with batches 0 to `committed`, and one more that is planned."""
    put(folder / "metadata", b'{"id":"d6df10ac-8cb1-44ad-9e12-46d13e2f9dbc"}')
    for batch in range(committed + 1):
        put(folder / "sources" / "1" / str(batch), b"v1\n{}")
        plan(folder, batch)
        state(folder, batch)
        commit(folder, batch)
    if planned:
        plan(folder, committed + 1)
    return folder


def flip(file: Path) -> None:
    """Changes one bit in the middle."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x10
    file.write_bytes(content)


def tear(file: Path) -> None:
    """Keeps the first half."""
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def lose(file: Path) -> None:
    """Removes a file with its checksums."""
    for each in (file, *file.parent.glob(f".{file.name}*"), file.with_name(f"{file.name}.crc")):
        each.unlink(missing_ok=True)
