"""What is found in a damaged checkpoint, what is done about it, and why not more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from obstore.store import LocalStore

from tests.unit.checkpoint.damaged import commit, flip, lose, plan, put, run, snapshot, state, tear
from wheel_udf.checkpoint.checksums import crc32c, fault_of
from wheel_udf.checkpoint.inspection import Inspection, Resume
from wheel_udf.checkpoint.repair import Decision, Evidence, apply_repair, decide_repair
from wheel_udf.checkpoint.spark_logs import require_sound_logs
from wheel_udf.common.errors import CheckpointError
from wheel_udf.shard.chunk_files import ChunkFiles
from wheel_udf.spark.files import open_folder
from wheel_udf.spark.object_stores import folder_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NEWEST_STATE = "state/0/1/4_w3.changelog"
TABLE = "tables/out"
COMMIT_3 = ["commits/3", "commits/.3.crc"]
PLAN_4 = ["offsets/4", "offsets/.4.crc"]
STATE_4 = [
    f"state/0/{partition}/{name}"
    for partition in (0, 1)
    for name in (
        "4_w3.changelog",
        ".4_w3.changelog.crc",
        "4_w3.changelog.crc",
        ".4_w3.changelog.crc.crc",
    )
]


def decided(folder: Path, held: int | None = None, **known: object) -> Decision:
    """The decision when a table holds batches up to this one."""
    evidence = Evidence({} if held is None else {TABLE: held}, **known)  # type: ignore[arg-type]  # values by name
    return decide_repair(Inspection(str(folder)), evidence)


def named(decision: Decision) -> list[tuple[str, str]]:
    return [(each.name, each.what) for each in decision.damage]


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


# --- nothing to do --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("planned", "resume"), [(False, Resume(4, repeats=False)), (True, Resume(4, repeats=True))]
)
def test_a_sound_checkpoint_goes_on_after_its_newest_batch_or_repeats_it(
    tmp_path: Path, planned: bool, resume: Resume
) -> None:
    decision = decided(run(tmp_path, 3, planned=planned), held=3)
    assert (decision.is_sound, decision.resume, decision.harmless) == (True, resume, ())


def test_a_newest_batch_whose_commit_is_gone_is_a_planned_one(tmp_path: Path) -> None:
    lose(run(tmp_path, 3) / "commits/3")
    decision = decided(tmp_path, held=3)
    assert (decision.is_sound, decision.resume) == (True, Resume(3, repeats=True))


def test_a_checkpoint_without_batches_is_sound(tmp_path: Path) -> None:
    assert decided(tmp_path) == Decision(None)


@pytest.mark.parametrize("name", ["commits/1", "offsets/1"])
def test_an_old_entry_that_is_gone_is_reported_and_not_needed(tmp_path: Path, name: str) -> None:
    lose(run(tmp_path, 3) / name)
    decision = decided(tmp_path, held=3)
    assert decision.is_sound
    assert [(each.name, each.what) for each in decision.harmless] == [(name, "it is missing")]


def test_changes_behind_a_sound_snapshot_are_not_needed(tmp_path: Path) -> None:
    run(tmp_path, 3)
    snapshot(tmp_path, 3)
    state(tmp_path, 3, since=3)
    flip(tmp_path / "state/0/0/2_w1.changelog")
    decision = decided(tmp_path, held=3)
    assert decision.is_sound
    assert [each.name for each in decision.harmless] == ["state/0/0/2_w1.changelog"]


@pytest.mark.parametrize("damage", [lambda zipped: flip(zipped[0]), lambda zipped: lose(zipped[0])])
def test_a_snapshot_is_not_needed_if_there_is_an_older_one(
    tmp_path: Path, damage: Callable[[list[Path]], None]
) -> None:
    run(tmp_path, 3)
    snapshot(tmp_path, 2)
    damage(snapshot(tmp_path, 3))
    state(tmp_path, 3, since=3)
    assert decided(tmp_path, held=3).is_sound


def test_the_state_of_a_try_that_was_cut_off_is_not_needed(tmp_path: Path) -> None:
    run(tmp_path, 3, planned=True)
    tear(state(tmp_path, 4)[0])
    assert decided(tmp_path, held=3).is_sound


# --- the newest state -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "name", "what"),
    [
        (flip, NEWEST_STATE, "it does not match its checksum"),
        (tear, NEWEST_STATE, "it does not match its checksum"),
        (lambda file: file.write_bytes(b""), NEWEST_STATE, "it is empty"),
        (lose, "state/0/1", "version 4 of the state is missing"),
    ],
)
def test_a_damaged_newest_state_is_made_again_by_its_batch(
    tmp_path: Path, damage: Callable[[Path], None], name: str, what: str
) -> None:
    # The run that has found the damage had planned batch 4.
    damage(run(tmp_path, 3, planned=True) / NEWEST_STATE)
    decision = decided(tmp_path, held=3)
    assert named(decision) == [(name, what)]
    assert decision.resume == Resume(3, repeats=True)
    assert decision.steps == (
        "batch 3 is repeated with the rows of its plan: tables skip what they have of it",
        "batch 4 is planned anew: nothing was delivered of it",
    )
    there = [each for each in (*PLAN_4, *COMMIT_3, *STATE_4) if (tmp_path / each).exists()]
    assert list(decision.remove) == there


def test_a_flipped_byte_is_found_by_either_checksum_alone(tmp_path: Path) -> None:
    flip(run(tmp_path, 3) / NEWEST_STATE)
    for hidden in (tmp_path / "state").rglob(".*.crc"):
        hidden.unlink()
    assert named(decided(tmp_path)) == [(NEWEST_STATE, "it does not match its checksum")]


def test_older_changes_that_are_damaged_take_the_checkpoint_back_if_nothing_was_delivered_since(
    tmp_path: Path,
) -> None:
    flip(run(tmp_path, 3) / "state/0/0/2_w1.changelog")
    decision = decided(tmp_path, held=1)
    assert decision.resume == Resume(1, repeats=True)
    assert decision.steps[1] == "batches 2 to 3 are planned anew: nothing was delivered of them"
    assert [each for each in decision.remove if "." not in each] == [
        "offsets/3",
        "commits/3",
        "offsets/2",
        "commits/2",
        "commits/1",
    ]


def test_a_table_with_a_later_batch_keeps_the_checkpoint_from_going_back(tmp_path: Path) -> None:
    flip(run(tmp_path, 3) / "state/0/0/2_w1.changelog")
    decision = decided(tmp_path, held=2)
    assert (decision.remove, decision.steps) == ((), ())
    assert decision.refusals == (
        (
            "tables/out holds batch 2, and the checkpoint can only go on after batch 1: a new batch of that number would be taken for "
            "written, and its rows would be lost; restore the checkpoint from a copy that has batch 2"
        ),
    )


def test_the_only_snapshot_cannot_be_replaced_by_older_changes_as_spark_does_not_read_them(
    tmp_path: Path,
) -> None:
    run(tmp_path, 3)
    flip(snapshot(tmp_path, 3)[0])
    state(tmp_path, 3, since=3)
    decision = decided(tmp_path, held=3)
    assert named(decision) == [("state/0/0/3_w2.zip", "it does not match its checksum")]
    assert decision.resume == Resume(3, repeats=True)


def test_a_file_whose_checksum_is_damaged_is_taken_out_too_as_spark_refuses_it(tmp_path: Path) -> None:
    run(tmp_path, 3)
    flip(tmp_path / f"{NEWEST_STATE}.crc")
    decision = decided(tmp_path, held=3)
    assert named(decision) == [(NEWEST_STATE, "it does not match its checksum")]
    assert decision.resume == Resume(3, repeats=True)
    apply_repair(str(tmp_path), decision, str(tmp_path / "aside"))
    assert decided(tmp_path, held=3).is_sound


# --- plans and commits ----------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [flip, tear, lambda file: file.write_bytes(b"")])
def test_a_damaged_newest_commit_is_taken_out_and_its_batch_repeated(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    damage(run(tmp_path, 3) / "commits/3")
    decision = decided(tmp_path, held=3)
    assert [each.name for each in decision.damage] == ["commits/3"]
    assert decision.resume == Resume(3, repeats=True)
    assert decision.remove == (*COMMIT_3, *STATE_4)


def test_a_planned_batch_that_nothing_holds_is_taken_out_when_the_commit_before_is_gone(
    tmp_path: Path,
) -> None:
    lose(run(tmp_path, 3, planned=True) / "commits/3")
    decision = decided(tmp_path, held=3)
    assert named(decision) == [("commits/3", "it is missing")]
    assert decision.resume == Resume(3, repeats=True)
    assert decision.remove == (*PLAN_4, *STATE_4)


def test_what_batches_that_are_taken_out_could_not_deliver_goes_with_them(tmp_path: Path) -> None:
    folder = run(tmp_path, 3, planned=True)
    (folder / "returned").mkdir()
    for number, batch in enumerate((3, 4)):
        (folder / f"returned/{number}.json").write_text(json.dumps({"batch": batch, "rows": {}}))
    lose(folder / "commits/3")
    decision = decided(tmp_path, held=3)
    assert decision.resume == Resume(3, repeats=True)
    assert [name for name in decision.remove if name.startswith("returned")] == ["returned/1.json"]


def test_a_planned_batch_that_a_table_holds_stays(tmp_path: Path) -> None:
    lose(run(tmp_path, 3, planned=True) / "commits/3")
    decision = decided(tmp_path, held=4)
    assert decision.remove == ()
    assert [each.partition(",")[0] for each in decision.refusals] == ["tables/out holds batch 4"]


@pytest.mark.parametrize("damage", [flip, tear, lambda file: file.write_bytes(b"v1\n")])
def test_a_damaged_plan_is_made_anew_if_nothing_holds_its_batch(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    damage(run(tmp_path, 3, planned=True) / "offsets/4")
    decision = decided(tmp_path, held=3)
    assert (decision.resume, decision.remove) == (Resume(4, repeats=False), tuple(PLAN_4))
    assert decided(tmp_path, held=4).refusals != ()


def test_a_batch_whose_plan_and_commit_are_gone_is_known_by_its_state(tmp_path: Path) -> None:
    run(tmp_path, 3)
    lose(tmp_path / "commits/3")
    lose(tmp_path / "offsets/3")
    assert decided(tmp_path, held=2).resume == Resume(3, repeats=False)
    assert decided(tmp_path, held=3).refusals != ()
    assert decided(tmp_path, held=2, blind=["kafka"]).refusals != ()


def test_a_table_ahead_of_a_sound_checkpoint_is_refused_as_its_next_batch_would_be_skipped(
    tmp_path: Path,
) -> None:
    decision = decided(run(tmp_path, 3), held=5)
    assert (decision.damage, decision.is_sound) == ((), False)
    assert decision.refusals[0].startswith(
        "tables/out holds batch 5, and the checkpoint can only go on after batch 3"
    )


def test_without_any_plan_there_is_no_repair(tmp_path: Path) -> None:
    run(tmp_path, 1)
    for batch in (0, 1):
        lose(tmp_path / f"offsets/{batch}")
    decision = decided(tmp_path)
    assert decision.resume is None
    assert decision.refusals[0].startswith("no batch is left from which the checkpoint can go on; restore")


def test_the_first_batch_is_repeated_and_never_planned_anew(tmp_path: Path) -> None:
    tear(run(tmp_path, 0) / "commits/0")
    assert decided(tmp_path, held=0).resume == Resume(0, repeats=True)
    flip(tmp_path / "offsets/0")
    assert decided(tmp_path).resume is None


# --- what tables do not show ----------------------------------------------------------------------


def test_a_topic_has_nothing_of_a_batch_whose_state_is_not_stored(tmp_path: Path) -> None:
    lose(run(tmp_path, 3, planned=True) / "commits/3")
    assert (
        decided(tmp_path, blind=["kafka orders"])
        .steps[0]
        .endswith("; topics get its rows a second time, with the same fire_id")
    )
    lose(state(tmp_path, 4)[1])
    assert decided(tmp_path, blind=["kafka orders"]).refusals == ()


def test_a_topic_may_have_rows_of_a_batch_whose_state_is_stored(tmp_path: Path) -> None:
    lose(run(tmp_path, 3, planned=True) / "commits/3")
    state(tmp_path, 4)
    assert decided(tmp_path, blind=["kafka orders"]).refusals == (
        (
            "batch 4 would be planned anew, and it cannot be known whether kafka orders has rows of it; "
            "restore the checkpoint from a copy that has batch 4"
        ),
    )
    assert decided(tmp_path).refusals == ()


# --- the repetition of a committed batch ----------------------------------------------------------


def test_a_committed_batch_is_not_repeated_where_the_source_leaves_out_what_is_gone(tmp_path: Path) -> None:
    flip(run(tmp_path, 3) / NEWEST_STATE)
    assert decided(tmp_path, repeat_risk="source.options.failOnDataLoss is false").refusals == (
        "batch 3 would be repeated, and source.options.failOnDataLoss is false; restore the checkpoint from a copy",
    )


@pytest.mark.parametrize(("since", "refused"), [(0, False), (3, False), (4, True)])
def test_a_committed_batch_is_repeated_only_if_its_settings_are_on_record(
    tmp_path: Path, since: int, refused: bool
) -> None:
    flip(run(tmp_path, 3) / NEWEST_STATE)
    (tmp_path / "wheel-settings.json").write_text(f'[{{"from_batch": {since}, "settings": {{}}}}]')
    assert bool(decided(tmp_path).refusals) is refused


def test_the_batch_of_an_import_is_not_repeated(tmp_path: Path) -> None:
    flip(run(tmp_path, 0) / "state/0/0/1_w0.changelog")
    assert decided(tmp_path).refusals == ()
    (tmp_path / "wheel-import.json").write_text("{}")
    assert decided(tmp_path).refusals == (
        "batch 0 was made by an import; delete the checkpoint (and the store), and import again",
    )


# --- other files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [flip, tear, lose])
def test_the_id_of_the_query_is_made_anew(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    damage(run(tmp_path, 3) / "metadata")
    decision = decided(tmp_path, held=3)
    assert [each.name for each in decision.damage] == ["metadata"]
    apply_repair(str(tmp_path), decision, str(tmp_path / "aside"))
    assert decided(tmp_path, held=3).is_sound
    require_sound_logs(open_folder(str(tmp_path)))


@pytest.mark.parametrize("name", ["sources/1/2", "state/0/0/_metadata/schema", "state/0/_metadata/metadata"])
def test_what_nothing_replaces_is_named(tmp_path: Path, name: str) -> None:
    flip(put(run(tmp_path, 3) / name, b"v1 something"))
    flip(tmp_path / NEWEST_STATE)
    decision = decided(tmp_path, held=3)
    assert decision.refusals == (
        f"{name}: it does not match its checksum; restore the file from a copy; nothing in the checkpoint replaces it",
    )
    assert decision.remove == ()


def test_a_damaged_journal_of_settings_is_left_to_the_user(tmp_path: Path) -> None:
    (run(tmp_path, 3) / "wheel-settings.json").write_text("[{")
    assert decided(tmp_path).refusals == (
        "wheel-settings.json: it is damaged; restore the file from a copy; if no setting was changed before the last start, delete it",
    )


def test_a_checkpoint_of_the_first_format_has_no_ids_and_loses_all_state_that_is_not_kept(
    tmp_path: Path,
) -> None:
    run(tmp_path, 3)
    for batch in range(4):
        put(tmp_path / "commits" / str(batch), b'v1\n{"nextBatchWatermarkMs":0}')
        for partition in (0, 1):
            lose(tmp_path / f"state/0/{partition}/{batch + 1}_w{batch}.changelog")
            put(tmp_path / f"state/0/{partition}/{batch + 1}.changelog", b"changes")
    assert decided(tmp_path, held=3).is_sound
    tear(tmp_path / "state/0/0/4.changelog")
    decision = decided(tmp_path, held=3)
    assert decision.resume == Resume(3, repeats=True)
    assert [each for each in decision.remove if each.endswith(".changelog")] == [
        "state/0/0/4.changelog",
        "state/0/1/4.changelog",
    ]


# --- the repair -----------------------------------------------------------------------------------


def damaged(folder: Path) -> Path:
    flip(run(folder / "checkpoint", 3, planned=True) / NEWEST_STATE)
    return folder / "checkpoint"


def test_a_repair_takes_files_out_and_keeps_copies_of_them(tmp_path: Path) -> None:
    checkpoint = damaged(tmp_path)
    before, decision = content(checkpoint), decided(checkpoint, held=3)
    count = apply_repair(str(checkpoint), decision, str(tmp_path / "aside"))
    assert content(tmp_path / "aside") == {name: before[name] for name in decision.remove}
    assert count == len(decision.remove) == 12
    assert content(checkpoint) == {name: kept for name, kept in before.items() if name not in decision.remove}
    after = decided(checkpoint, held=3)
    assert (after.is_sound, after.resume) == (True, Resume(3, repeats=True))
    require_sound_logs(open_folder(str(checkpoint)))


@pytest.mark.parametrize("done", range(13))
def test_a_repair_that_is_killed_is_taken_up_by_the_next_one(tmp_path: Path, done: int) -> None:
    checkpoint = damaged(tmp_path)
    for name in decided(checkpoint, held=3).remove[:done]:
        (checkpoint / name).unlink()
    apply_repair(str(checkpoint), decided(checkpoint, held=3), str(tmp_path / "aside"))
    after = decided(checkpoint, held=3)
    assert (after.is_sound, after.resume) == (True, Resume(3, repeats=True))


def test_a_decision_changes_nothing(tmp_path: Path) -> None:
    checkpoint = damaged(tmp_path)
    before = content(checkpoint)
    decided(checkpoint, held=3)
    assert content(checkpoint) == before


def test_a_checkpoint_in_a_bucket_is_repaired_likewise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = damaged(tmp_path)
    before, decision = content(checkpoint), decided(checkpoint, held=3)
    store = LocalStore(tmp_path)
    monkeypatch.setattr(
        "wheel_udf.spark.files.object_folder",
        lambda path, **_: folder_in(store, path.removeprefix("s3a://bucket/"), "s3a://bucket"),
    )
    count = apply_repair("s3a://bucket/checkpoint", decision, "s3a://bucket/aside")
    assert count == len(decision.remove)
    assert content(tmp_path / "aside") == {name: before[name] for name in decision.remove}
    assert content(checkpoint) == {name: kept for name, kept in before.items() if name not in decision.remove}


# --- starts ---------------------------------------------------------------------------------------


def test_a_start_refuses_a_plan_that_is_missing_before_the_newest(tmp_path: Path) -> None:
    lose(run(tmp_path, 3) / "offsets/2")
    with pytest.raises(
        CheckpointError, match=r"plan of a batch is missing: .*offsets/2; hint: wheel-udf repair"
    ):
        require_sound_logs(open_folder(str(tmp_path)))


def test_a_start_with_a_commit_gone_before_a_planned_batch_names_the_repair(tmp_path: Path) -> None:
    lose(run(tmp_path, 3, planned=True) / "commits/3")
    with pytest.raises(CheckpointError, match=r"planned batch is 4 and .* is 2: .*hint: wheel-udf repair"):
        require_sound_logs(open_folder(str(tmp_path)))


# --- checksums ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"", 0),
        (b"a", 0xC1D04330),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
    ],
)
def test_crc32c_gives_the_values_of_the_standard(content: bytes, value: int) -> None:
    assert crc32c(content) == value


def test_a_file_without_checksums_is_taken_as_it_is_unless_it_is_empty(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    files = open_folder(str(tmp_path))
    assert fault_of(files, "file", b"x") is None
    assert fault_of(files, "file", b"") == "it is empty"


def test_the_plan_of_the_helpers_is_one_that_a_start_accepts(tmp_path: Path) -> None:
    run(tmp_path, 1)
    plan(tmp_path, 2)
    require_sound_logs(open_folder(str(tmp_path)))
    commit(tmp_path, 2)
    require_sound_logs(open_folder(str(tmp_path)))


# ---- files of chunks -----------------------------------------------------------------------------


def chunk_of(folder: Path, batch: int, text: str, before: Sequence[str] = ()) -> Path:
    """A batch whose state refers to one more file."""
    files = ChunkFiles(folder / "chunks" / "0", batch, 100, 1)
    name = files.keep(text)
    files.release_files(before, [*before, name])
    return files.folder / name


@pytest.mark.parametrize("damage", [flip, tear, lose])
def test_a_damaged_chunk_of_the_newest_state_is_made_again_by_its_batch(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    run(tmp_path, 5)
    old = chunk_of(tmp_path, 3, "an old chunk")
    new = chunk_of(tmp_path, 5, "a new chunk", [old.name])
    assert decided(tmp_path).is_sound

    damage(new)
    decision = decided(tmp_path)

    assert (decision.resume, decision.refusals) == (Resume(5, repeats=True), ())
    assert [each.name for each in decision.damage] == [f"chunks/0/{new.name}"]
    assert "commits/5" in decision.remove
    assert decision.remove[-1] == "chunks/0/refs/5"


def test_a_damaged_chunk_that_no_newer_state_refers_to_is_not_needed(tmp_path: Path) -> None:
    run(tmp_path, 5)
    old = chunk_of(tmp_path, 3, "an old chunk")
    ChunkFiles(old.parent, 4, 100, 1).release_files([old.name], [])
    flip(old)

    decision = decided(tmp_path)

    assert (decision.is_sound, [each.name for each in decision.harmless]) == (True, [f"chunks/0/{old.name}"])


def test_a_chunk_of_long_ago_takes_the_checkpoint_back_to_before_it_was_written(tmp_path: Path) -> None:
    run(tmp_path, 5)
    flip(chunk_of(tmp_path, 3, "an old chunk"))

    assert decided(tmp_path).resume == Resume(3, repeats=True)
    held = decided(tmp_path, held=5)
    assert f"{TABLE} holds batch 5" in held.refusals[0]


def test_a_damaged_note_of_chunks_is_reported_and_not_needed(tmp_path: Path) -> None:
    run(tmp_path, 5)
    chunk_of(tmp_path, 3, "an old chunk")
    tear(tmp_path / "chunks" / "0" / "refs" / "3")

    assert [each.name for each in decided(tmp_path).harmless] == ["chunks/0/refs/3"]
