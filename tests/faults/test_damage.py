"""Damage that a crash of the machine leaves in a checkpoint: the job goes on rightly, or refuses it and says what to
do.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults.chain import End, Running
from tests.faults.points import DIRECT, MODES, TIERED, Chain, Kill

if TYPE_CHECKING:
    from collections.abc import Callable

_ADVICE = re.compile(r"hint: .*(?:restore|delete|wheel-udf repair)")


def _newest(query: Path, log: str) -> int:
    return max(int(file.name) for file in (query / log).iterdir() if file.name.isdecimal())


def _commit_gone(query: Path) -> None:
    number = _newest(query, "commits")
    (query / "commits" / str(number)).unlink()
    (query / "commits" / f".{number}.crc").unlink(missing_ok=True)


def _state_file(query: Path) -> Path:
    """The file of the state that the next batch reads, of the part with most in it."""
    version = _newest(query, "commits") + 1
    found = [file for file in (query / "state" / "0").glob(f"[0-9]*/{version}_*") if file.name[0] != "."]
    return max(found, key=lambda file: file.stat().st_size)


def _state_torn(query: Path) -> None:
    file = _state_file(query)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _state_flipped(query: Path) -> None:
    file = _state_file(query)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x10
    file.write_bytes(bytes(content))


def _chunk_file(query: Path) -> Path:
    """The newest file of a chunk: the state that the next batch reads refers to it."""
    found = [file for file in (query / "chunks").glob("*/*-*") if file.name[0] != "."]
    return max(found, key=lambda file: file.stat().st_mtime_ns)


def _chunk_flipped(query: Path) -> None:
    file = _chunk_file(query)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x10
    file.write_bytes(bytes(content))


DAMAGE: dict[str, Callable[[Path], None]] = {
    "the newest file of a chunk is gone": lambda query: _chunk_file(query).unlink(),
    "a bit of the newest file of a chunk is flipped": _chunk_flipped,
    "the newest commit is gone": _commit_gone,
    "the newest file of the state is cut off": _state_torn,
    "a bit of the newest file of the state is flipped": _state_flipped,
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All modes, or one."""
    if "mode" in metafunc.fixturenames:
        metafunc.parametrize("mode", MODES if metafunc.config.getoption("--share") >= 1 else [DIRECT])


def _says_what_to_do(end: End) -> bool:
    return end.code > 0 and not end.transient and _ADVICE.search(end.sentence) is not None


def test_a_damaged_checkpoint_is_refused_with_what_to_do_or_costs_no_row(mode: str, tmp_path: Path) -> None:
    running = Running(tmp_path, Chain(mode, 3, (Kill("before the commit log", 3),)), files=12)
    running.kill(running.chain.kills[0])
    checkpoint, copy = tmp_path / "checkpoint0", tmp_path / "copy"
    for name, damage in DAMAGE.items():
        shutil.copytree(checkpoint, copy)
        damage(checkpoint / "wheel" if mode == TIERED else checkpoint)
        running.give(1)
        end = running.start("run")
        assert end.code == 0 or _says_what_to_do(end), f"{name}: {end}\n{running.log()}"
        if end.code != 0:
            shutil.rmtree(checkpoint)
            copy.rename(checkpoint)
        else:
            shutil.rmtree(copy)
    assert running.finish() == []
