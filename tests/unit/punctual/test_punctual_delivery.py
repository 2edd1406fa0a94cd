"""The sender of a query and its books: what is posted for the clock, what is noted, and what a failure of either
leaves behind. No JVM.
"""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from wheel_udf.common.errors import SinkError
from wheel_udf.common.geometry import INT64_MAX
from wheel_udf.control.board import SENDERS, ShardBoard
from wheel_udf.policies.punctual import Punctual
from wheel_udf.policies.sender_news import Confirmed, SenderNews
from wheel_udf.punctual import delivery as punctual_module
from wheel_udf.punctual.delivery import PunctualDelivery, noted
from wheel_udf.punctual.sender_note import NOTE, SenderNote
from wheel_udf.sinks.destinations import Destinations
from wheel_udf.sinks.kafka_sink import KafkaSink
from wheel_udf.stream.frame_facts import FrameFacts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FRAME = "frame"
EVENTS_S = 20.0


class World:
    """A sender of a frame, without a query."""

    def __init__(self, folder: Path) -> None:
        self.board = ShardBoard(str(folder / "board"))
        self.checkpoint = folder / "checkpoint"
        self.facts = FrameFacts(
            wheel="",
            shards=1,
            clock="processing",
            board=self.board.folder.name,
            frame=FRAME,
            punctual=Punctual(ahead_ms=4_000),
        )

    def start(self) -> PunctualDelivery:
        sinks = Destinations({"*": KafkaSink({"kafka.bootstrap.servers": "127.0.0.1:1"})})
        self.delivery = PunctualDelivery(self.facts, sinks, str(self.checkpoint), self.board, "1 second")
        return self.delivery

    def commit(self, batch: int) -> None:
        """Notes a batch as committed, as Spark does."""
        (self.checkpoint / "commits").mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "commits" / str(batch)).write_text("v1\n{}")

    @property
    def posted(self) -> tuple[Confirmed, ...]:
        sending = self.board.get(SENDERS, FRAME)
        return () if sending is None else SenderNews.from_json(sending.news).confirmed


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.delivery.close()


def test_a_sender_posts_and_notes_from_which_batch_on_it_gets_rows(world: World) -> None:
    world.commit(6)
    world.start()
    assert world.posted == (Confirmed(7, 6, INT64_MAX),)
    assert (world.checkpoint / NOTE).exists()


def test_a_batch_with_nothing_to_hand_over_is_told_at_once(world: World) -> None:
    world.start().hand_over(None, [], 0)  # type: ignore[arg-type]  # a frame that nobody reads
    assert world.posted == (Confirmed(0, 0, INT64_MAX),)


