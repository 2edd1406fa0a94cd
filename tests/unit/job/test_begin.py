"""The beginning of a run: its leases before Spark, the program loaded meanwhile, nothing left by a start that is
refused.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import yaml

from tests.unit.checkpoint.lease_world import MemoryFolder
from wheel_udf.checkpoint import file_lock
from wheel_udf.checkpoint.lease import Lease
from wheel_udf.checkpoint.lease_records import Holder
from wheel_udf.common.errors import GeometryChangedError, LeaseError
from wheel_udf.job import begin, loader
from wheel_udf.job.models.scheduler import JobConfig
from wheel_udf.store.lease import store_lease

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that this process holds is refused at once, without the wait for a query that has just ended."""
    monkeypatch.setattr(file_lock, "TRIES", 2)


def written(folder: Path, *, tiered: bool = False) -> Path:
    """A config with checkpoint (and store) in a folder."""
    sections = {
        "source": {
            "format": "json",
            "path": f"{folder}/in",
            "schema": "schedule_id STRING, deliver_at TIMESTAMP",
        },
        "clock": {"kind": "processing"},
        "destinations": {"out": {"sink": "delta", "path": f"{folder}/out", "create": True}},
        "rejects": {"sink": "delta", "path": f"{folder}/rejects", "create": True},
        "checkpoint": f"{folder}/checkpoint",
        "mode": "tiered" if tiered else "direct",
    }
    file = folder / "job.yml"
    file.write_text(yaml.safe_dump(sections | ({"store": {"path": f"{folder}/store"}} if tiered else {})))
    return file


def config_in(folder: Path, *, tiered: bool = False) -> JobConfig:
    return loader.load(written(folder, tiered=tiered), [])


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """No session can be built."""

    @contextmanager
    def refuse(*_: object) -> Iterator[None]:
        raise AssertionError("a session was built")
        yield

    monkeypatch.setattr(begin, "session", refuse)


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("part", ["checkpoint", "checkpoint/intake", "checkpoint/wheel", "store/_wheel"])
def test_a_second_start_is_refused_before_spark(tmp_path: Path, part: str) -> None:
    config = config_in(tmp_path, tiered=part != "checkpoint")
    with Lease(f"{tmp_path}/{part}"), pytest.raises(LeaseError, match="the checkpoint is in use by process"):
        begin.run(config, None, print)


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("part", ["checkpoint/intake", "checkpoint/wheel", "store/_wheel"])
def test_a_second_start_in_an_object_store_is_refused_before_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    folders: dict[str, MemoryFolder] = {}
    monkeypatch.setattr(
        "wheel_udf.checkpoint.lease.open_folder", lambda path, **_: folders.setdefault(path, MemoryFolder())
    )
    for name in ("PYSPARK_GATEWAY_PORT", "HADOOP_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    text = written(tmp_path, tiered=True).read_text()
    for name in ("checkpoint", "store"):
        text = text.replace(f"{tmp_path}/{name}", f"s3a://bucket/{name}")
    (tmp_path / "job.yml").write_text(f"{text}lease: {{timeout: 10 seconds}}\n")
    config = loader.load(tmp_path / "job.yml", [])
    assert config.lease.timeout_ms == 10_000
    holder = replace(Holder.of_this_process(), pid=os.getppid(), started="")
    held = folders.setdefault(f"s3a://bucket/{part}", MemoryFolder())
    held.create("wheel.lease/0", json.dumps(asdict(holder)).encode())
    with pytest.raises(LeaseError, match=f"the checkpoint is in use by process {os.getppid()} on"):
        begin.run(config, None, print)
    assert [*held.files] == ["wheel.lease/0"]
    newest = [[*each.files.values()][-1] for each in folders.values() if each is not held and each.files]
    assert [json.loads(record) for record in newest] == [{"free": True}] * len(newest)


def test_a_second_start_ends_with_the_words_and_the_exit_code_of_a_lease_and_loads_no_pyspark(
    tmp_path: Path,
) -> None:
    file = written(tmp_path)
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from wheel_udf.job.cli import main; "
        f"code = main(['run', '--config', {str(file)!r}]); print(code, 'pyspark' in sys.modules)"
    )
    with Lease(f"{tmp_path}/checkpoint"):
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "1 False\n"
    first, *_ = ended.stderr.splitlines()
    assert first.startswith("error: the checkpoint is in use by process ")
    assert first.endswith(
        f": {tmp_path}/checkpoint/wheel.lease; hint: stop that one first, or use another checkpoint"
    )


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("tiered", [False, True])
def test_a_start_that_fails_before_it_has_made_anything_leaves_nothing(
    tmp_path: Path, *, tiered: bool
) -> None:
    config = config_in(tmp_path, tiered=tiered)
    with pytest.raises(AssertionError, match="a session was built"):
        begin.run(config, None, print)
    assert [each.name for each in tmp_path.iterdir()] == ["job.yml"]


def test_the_lease_of_a_store_is_not_taken_before_there_is_one(tmp_path: Path) -> None:
    with begin.leases_of(config_in(tmp_path, tiered=True)):
        assert not (tmp_path / "store").exists()
        with store_lease(f"{tmp_path}/store") as free:
            assert free.is_held


def test_a_tiered_start_in_the_folder_of_a_direct_one_puts_nothing_into_it(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "wheel.json").write_text(
        '{"format_version": 1, "wheel": "w", "shards": 2, "clock": "event", "app_id": "a", "package_version": "0"}'
    )
    with pytest.raises(GeometryChangedError, match="mode direct there, tiered here"):
        begin.leases_of(config_in(tmp_path, tiered=True))
    assert [each.name for each in checkpoint.iterdir()] == ["wheel.json"]


def test_a_module_is_loaded_meanwhile_and_its_fault_is_that_of_the_next_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "loaded_meanwhile.py").write_text("")
    (tmp_path / "broken_meanwhile.py").write_text("raise ImportError('broken')")
    with begin.loading("loaded_meanwhile"), begin.loading("broken_meanwhile"):
        pass
    assert "loaded_meanwhile" in sys.modules
    with pytest.raises(ImportError, match="broken"):
        __import__("broken_meanwhile")
