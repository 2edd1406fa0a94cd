"""The batch log: one line for each batch, a ring of files, torn lines are skipped."""

from __future__ import annotations

import logging
from pathlib import Path
from threading import Event

import pytest
from obstore.store import MemoryStore

from wheel_udf.metrics.batch_log import BatchLog, last_line, read_batches
from wheel_udf.spark.object_stores import folder_in

HOUR, DAY = 3_600_000, 86_400_000
T = 1_767_225_600_000  # 2026-01-01T00:00Z


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "state")


def files(checkpoint: str) -> list[str]:
    return sorted(path.name for path in Path(f"{checkpoint}-batches").iterdir())


def test_lines_come_back_in_their_order_from_an_instant_on(checkpoint: str) -> None:
    log = BatchLog(checkpoint)
    for batch in range(3):
        log.append({"at_ms": T + batch * 1_000, "batch_id": batch})

    assert read_batches(checkpoint, T + 1_000) == [
        {"at_ms": T + 1_000, "batch_id": 1},
        {"at_ms": T + 2_000, "batch_id": 2},
    ]
    assert len(read_batches(checkpoint, 0)) == 3


def test_a_job_without_a_batch_log_has_no_lines(checkpoint: str) -> None:
    assert read_batches(checkpoint, 0) == []


def test_the_last_line_of_a_query_is_found_in_whatever_file_it_is(checkpoint: str) -> None:
    assert last_line(checkpoint, "wheel") is None
    log = BatchLog(checkpoint)
    for at_ms, query in ((T, "wheel"), (T + 1, "wheel"), (T + 2, "intake"), (T + HOUR, "intake")):
        log.append({"at_ms": at_ms, "query": query})
    assert last_line(checkpoint, "wheel") == {"at_ms": T + 1, "query": "wheel"}
    assert last_line(checkpoint, "intake") == {"at_ms": T + HOUR, "query": "intake"}
    assert last_line(checkpoint, "other") is None


def test_an_hour_has_a_file_and_so_has_each_start(checkpoint: str) -> None:
    log = BatchLog(checkpoint)
    for at_ms in (T, T + HOUR - 1, T + HOUR):
        log.append({"at_ms": at_ms})
    BatchLog(checkpoint).append({"at_ms": T + HOUR})

    assert files(checkpoint) == [f"00{T}.jsonl", f"00{T + HOUR}.jsonl", f"00{T + HOUR + 1}.jsonl"]
    assert [line["at_ms"] for line in read_batches(checkpoint, 0)] == [T, T + HOUR - 1, T + HOUR, T + HOUR]


def test_files_whose_lines_are_all_older_than_a_day_are_removed(checkpoint: str) -> None:
    log = BatchLog(checkpoint)
    for hour in range(28):
        log.append({"at_ms": T + hour * HOUR})

    # The file of hour 2 may hold lines up to hour 3, which is a day before the newest.
    assert files(checkpoint)[0] == f"00{T + 2 * HOUR}.jsonl"
    assert read_batches(checkpoint, T + 27 * HOUR - DAY)[0] == {"at_ms": T + 3 * HOUR}


def test_all_files_together_stay_below_20_mb(checkpoint: str) -> None:
    log = BatchLog(checkpoint)
    for batch in range(1_000):
        log.append({"at_ms": T + batch, "batch_id": batch, "text": "x" * 50_000})
    sizes = [path.stat().st_size for path in Path(f"{checkpoint}-batches").iterdir()]

    assert 18_000_000 < sum(sizes) < 21_500_000
    assert read_batches(checkpoint, 0)[-1]["batch_id"] == 999


@pytest.mark.parametrize("torn", ['{"at_ms": 17', "null\n", "[]\n", '{"batch_id": 3}\n', "\udcff\n"])
def test_a_torn_line_is_skipped_and_the_next_one_is_whole(checkpoint: str, torn: str) -> None:
    BatchLog(checkpoint).append({"at_ms": T})
    (file,) = Path(f"{checkpoint}-batches").iterdir()
    with file.open("ab") as stream:
        stream.write(torn.encode("utf-8", "surrogateescape"))
    BatchLog(checkpoint).append({"at_ms": T + 1})

    assert read_batches(checkpoint, 0) == [{"at_ms": T}, {"at_ms": T + 1}]