def test_of_two_threads_that_post_the_one_with_the_older_news_is_not_the_last(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the clock reads was older than what the sender believed to have posted, and so stayed until something else
    # happened.
    delivery = world.start()
    held, go_on = threading.Event(), threading.Event()
    kept = ShardBoard.put

    def slow(board: ShardBoard, topic: Any, key: str, value: Any) -> None:
        if threading.current_thread() is older:
            held.set()
            go_on.wait(EVENTS_S)
        kept(board, topic, key, value)

    monkeypatch.setattr(ShardBoard, "put", slow)
    delivery.sender.give(1, [])
    older = threading.Thread(target=delivery.post_news)
    older.start()
    assert held.wait(EVENTS_S)
    newer = threading.Thread(target=lambda: delivery.hand_over(None, [], 2))  # type: ignore[arg-type]
    newer.start()
    newer.join(0.2)  # it waits for the older one; before the mend it was done by now
    go_on.set()
    older.join(EVENTS_S)
    newer.join(EVENTS_S)
    assert world.posted == (Confirmed(0, 2, INT64_MAX),)


def test_a_note_that_cannot_be_written_at_the_end_gives_the_frame_back_nevertheless(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The frame stayed claimed, so that the next start in this process was refused: "this frame is being delivered
    # already".
    delivery = world.start()

    def full(*_: Any) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(SenderNote, "write", full)
        delivery.close()
    assert world.board.get(SENDERS, FRAME) is None
    world.start()
    assert world.posted == (Confirmed(0, -1, INT64_MAX),)


def test_a_batch_that_outlives_its_query_is_refused_and_posts_nothing_for_the_next_one(world: World) -> None:
    # Spark does not wait for a batch in Python when it stops a query.
    earlier = world.start()
    earlier.close()
    world.commit(3)
    world.start()
    with pytest.raises(SinkError, match="punctual delivery has ended"):
        earlier.hand_over(None, [], 9)  # type: ignore[arg-type]
    earlier.post_news()
    assert world.posted == (Confirmed(4, 3, INT64_MAX),)


@pytest.mark.parametrize("fault", [OSError("no space left"), RuntimeError("what Hadoop raises")])
def test_a_fault_of_the_files_does_not_end_the_thread_that_posts(
    world: World, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    # Another error than an OSError ended the thread: no more was confirmed but with the next hand-over.
    delivery, once, again = world.start(), threading.Event(), threading.Event()
    kept = delivery.post_news

    def faulty() -> None:
        if not once.is_set():
            once.set()
            raise fault
        again.set()
        kept()

    monkeypatch.setattr(delivery, "post_news", faulty)
    delivery.start()
    assert again.wait(EVENTS_S)


def test_a_failed_sender_fails_the_batch_with_its_reason(world: World) -> None:
    delivery = world.start()
    delivery.sender.fail("the topic out does not take a record: message timed out")
    with pytest.raises(SinkError, match=r"punctual delivery has failed: the topic out .*: message timed out"):
        delivery.hand_over(None, [], 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"confirmed": 7}', b'{"confirmed": [[1, 2]]}', b"\xff"]
)
def test_a_damaged_note_says_nothing(world: World, content: bytes) -> None:
    world.commit(6)
    (world.checkpoint / NOTE).write_bytes(content)
    world.start()
    assert world.posted == (Confirmed(7, 6, INT64_MAX),)


def test_a_note_speaks_of_committed_batches_alone_and_of_the_last_few_senders(world: World) -> None:
    world.commit(6)
    senders = [[0, 0, 1], [1, 1, 2], [2, 2, 3], [3, 3, 4], [4, 4, 5], [5, 9, 6], [8, 9, 7]]
    (world.checkpoint / NOTE).write_text(json.dumps({"confirmed": senders}))
    world.start()
    assert world.posted == (
        Confirmed(2, 2, 3),
        Confirmed(3, 3, 4),
        Confirmed(4, 4, 5),
        Confirmed(5, 6, 6),
        Confirmed(7, 6, INT64_MAX),
    )


def test_a_start_without_a_sender_is_told_what_was_noted_and_that_nobody_has_the_rest(world: World) -> None:
    world.commit(6)
    world.start().close()
    off = replace(world.facts, punctual=None)
    assert noted(off, str(world.checkpoint)) == "", "the sender had got nothing"
    (world.checkpoint / NOTE).write_text('{"confirmed": [[5, 9, 6]]}')
    assert SenderNews.from_json(json.loads(noted(off, str(world.checkpoint)))) == SenderNews(
        0, 0, 0, (Confirmed(5, 6, 6), Confirmed(7, 6, -1))
    )
    assert noted(world.facts, str(world.checkpoint)) == ""


@pytest.mark.parametrize(
    ("lags_ms", "ahead_ms"),
    [
        ([], 4_000),
        ([300, 200], 4_000),  # a burst would make the next one long
        ([300, 3_000, 200], 7_500),
        ([100_000], 60_000),
        ([30_000, *[1_800] * 10], 5_100),  # only ten are looked at
    ],
)
def test_without_a_setting_ahead_is_twice_the_longest_batch_the_trigger_and_half_a_second(
    world: World, lags_ms: list[int], ahead_ms: int
) -> None:
    world.facts = replace(world.facts, punctual=Punctual())
    delivery = world.start()
    delivery.lags_ms.extend(lags_ms)
    assert delivery.ahead_ms == ahead_ms


def test_a_batch_that_was_repeated_after_an_hour_was_taken_for_a_batch_of_an_hour(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It has the clock of its first try. So `ahead` was 60 s for the next ten batches that handed something over, and
    # cancels came too late.
    world.facts = replace(world.facts, punctual=Punctual())
    now_ms = 1_700_000_000_000
    monkeypatch.setattr(punctual_module, "wall_clock_ms", lambda: now_ms)
    monkeypatch.setattr(punctual_module, "elapsed_ms", lambda: elapsed[-1])
    monkeypatch.setattr(punctual_module, "leaving_to", lambda *_: ({"out": 1}, {}))
    elapsed = [10_000]
    delivery = world.start()
    monkeypatch.setattr(delivery.packer, "pack", lambda *_: ([], None))
    elapsed.append(13_000)
    delivery.hand_over(None, [SimpleNamespace(clock_ms=now_ms - 3_600_000)], 0)  # type: ignore[arg-type, list-item]
    assert delivery.ahead_ms == 2 * 3_000 + 1_000 + 500
