"""Where a running job answers: who finds it, who may read it, and what is left of it."""

from __future__ import annotations

import json
import stat
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from wheel_udf.api.place import RECORD, Place, announced, place_by_name, place_of
from wheel_udf.common.errors import ConfigError


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WHEEL_UDF_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("WHEEL_UDF_TOKEN", raising=False)
    return tmp_path / "state"


def place(checkpoint: Path | str, name: str = "orders", token: str = "secret-1") -> Place:
    return Place.of_this_process(name, str(checkpoint), "127.0.0.1", 4711, token)


def test_a_running_job_is_found_by_its_checkpoint_and_by_its_name(tmp_path: Path) -> None:
    with announced(place(tmp_path / "job")) as found:
        assert found is None
        there = place_of(f"file://{tmp_path}/job/")
        assert there == place_by_name("orders") == place(tmp_path / "job")
        assert place_of(str(tmp_path / "other")) is None
        assert place_by_name("other") is None
    assert place_of(str(tmp_path / "job")) is None


def test_its_user_alone_can_read_the_token_and_the_record_beside_the_lease_has_none(tmp_path: Path) -> None:
    with announced(place(tmp_path / "job")):
        file = place(tmp_path / "job").file
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        record = (tmp_path / "job" / RECORD).read_text()
    assert "secret-1" not in record
    assert json.loads(record)["token_file"] == str(file)
    assert json.loads(record)["port"] == 4711
    assert not file.exists()
    assert not (tmp_path / "job" / RECORD).exists()


def test_who_has_the_token_finds_the_job_by_the_record_beside_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with announced(place(tmp_path / "job")):
        monkeypatch.setenv("WHEEL_UDF_STATE", str(tmp_path / "of another user"))
        assert place_of(str(tmp_path / "job")) is None
        monkeypatch.setenv("WHEEL_UDF_TOKEN", "secret-1")
        assert place_of(str(tmp_path / "job")) == place(tmp_path / "job")


def test_a_run_that_ends_late_leaves_the_place_of_the_next_one(tmp_path: Path) -> None:
    later = place(tmp_path / "job", token="secret-2")
    with announced(place(tmp_path / "job")):
        later.file.write_text(json.dumps({**json.loads(later.file.read_text()), "token": "secret-2"}))
    assert place_of(str(tmp_path / "job")) == later


def test_a_driver_that_was_taken_over_leaves_the_record_of_the_other_one(tmp_path: Path) -> None:
    other = replace(place(tmp_path / "job"), host="another", token="secret-2")
    with announced(place(tmp_path / "job")):
        (tmp_path / "job" / RECORD).write_text(json.dumps(other.public()))
    assert json.loads((tmp_path / "job" / RECORD).read_text())["host"] == "another"


def test_a_job_on_all_addresses_is_reached_by_name_from_elsewhere() -> None:
    here = replace(place("/job"), address="0.0.0.0")
    assert here.reached_at == "localhost"
    assert replace(here, host="driver-1").reached_at == "driver-1"
    assert place("/job").reached_at == "127.0.0.1"


def test_a_name_of_two_jobs_is_refused_with_both_checkpoints(tmp_path: Path) -> None:
    with announced(place(tmp_path / "a")), announced(place(tmp_path / "b")):
        with pytest.raises(ConfigError, match=r"several jobs have this name.*/a.*/b"):
            place_by_name("orders")
        assert place_of(str(tmp_path / "b")) == place(tmp_path / "b")


def test_what_a_killed_run_has_left_does_not_hide_the_run_of_another_checkpoint(tmp_path: Path) -> None:
    killed = replace(place(tmp_path / "a"), pid=2**22 + 1)  # above the highest pid
    with announced(place(tmp_path / "a")):
        killed.file.write_text(json.dumps(asdict(killed)))
        with announced(place(tmp_path / "b")):
            assert place_by_name("orders") == place(tmp_path / "b")
        assert place_by_name("orders") == killed


def test_what_a_killed_run_has_left_under_another_name_goes_with_the_next_start(
    tmp_path: Path, state: Path
) -> None:
    killed = place(tmp_path / "job", name="a")
    (state / "jobs").mkdir(parents=True)
    killed.file.write_text(json.dumps(asdict(killed)))
    with announced(place(tmp_path / "job")):
        assert place_of(str(tmp_path / "job")) == place(tmp_path / "job")
        assert place_by_name("a") is None


def test_who_has_no_home_finds_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("WHEEL_UDF_STATE")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert place_of("/job") is None
    assert place_by_name("orders") is None


def test_a_file_that_is_none_of_ours_is_passed_over(tmp_path: Path, state: Path) -> None:
    with announced(place(tmp_path / "job")):
        (state / "jobs" / "a.json").write_text("not JSON")
        (state / "jobs" / "b.json").write_text('{"name": "orders"}')
        assert place_by_name("orders") == place(tmp_path / "job")