def test_other_files_in_the_folder_are_left_alone(checkpoint: str) -> None:
    folder = Path(f"{checkpoint}-batches")
    folder.mkdir()
    (folder / "notes.jsonl").write_text("{}")
    BatchLog(checkpoint).append({"at_ms": T})

    assert read_batches(checkpoint, 0) == [{"at_ms": T}]
    assert (folder / "notes.jsonl").exists()


def test_a_clock_that_is_set_back_loses_no_line(checkpoint: str) -> None:
    log = BatchLog(checkpoint)
    for at_ms in (T + 2 * HOUR, T, T + 3 * HOUR, T + 1):
        log.append({"at_ms": at_ms})

    assert [line["at_ms"] for line in read_batches(checkpoint, 0)] == [T, T + 1, T + 2 * HOUR, T + 3 * HOUR]


def test_a_log_that_cannot_be_written_is_reported_once_and_stops_nothing(
    checkpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    Path(f"{checkpoint}-batches").write_text("a folder is wanted here")
    log = BatchLog(checkpoint)
    with caplog.at_level(logging.WARNING):
        log.append({"at_ms": T})
        log.append({"at_ms": T + 1})

    (line,) = caplog.messages
    assert line.startswith(f"the batch log {checkpoint}-batches cannot be written: ")


class Bucket:
    """A folder of an object store that tells when a file was written."""

    def __init__(self, store: MemoryStore, key: str) -> None:
        self._folder, self.written = folder_in(store, key, "s3a://bucket"), Event()
        self.names, self.read, self.remove_files = (
            self._folder.names,
            self._folder.read,
            self._folder.remove_files,
        )

    def replace(self, name: str, content: bytes) -> None:
        self._folder.replace(name, content)
        self.written.set()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    made = Bucket(MemoryStore(), "state-batches")
    places = {"s3a://bucket/state-batches": made}
    monkeypatch.setattr("wheel_udf.spark.files.object_folder", lambda path, **_: places[path])
    return made


def test_in_a_bucket_the_lines_of_half_a_minute_are_written_together(bucket: Bucket) -> None:
    log = BatchLog("s3a://bucket/state", write_after_s=3_600)
    for batch in range(3):
        log.append({"at_ms": T + batch, "batch_id": batch})
    assert bucket.names() == []
    log.close()
    assert bucket.names() == [f"00{T}.jsonl"]
    assert [line["batch_id"] for line in read_batches("s3a://bucket/state", T + 1)] == [1, 2]


def test_in_a_bucket_a_line_is_written_without_another_batch(bucket: Bucket) -> None:
    log = BatchLog("s3a://bucket/state/", write_after_s=0)
    log.append({"at_ms": T})
    assert bucket.written.wait(30)
    assert read_batches("s3a://bucket/state", 0) == [{"at_ms": T}]


def test_in_a_bucket_files_are_small_and_the_oldest_are_removed(bucket: Bucket) -> None:
    log = BatchLog("s3a://bucket/state", write_after_s=3_600)
    for batch in range(500):
        log.append({"at_ms": T + batch, "batch_id": batch, "text": "x" * 50_000})
    log.close()
    assert 195 <= len(bucket.names()) <= 202
    assert [line["batch_id"] for line in read_batches("s3a://bucket/state", T + 497)] == [497, 498, 499]


def test_a_bucket_that_cannot_be_written_stops_nothing(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_name: str, _content: bytes) -> None:
        raise PermissionError("access denied")

    monkeypatch.setattr(bucket, "replace", refuse)
    log = BatchLog("s3a://bucket/state", write_after_s=3_600)
    with caplog.at_level(logging.WARNING):
        log.append({"at_ms": T})
        log.close()
    assert caplog.messages == ["the batch log s3a://bucket/state-batches cannot be written: access denied"]
