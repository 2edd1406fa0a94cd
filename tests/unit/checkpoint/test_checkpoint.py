"""The identity of a checkpoint, its mode, and what is read from Spark's logs in it.

The logs of Spark in here are copies of what Spark 4.2 writes for a file source beside a Python source.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wheel_udf.checkpoint.identity import Identity, check_checkpoint, check_tiered_folder, open_checkpoint
from wheel_udf.checkpoint.lease import Lease
from wheel_udf.checkpoint.spark_logs import input_moved, last_planned, planned_batch
from wheel_udf.common.errors import CheckpointError, GeometryChangedError
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.clocks import StoreClock
from wheel_udf.control.source import is_clock_offset
from wheel_udf.purgatory.state import watch_fingerprint
from wheel_udf.store.layout import StoreLayout

WHEEL = "tick_ms=1000,size=20,levels=6"
METADATA = (
    '{"batchWatermarkMs":0,"batchTimestampMs":1795230300430,"conf":{"spark.sql.shuffle.partitions":"2"}}'
)


def start(folder: Path | str, **changes: Any) -> Identity:
    asked = {"name": "departures", "wheel_fingerprint": WHEEL, "shards": 4, "clock_kind": "event"} | changes
    return open_checkpoint(str(folder), **asked)


def plan(folder: Path, batch_id: int, *offsets: str, version: str = "v1") -> Path:
    (folder / "metadata").write_text('{"id":"d6df10ac-8cb1-44ad-9e12-46d13e2f9dbc"}')
    return write(folder / "offsets" / str(batch_id), "\n".join([version, METADATA, *offsets]))


def commit(folder: Path, batch_id: int) -> Path:
    return write(folder / "commits" / str(batch_id), 'v1\n{"nextBatchWatermarkMs":0}')


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    # Spark keeps a checksum beside each file; it is no entry of the log.
    file.with_name(f".{file.name}.crc").write_bytes(b"crc\x00")
    return file


def run_three_batches(folder: Path) -> None:
    """Batches 0 and 1 are done, 2 is planned."""
    for batch_id in range(3):
        plan(folder, batch_id, f'{{"logOffset":{batch_id}}}', f'{{"wheel_clock":{batch_id}}}')
    commit(folder, 0)
    commit(folder, 1)


# --- identity -------------------------------------------------------------------------------------


def test_the_first_start_writes_who_the_checkpoint_is_and_the_next_reads_it(tmp_path: Path) -> None:
    first = start(tmp_path / "new" / "checkpoint")
    assert (first.wheel, first.shards, first.clock, first.format_version) == (WHEEL, 4, "event", 12)
    assert start(tmp_path / "new" / "checkpoint") == first
    assert [file.name for file in (tmp_path / "new" / "checkpoint").iterdir()] == ["wheel.json"]


def test_an_empty_folder_and_a_file_uri_are_good_for_a_first_start(tmp_path: Path) -> None:
    first = start(f"file://{tmp_path}")
    assert start(f"file:{tmp_path}") == start(str(tmp_path)) == first


def test_a_renamed_job_keeps_its_transaction_id(tmp_path: Path) -> None:
    first = start(tmp_path)
    assert first.app_id.startswith("departures-")
    assert start(tmp_path, name="renamed").app_id == first.app_id


def test_a_fresh_checkpoint_never_gets_an_old_transaction_id(tmp_path: Path) -> None:
    assert start(tmp_path / "a").app_id != start(tmp_path / "b").app_id


def test_a_name_of_any_letters_makes_a_transaction_id_that_can_be_a_folder(tmp_path: Path) -> None:
    assert start(tmp_path, name="Zug/Ausfälle ../x").app_id.startswith("Zug-Ausf-lle-..-x-")


def test_another_geometry_is_refused_and_the_error_says_every_difference(tmp_path: Path) -> None:
    start(tmp_path)
    with pytest.raises(GeometryChangedError) as refused:
        start(tmp_path, wheel_fingerprint="tick_ms=1,size=20,levels=6", shards=8, clock_kind="processing")
    said = str(refused.value)
    assert f"wheel {WHEEL} there, tick_ms=1,size=20,levels=6 here" in said
    assert "shards 4 there, 8 here" in said
    assert "clock event there, processing here" in said
    assert str(tmp_path) in said
    assert start(tmp_path).shards == 4


def test_another_format_version_is_refused(tmp_path: Path) -> None:
    start(tmp_path)
    stored = json.loads((tmp_path / "wheel.json").read_text())
    (tmp_path / "wheel.json").write_text(json.dumps(stored | {"format_version": 99, "added_later": 1}))
    with pytest.raises(GeometryChangedError, match="format version 99 there, 12 here"):
        start(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"wheel": "x"}', "\x00" * 20])
def test_a_damaged_identity_is_an_error_and_no_fresh_start(tmp_path: Path, content: str) -> None:
    (tmp_path / "wheel.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"identity of the checkpoint is damaged: .*wheel\.json"):
        start(tmp_path)
    assert (tmp_path / "wheel.json").read_text() == content


def test_an_identity_with_a_wrong_type_is_damaged(tmp_path: Path) -> None:
    start(tmp_path)
    stored = json.loads((tmp_path / "wheel.json").read_text())
    (tmp_path / "wheel.json").write_text(json.dumps(stored | {"shards": "4"}))
    with pytest.raises(CheckpointError, match="damaged"):
        start(tmp_path)


def test_sparks_checkpoint_without_the_wheels_identity_is_refused(tmp_path: Path) -> None:
    run_three_batches(tmp_path)
    with pytest.raises(CheckpointError, match=r"checkpoint of Spark without wheel\.json"):
        start(tmp_path)


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.docx").touch()
    with pytest.raises(CheckpointError, match=r"not empty and holds no checkpoint.*thesis\.docx"):
        start(tmp_path)


def test_a_file_where_the_folder_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match=r"not a folder|not a file"):
        start(tmp_path / "file")


def test_a_start_that_died_while_it_wrote_the_identity_is_simply_made_again(tmp_path: Path) -> None:
    with Lease(str(tmp_path)):
        pass
    (tmp_path / ".wheel.json.draft").write_text('{"format_ver')
    assert start(tmp_path) == start(tmp_path)


def test_another_file_system_needs_a_session_and_says_so() -> None:
    with pytest.raises(CheckpointError, match="needs a running Spark session"):
        start("hdfs://namenode/checkpoints/departures")


# --- the mode -------------------------------------------------------------------------------------

LAYOUT = StoreLayout(Wheel(tick_ms=1_000, size=20, levels=6), state_levels=1).fingerprint()


def start_tiered_parts(folder: Path) -> None:
    start(folder / "intake", wheel_fingerprint=LAYOUT)
    start(folder / "wheel", clock_kind=StoreClock.kind)


def content(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_an_identity_tells_its_mode(tmp_path: Path) -> None:
    start_tiered_parts(tmp_path)
    modes = {
        "direct": start(tmp_path / "direct").mode,
        "purgatory": start(tmp_path / "purgatory", wheel_fingerprint=watch_fingerprint(WHEEL)).mode,
        "tiered intake": start(tmp_path / "intake", wheel_fingerprint=LAYOUT).mode,
        "tiered wheel": start(tmp_path / "wheel", clock_kind=StoreClock.kind).mode,
    }
    assert all(name.startswith(mode) for name, mode in modes.items()), modes


@pytest.mark.parametrize(("mode", "wheel"), [("direct", WHEEL), ("purgatory", watch_fingerprint(WHEEL))])
def test_a_direct_run_or_a_purgatory_on_a_tiered_checkpoint_is_refused_and_nothing_is_written(
    tmp_path: Path, mode: str, wheel: str
) -> None:
    start_tiered_parts(tmp_path)
    before = content(tmp_path)
    for _ in range(2):
        with pytest.raises(GeometryChangedError, match=f"mode tiered there, {mode} here"):
            start(tmp_path, wheel_fingerprint=wheel)
    assert content(tmp_path) == before


@pytest.mark.parametrize(("mode", "wheel"), [("direct", WHEEL), ("purgatory", watch_fingerprint(WHEEL))])
def test_a_tiered_run_on_the_checkpoint_of_another_mode_is_refused(
    tmp_path: Path, mode: str, wheel: str
) -> None:
    start(tmp_path, wheel_fingerprint=wheel)
    with pytest.raises(GeometryChangedError, match=f"mode {mode} there, tiered here") as refused:
        check_tiered_folder(str(tmp_path))
    assert "intake" not in str(refused.value)


def test_direct_runs_and_purgatories_refuse_each_other_by_their_modes(tmp_path: Path) -> None:
    start(tmp_path / "direct")
    with pytest.raises(GeometryChangedError, match="mode direct there, purgatory here"):
        start(tmp_path / "direct", wheel_fingerprint=watch_fingerprint(WHEEL))
    start(tmp_path / "purgatory", wheel_fingerprint=watch_fingerprint(WHEEL))
    with pytest.raises(GeometryChangedError, match="mode purgatory there, direct here"):
        start(tmp_path / "purgatory")


def test_a_direct_run_on_one_part_of_a_tiered_checkpoint_is_refused_and_so_is_a_tiered_one(
    tmp_path: Path,
) -> None:
    start_tiered_parts(tmp_path)
    for part in ("intake", "wheel"):
        with pytest.raises(GeometryChangedError, match="mode tiered there, direct here"):
            start(tmp_path / part)
        with pytest.raises(CheckpointError, match="hint: use the folder above it"):
            check_tiered_folder(str(tmp_path / part))


def test_a_tiered_run_refuses_a_checkpoint_of_spark_and_takes_a_new_folder_or_its_own(tmp_path: Path) -> None:
    check_tiered_folder(str(tmp_path / "new"))
    start_tiered_parts(tmp_path / "own")
    check_tiered_folder(str(tmp_path / "own"))
    (tmp_path / "sparks").mkdir()
    run_three_batches(tmp_path / "sparks")
    with pytest.raises(CheckpointError, match=r"checkpoint of Spark without wheel\.json"):
        check_tiered_folder(str(tmp_path / "sparks"))


def test_a_check_finds_what_a_start_finds_and_creates_nothing(tmp_path: Path) -> None:
    known_by = {"wheel_fingerprint": WHEEL, "shards": 4, "clock_kind": "event"}
    assert check_checkpoint(str(tmp_path / "new"), **known_by) is None
    assert not (tmp_path / "new").exists()
    first = start(tmp_path / "used")
    assert check_checkpoint(str(tmp_path / "used"), **known_by) == first
    with pytest.raises(GeometryChangedError, match="shards 4 there, 5 here"):
        check_checkpoint(str(tmp_path / "used"), **known_by | {"shards": 5})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.docx").touch()
    with pytest.raises(CheckpointError, match="not empty and holds no checkpoint"):
        check_checkpoint(str(tmp_path / "other"), **known_by)


# --- what a kill leaves before the first batch is planned -----------------------------------------

METADATA_OF_SPARK = '{"id":"d6df10ac-8cb1-44ad-9e12-46d13e2f9dbc"}'
# As seen on a real start of Spark 4.2, in this order; the state comes after `offsets/0`.
STAGES: list[dict[str, str]] = [
    {".metadata.1f86.tmp": "{", "..metadata.1f86.tmp.crc": ""},
    {"metadata": ""},
    {"metadata": METADATA_OF_SPARK[:20], ".metadata.crc": "crc"},
    {"metadata": METADATA_OF_SPARK, "sources/1/.0.277e.tmp": "v", "sources/1/..0.277e.tmp.crc": ""},
    {"metadata": METADATA_OF_SPARK, "sources/1/0": "v1", "offsets/.0.3888.tmp": ""},
    {"metadata": METADATA_OF_SPARK, "offsets/.0.3888.tmp": "v1", "offsets/..0.3888.tmp.crc": "crc"},
    {"metadata": METADATA_OF_SPARK, "offsets/..0.3888.tmp.crc": "crc", "offsets/.0.crc": "crc"},
    {"offsets/.0.3888.tmp": "v1", "commits/.0.1850.tmp": "v1"},
]


@pytest.mark.parametrize("stage", STAGES, ids=" ".join)
def test_a_start_after_a_kill_before_the_first_plan_clears_what_spark_would_refuse(
    tmp_path: Path, stage: dict[str, str]
) -> None:
    first = start(tmp_path)
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
    for name, text in stage.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert start(tmp_path) == first
    assert [*(tmp_path / "offsets").iterdir(), *(tmp_path / "commits").iterdir()] == []
    kept = {name for name in stage if name.partition("/")[0] not in {"offsets", "commits"}}
    if stage.get("metadata") != METADATA_OF_SPARK:
        kept -= {"metadata", ".metadata.crc"}
    assert {name for name in stage if (tmp_path / name).exists()} == kept


def test_once_a_batch_is_planned_a_start_deletes_nothing(tmp_path: Path) -> None:
    first = start(tmp_path)
    plan(tmp_path, 0, '{"logOffset":0}')
    (tmp_path / "offsets" / ".1.3888.tmp").touch()
    (tmp_path / "state" / "0").mkdir(parents=True)
    before = content(tmp_path)
    assert start(tmp_path) == first
    assert content(tmp_path) == before


# --- Spark's logs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["metadata", "offsets/2", "commits/1"])
@pytest.mark.parametrize("kept", [0, 1, 4, -3])
def test_a_cut_off_newest_entry_is_an_error_that_names_the_file(tmp_path: Path, name: str, kept: int) -> None:
    start(tmp_path)
    run_three_batches(tmp_path)
    text = (tmp_path / name).read_text()
    (tmp_path / name).write_text(text[:kept])
    with pytest.raises(CheckpointError, match=f"{tmp_path / name}.*hint: "):
        start(tmp_path)


def test_a_plan_that_was_cut_off_at_the_end_of_a_line_is_damaged(tmp_path: Path) -> None:
    start(tmp_path)
    run_three_batches(tmp_path)
    plan(tmp_path, 2, '{"logOffset":2}')
    with pytest.raises(CheckpointError, match=r"lacks sources \['1'\] of the batch before"):
        start(tmp_path)


def test_a_plan_of_an_unknown_format_is_refused(tmp_path: Path) -> None:
    start(tmp_path)
    plan(tmp_path, 0, '{"logOffset":2}', version="v3")
    with pytest.raises(CheckpointError, match="its format is 'v3'"):
        start(tmp_path)


def test_missing_metadata_would_make_a_new_query_in_silence_so_it_is_an_error(tmp_path: Path) -> None:
    start(tmp_path)
    run_three_batches(tmp_path)
    (tmp_path / "metadata").unlink()
    with pytest.raises(CheckpointError, match="id of the query is missing"):
        start(tmp_path)


def test_missing_plans_would_read_the_input_from_its_start_so_they_are_an_error(tmp_path: Path) -> None:
    start(tmp_path)
    commit(tmp_path, 0)
    with pytest.raises(CheckpointError, match="log of planned batches is gone"):
        start(tmp_path)
    (tmp_path / "commits" / "0").unlink()
    (tmp_path / "state" / "0").mkdir(parents=True)
    with pytest.raises(CheckpointError, match="log of planned batches is gone"):
        start(tmp_path)


@pytest.mark.parametrize("lost", [("offsets", (1, 2)), ("commits", (1,)), ("commits", (0, 1))])
def test_plans_and_commits_that_do_not_follow_each_other_are_an_error(
    tmp_path: Path, lost: tuple[str, tuple[int, ...]]
) -> None:
    start(tmp_path)
    run_three_batches(tmp_path)
    for batch_id in lost[1]:
        (tmp_path / lost[0] / str(batch_id)).unlink()
    with pytest.raises(CheckpointError, match=r"newest planned batch is .* newest committed one is"):
        start(tmp_path)


def test_sound_logs_are_accepted_before_between_and_after_batches(tmp_path: Path) -> None:
    first = start(tmp_path)
    (tmp_path / "metadata").write_text('{"id":"d6df10ac-8cb1-44ad-9e12-46d13e2f9dbc"}')
    assert start(tmp_path) == first
    plan(tmp_path, 0, '{"logOffset":0}', "-")
    assert start(tmp_path) == first
    commit(tmp_path, 0)
    assert start(tmp_path) == first


def test_the_planned_batch_is_the_one_without_a_commit(tmp_path: Path) -> None:
    assert planned_batch(str(tmp_path / "none")) is None
    assert last_planned(str(tmp_path / "none")) is None
    start(tmp_path)
    assert planned_batch(str(tmp_path)) is None
    plan(tmp_path, 0, "-")
    assert (planned_batch(str(tmp_path)), last_planned(str(tmp_path))) == (0, 0)
    commit(tmp_path, 0)
    assert (planned_batch(str(tmp_path)), last_planned(str(tmp_path))) == (None, 0)
    for batch_id in range(1, 11):  # 10 is after 9, whatever their names say
        plan(tmp_path, batch_id, "-")
        commit(tmp_path, batch_id - 1)
    assert (planned_batch(str(tmp_path)), last_planned(str(tmp_path))) == (10, 10)


@pytest.mark.parametrize(
    ("before", "now", "moved"),
    [
        (['{"logOffset":0}', '{"wheel_clock":1}'], ['{"logOffset":0}', '{"wheel_clock":2}'], False),
        (['{"logOffset":0}', '{"wheel_clock":1}'], ['{"logOffset":1}', '{"wheel_clock":2}'], True),
        (['{"logOffset":0}', '{"wheel_clock":1}'], ['{"logOffset":1}', '{"wheel_clock":1}'], True),
        (["-", '{"wheel_clock":1}'], ["-", '{"wheel_clock":2}'], False),
        (["-", '{"wheel_clock":1}'], ['{"logOffset":0}', '{"wheel_clock":1}'], True),
        (['{"t":{"0":1,"1":2}}', '{"wheel_clock":1}'], ['{"t":{"1":2,"0":1}}', '{"wheel_clock":2}'], False),
        (["5", '{"wheel_clock":1}'], ["5", '{"wheel_clock":2}'], False),
    ],
)
def test_input_has_moved_when_a_source_other_than_the_clock_has(
    tmp_path: Path, before: list[str], now: list[str], moved: bool
) -> None:
    plan(tmp_path, 3, *before)
    plan(tmp_path, 4, *now)
    assert input_moved(str(tmp_path), 4, is_clock_offset) is moved


def test_the_first_batch_moves_input_unless_only_the_clock_has_an_offset(tmp_path: Path) -> None:
    plan(tmp_path, 0, "-", '{"wheel_clock":1}')
    assert not input_moved(str(tmp_path), 0, is_clock_offset)
    plan(tmp_path, 0, '{"logOffset":0}', '{"wheel_clock":1}')
    assert input_moved(str(tmp_path), 0, is_clock_offset)


def test_plans_that_are_keyed_by_source_id_are_read_too(tmp_path: Path) -> None:
    plan(tmp_path, 0, '1:{"wheel_clock":1}', version="v2")
    plan(tmp_path, 1, '1:{"wheel_clock":2}', version="v2")
    plan(tmp_path, 2, '0:{"logOffset":0}', '1:{"wheel_clock":3}', version="v2")
    plan(tmp_path, 3, '1:{"wheel_clock":4}', '0:{"logOffset":0}', version="v2")
    moved = [input_moved(str(tmp_path), batch_id, is_clock_offset) for batch_id in range(4)]
    assert moved == [False, False, True, False]


def test_a_batch_without_a_plan_cannot_be_asked(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="plan of a batch is missing"):
        input_moved(str(tmp_path), 7, is_clock_offset)
