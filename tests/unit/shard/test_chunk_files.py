"""Files of chunks beside a checkpoint: read in part, never changed, removed when no state that Spark keeps refers to
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from obstore.store import LocalStore

from tests.unit.checkpoint.damaged import flip, tear
from wheel_udf.checkpoint.chunk_refs import ChunkRefs
from wheel_udf.common.errors import CheckpointError
from wheel_udf.shard import chunk_files
from wheel_udf.shard.chunk_files import ChunkFiles, ChunkPlace
from wheel_udf.spark.files import open_folder
from wheel_udf.spark.object_stores import folder_in

RETAIN = 3
OLDEST = RETAIN + 2
"""A file is there at least so many batches after it has left the state."""


@pytest.fixture(autouse=True)
def _another_process() -> None:
    """Each test is a process that has written and checked nothing yet."""
    chunk_files.forget_files()


def of_batch(folder: Path, batch: int) -> ChunkFiles:
    return ChunkFiles(folder, batch, RETAIN, 1)


def names_in(folder: Path) -> list[str]:
    return sorted(place.name for place in folder.iterdir() if place.is_file())


# ---- content -------------------------------------------------------------------------------------


def test_a_text_is_read_in_parts(tmp_path: Path) -> None:
    name = of_batch(tmp_path, 7).keep("header\n0123456789")

    text = of_batch(tmp_path, 8).open(name)

    assert (text[7:10], text[0:6], text[15:99]) == ("012", "header", "89")
    assert (text.index("\n", 0), text.index("5", 8)) == (6, 12)


def test_the_same_text_of_the_same_batch_has_the_same_name(tmp_path: Path) -> None:
    first, again = of_batch(tmp_path, 7).keep("a text"), of_batch(tmp_path, 7).keep("a text")

    assert first == again
    assert of_batch(tmp_path, 8).keep("a text") != first
    assert names_in(tmp_path) == sorted({first, of_batch(tmp_path, 8).keep("a text")})


def test_more_files_than_may_be_open_are_read(tmp_path: Path) -> None:
    files = replace(of_batch(tmp_path, 0), most_open=2)
    texts = [files.open(files.keep(f"text {n}")) for n in range(5)]

    assert [text[0:6] for text in (*texts, *texts)] == [f"text {n}" for n in range(5)] * 2


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"a file of the checkpoint is missing: .*/7-00") as raised:
        of_batch(tmp_path, 7).open("7-00")[0:1]
    assert "wheel-udf repair" in str(raised.value)


@pytest.mark.parametrize("damage", [flip, tear, lambda place: place.write_bytes(b"")])
def test_a_file_that_is_damaged_is_named(
    tmp_path: Path, damage: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = of_batch(tmp_path, 7).keep("a text of some length")
    damage(tmp_path / name)
    chunk_files.forget_files()

    with pytest.raises(CheckpointError, match=f"a file of the checkpoint is damaged: .*{name}"):
        of_batch(tmp_path, 8).open(name)[0:1]


def test_a_damaged_file_is_whole_again_when_its_batch_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = of_batch(tmp_path, 7).keep("a text of some length")
    tear(tmp_path / name)
    chunk_files.forget_files()

    assert of_batch(tmp_path, 7).keep("a text of some length") == name
    assert of_batch(tmp_path, 8).open(name)[0:6] == "a text"


def test_a_write_that_fails_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        of_batch(tmp_path, 7).keep("a text")
    assert names_in(tmp_path) == []


def test_a_place_travels_as_text() -> None:
    place = ChunkPlace("/data/a checkpoint", 100, None)

    assert ChunkPlace.from_text(place.to_text()) == place
    assert place.of_shard(3, 17) == ChunkFiles(Path("/data/a checkpoint/chunks/3"), 17, 100, None)


# ---- retention -----------------------------------------------------------------------------------


def test_a_file_that_the_state_no_longer_refers_to_stays_for_the_batches_that_spark_keeps(
    tmp_path: Path,
) -> None:
    first = of_batch(tmp_path, 0)
    old = first.keep("old")
    first.release_files((), [old])
    second = of_batch(tmp_path, 1)
    new = second.keep("new")
    second.release_files([old], [new])
    there = []
    for batch in range(2, 12):
        of_batch(tmp_path, batch).release_files([new], [new])
        there.append((tmp_path / old).exists())

    # The notes of batch 2 say what the oldest state refers to, once batch 2 is the oldest.
    assert there == [True] * OLDEST + [False] * (len(there) - OLDEST)
    assert (tmp_path / new).exists()


def test_the_notes_of_old_batches_are_removed_with_what_had_left(tmp_path: Path) -> None:
    name = of_batch(tmp_path, 0).keep("a text")
    for batch in range(20):
        of_batch(tmp_path, batch).release_files([name], [name])

    assert sorted(int(each) for each in names_in(tmp_path / "refs")) == list(range(19 - OLDEST, 20))


def test_a_shard_whose_chunks_are_all_in_the_row_has_no_folder(tmp_path: Path) -> None:
    of_batch(tmp_path / "0", 3).release_files((), [])

    assert not (tmp_path / "0").exists()


def test_files_of_tasks_that_were_killed_are_removed_by_a_later_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan = of_batch(tmp_path, 3).keep("never committed")
    (tmp_path / ".3-draft.77").write_bytes(b"half")
    name = of_batch(tmp_path, 4).keep("in use")
    of_batch(tmp_path, 4).release_files((), [name])
    assert names_in(tmp_path) == sorted([".3-draft.77", orphan, name]), (
        "the state of a batch before may be needed"
    )

    chunk_files.forget_files()
    of_batch(tmp_path, 4 + OLDEST).release_files([name], [name])

    assert names_in(tmp_path) == [name]


def test_a_damaged_note_removes_nothing(tmp_path: Path) -> None:
    name = of_batch(tmp_path, 0).keep("a text")
    of_batch(tmp_path, 0).release_files((), [name])
    (tmp_path / "refs" / "0").write_bytes(b'{"files": [')
    for batch in range(1, 12):
        of_batch(tmp_path, batch).release_files([name], [name])

    assert (tmp_path / name).exists()


@given(st.data())
def test_every_state_that_spark_keeps_is_readable_over_kills_repeats_and_repairs(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """The model: the names and texts of each committed version."""
    checkpoint = tmp_path_factory.mktemp("checkpoint")
    folder = checkpoint / "chunks" / "0"
    versions: dict[int, dict[str, str]] = {0: {}}
    oldest = 0
    for turn in range(data.draw(st.integers(1, 30))):
        batch = max(versions)
        before = versions[batch]
        if data.draw(st.booleans()):
            chunk_files.forget_files()
        files = of_batch(folder, batch)
        kept = {name: text for name, text in before.items() if data.draw(st.booleans())}
        added = [f"{turn} {n}" for n in range(data.draw(st.integers(0, 2)))]
        now = kept | {files.keep(text): text for text in added}
        end = data.draw(
            st.sampled_from(["commit", "commit", "commit", "kill before the note", "kill", "repair"])
        )
        if end != "kill before the note":
            files.release_files(list(before), list(now))
        if end == "commit":
            versions[batch + 1] = now
        if end == "repair":
            back = data.draw(st.integers(oldest, batch))
            versions = {version: names for version, names in versions.items() if version <= back}
            for name in ChunkRefs(open_folder(str(checkpoint))).notes_from(back):
                (checkpoint / name).unlink()
        # What an earlier batch has removed does not come back by a repair.
        oldest = max(oldest, max(versions) - RETAIN)
        for version in range(oldest, max(versions) + 1):
            for name, text in versions.get(version, {}).items():
                assert of_batch(folder, batch).open(name)[0:99] == text
    assert (
        len(names_in(folder) if folder.exists() else ())
        <= sum(len(names) for names in versions.values()) + 2 * 30
    )


# ---- in an object store --------------------------------------------------------------------------


class Requests:
    """The files of a shard in an object store, with a list of what was asked of it."""

    def __init__(self, place: Path) -> None:
        place.mkdir(exist_ok=True)
        self.files, self.asked = folder_in(LocalStore(place), "chunks/0", "s3a://bucket"), list[str]()

    def __getattr__(self, name: str) -> Any:
        def ask(*arguments: Any) -> Any:
            self.asked.append(name)
            return getattr(self.files, name)(*arguments)

        return ask


def test_a_cache_that_another_process_empties_costs_a_reader_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = remote(tmp_path, 7).keep("a text of some length")
    reader = remote(tmp_path, 8, "two")

    def gone(draft: Path, _place: Path) -> None:
        raise FileNotFoundError(f"{draft} was removed")

    monkeypatch.setattr(Path, "replace", gone)
    assert reader.open(name)[0:6] == "a text"


def remote(tmp_path: Path, batch: int, machine: str = "one") -> ChunkFiles:
    return ChunkFiles(tmp_path / machine, batch, RETAIN, 1, Requests(tmp_path / "store"))


def test_a_file_is_written_to_the_store_and_read_on_the_same_machine_without_a_request(
    tmp_path: Path,
) -> None:
    files = remote(tmp_path, 7)
    name = files.keep("a text")
    chunk_files.forget_files()
    later = remote(tmp_path, 8)

    assert later.open(name)[0:6] == "a text"
    assert (files.remote.asked, later.remote.asked) == (["replace"], [])


def test_another_machine_reads_a_file_from_the_store_once(tmp_path: Path) -> None:
    name = remote(tmp_path, 7).keep("a text")
    chunk_files.forget_files()
    first, second = remote(tmp_path, 8, "two"), remote(tmp_path, 9, "two")

    assert (first.open(name)[0:6], second.open(name)[2:6]) == ("a text", "text")
    assert (first.remote.asked, second.remote.asked) == (["read"], [])


@pytest.mark.parametrize("damage", [flip, tear, lambda place: place.write_bytes(b""), Path.unlink])
def test_a_damaged_cache_is_read_again_from_the_store(tmp_path: Path, damage: Callable[[Path], Any]) -> None:
    name = remote(tmp_path, 7).keep("a text of some length")
    damage(tmp_path / "one" / name)
    chunk_files.forget_files()

    assert remote(tmp_path, 8).open(name)[0:6] == "a text"


def test_a_file_that_is_missing_or_damaged_in_the_store_is_named_with_its_uri(tmp_path: Path) -> None:
    name = remote(tmp_path, 7).keep("a text of some length")
    chunk_files.forget_files()
    flip(tmp_path / "store" / "chunks" / "0" / name)
    with pytest.raises(CheckpointError, match=f"damaged: s3a://bucket/chunks/0/{name}"):
        remote(tmp_path, 8, "two").open(name)[0:1]
    with pytest.raises(CheckpointError, match="missing: s3a://bucket/chunks/0/7-00"):
        remote(tmp_path, 8, "two").open("7-00")[0:1]


def test_in_the_store_files_and_notes_go_as_on_a_disk_and_the_cache_holds_the_present_ones(
    tmp_path: Path,
) -> None:
    store, states = tmp_path / "store" / "chunks" / "0", [[]]  # type: Path, list[list[str]]
    for batch in range(OLDEST + 3):
        files = remote(tmp_path, batch)
        states.append([files.keep(f"text {batch}")])
        files.release_files(states[-2], states[-1])

    assert names_in(tmp_path / "one") == states[-1]
    assert [int(name.partition("-")[0]) for name in names_in(store)] == [1, 2, 3, 4, 5, 6, 7]
    assert sorted(names_in(store / "refs"), key=int) == ["2", "3", "4", "5", "6", "7"]
    assert files.remote.asked == ["replace", "replace", "remove_files", "remove_files"]


def test_a_place_in_a_store_travels_without_its_settings_which_may_be_keys(tmp_path: Path) -> None:
    place = ChunkPlace("s3a://bucket/job", 100, 4_096, {"aws_secret_access_key": "a secret"})
    opened: list[tuple[str, Any]] = []

    again = ChunkPlace.from_text(place.to_text())
    files = place.of_shard(3, 17, lambda *given: opened.append(given))  # type: ignore[arg-type, return-value]

    assert "secret" not in place.to_text()
    assert again == ChunkPlace("s3a://bucket/job", 100, 4_096)
    assert opened == [("s3a://bucket/job/chunks/3", {"aws_secret_access_key": "a secret"})]
    assert (files.folder.name, files.batch) == ("3", 17)
