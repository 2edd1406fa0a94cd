"""Punctual delivery of a query: passes the rows of kind ``ahead`` from its batches to its sender, and the sender's
news to the clock.

::

    batch --rows of kind `ahead`--> check (as for any row of a topic) --records--> Sender --at the due time--> Kafka
                                      '-- cannot be sent --> rejects: undeliverable           |
    clock source <-- board <-- news: what is confirmed, how much room is left <----------'
                     <checkpoint>/wheel-sender.json <-- the same, once a second: the next start repeats less

Two threads live as long as the query: one sends (:meth:`Sender.turn`), the other posts news and writes the note, so
that a slow disk delays no record. At least once: a new start (``since``) sends all that its predecessors have not noted
as confirmed, and a batch that is repeated hands its rows over again.

If the sender fails, the clock starts a batch, and the batch raises :class:`~wheel_udf.common.SinkError`.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import DataFrame

from wheel_udf.checkpoint.spark_logs import last_committed
from wheel_udf.common.durations import parse_duration_ms
from wheel_udf.common.errors import ConfigError, LeaseError, SinkError
from wheel_udf.common.secrets import in_short
from wheel_udf.control.board import SENDERS, Sending, ShardBoard
from wheel_udf.control.wall import elapsed_ms, wall_clock_ms
from wheel_udf.policies.punctual import DEFAULT_AHEAD_MS, Punctual
from wheel_udf.policies.sender_news import SenderNews
from wheel_udf.punctual.packing import Packer
from wheel_udf.punctual.producers import settings_of
from wheel_udf.punctual.sender import Sender
from wheel_udf.punctual.sender_note import SenderNote
from wheel_udf.sinks.destinations import Destinations, LeftOut
from wheel_udf.sinks.kafka_sink import KafkaSink
from wheel_udf.spark.files import local_folder, open_folder
from wheel_udf.stream.frame_facts import FrameFacts
from wheel_udf.stream.status_row import ShardStatus, leaving_to

_POST_EVERY_S: Final = 0.1
_NOTE_EVERY: Final = 10
_NOTE_EVERY_REMOTE: Final = 50
"""In posts; a note is a request where the checkpoint is in an object store."""
_FLUSH_S: Final = 2.0
"""Shorter than a start of the same process waits for the lease."""
_BATCHES_SEEN: Final = 10
_LONGEST_MS, _SPARE_MS = 60_000, 500

_log = logging.getLogger(__name__)


def check_punctual(punctual: Punctual, destinations: Destinations) -> None:
    """Checks that the sinks of punctual destinations are Kafka's, with options that the sender can use.

    Raises:
        ConfigError: One is not.
    """
    for pattern, sink in destinations:
        if punctual.destinations is not None and pattern not in punctual.destinations:
            continue
        if not isinstance(sink, KafkaSink):
            raise ConfigError(
                "only topics of Kafka can be served punctually",
                field=f"destinations.{pattern}",
                rule="a Kafka sink",
                hint="name the others: Punctual(destinations=(...), among=(...)); their rows come with the batches",
            )
        settings_of(sink.options)


def next_batch(checkpoint: str) -> int:
    """The first batch of a checkpoint that is not committed."""
    committed = last_committed(checkpoint)
    return 0 if committed is None else committed + 1


def noted(facts: FrameFacts, checkpoint: str) -> str:
    """The notes of earlier senders, for the tasks of a query without one (:data:`~wheel_udf.stream.NOTED_PROPERTY`)."""
    if facts.punctual is not None or facts.is_purgatory:
        return ""
    return SenderNote(open_folder(checkpoint)).news(next_batch(checkpoint))


class PunctualDelivery:
    """The sender of one run of a query, with its threads. Claims the frame; close it when the query has ended. The
    lease of the checkpoint is held, and `require_lease` is asked before each record is sent.

    Raises:
        ConfigError: The frame is being delivered already, or a sink does not fit.
    """

    def __init__(
        self,
        facts: FrameFacts,
        destinations: Destinations,
        checkpoint: str,
        board: ShardBoard,
        trigger: str,
        require_lease: Callable[[], None] = lambda: None,
    ) -> None:
        assert facts.punctual is not None, "a frame with a sender"
        check_punctual(facts.punctual, destinations)
        self._facts, self._settings = facts, facts.punctual
        self._board, self._note = board, SenderNote(open_folder(checkpoint))
        self._note_every = _NOTE_EVERY if local_folder(checkpoint) is not None else _NOTE_EVERY_REMOTE
        since = next_batch(checkpoint)
        self._trigger_ms = _interval_ms(trigger)
        self.sender = Sender(
            wall_clock_ms,
            since,
            rows=0 if self._trigger_ms is None else facts.punctual.rows,
            octets=facts.punctual.bytes,
            earlier=self._note.read(since),
            require_lease=require_lease,
        )
        self._require_lease = require_lease
        self.packer = Packer(facts, destinations)
        self.lags_ms: deque[int] = deque(maxlen=_BATCHES_SEEN)
        self._posted, self._began_ms = "", elapsed_ms()
        self._posting, self._closing, self._ends = threading.Lock(), threading.Lock(), threading.Event()
        self._threads: list[threading.Thread] = []
        if not board.claim(SENDERS, facts.frame):
            what, hint = "this frame is being delivered already", "make another one with schedule(...)"
            raise ConfigError(
                what, field="scheduled", rule="one query for a frame with punctual delivery", hint=hint
            )
        try:
            self.post_news()
            # Before the first batch: the entries of an earlier note for batches from `since` on, which are planned
            # anew, must not be read again.
            self._write_note()
        except BaseException:
            board.remove(SENDERS, facts.frame)
            raise

    def start(self) -> None:
        """Starts the threads."""
        for work, name in ((self._send, "wheel-sender"), (self._publish_loop, "wheel-sender-news")):
            thread = threading.Thread(target=work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        # A program may end before its query is stopped, or before the thread that waits for its end has closed this.
        atexit.register(self.close)

    def close(self) -> None:
        """Sends due records, waits up to 2 s for acknowledgements, and notes those confirmed. Idempotent."""
        with self._closing:
            if self._ends.is_set():
                return
            self._ends.set()
            self.sender.wake()
            for thread in self._threads:
                thread.join()
            try:
                if self.sender.fault is None:
                    self.sender.turn()
                    self.sender.flush(_FLUSH_S)
                self._write_note()
            except Exception as fault:  # noqa: BLE001  # a note that is lost costs repetitions
                _log.warning("what punctual delivery has sent cannot be noted: %s", in_short(fault))
            finally:
                self.sender.purge()
                with self._posting:
                    self._board.remove(SENDERS, self._facts.frame)
                atexit.unregister(self.close)

    # --- batches --------------------------------------------------------------------------------------

    def hand_over(self, frame: DataFrame, statuses: Sequence[ShardStatus], batch_id: int) -> list[LeftOut]:
        """Gives the sender the rows that a batch hands over; returns those that cannot be sent, which are
        undeliverable.

        Raises:
            SinkError: The sender has failed, or a cluster does not answer.
        """
        if self._ends.is_set():
            raise SinkError("punctual delivery has ended", hint="the query was stopped, or the program ends")
        if self.sender.fault is not None:
            raise SinkError(
                f"punctual delivery has failed: {self.sender.fault}",
                hint="repair it and restart: what was not acknowledged is delivered then",
            )
        rows_to, largest_to = leaving_to(statuses, "handed", "handed_largest")
        records, left_out = self.packer.pack(frame, rows_to, largest_to)
        if rows_to:
            lag_ms = wall_clock_ms() - max(row.clock_ms for row in statuses)
            # A batch that is repeated has the clock of its first try, which may have been before a long pause: that is
            # no time of a batch.
            self.lags_ms.append(max(0, min(lag_ms, elapsed_ms() - self._began_ms)))
        self.sender.give(batch_id, records)
        self.post_news()
        return left_out

    # --- news -----------------------------------------------------------------------------------------

    @property
    def ahead_ms(self) -> int:
        """How long before its due time an entry is handed over: as set, or about twice a batch's time, at least 4 s,
        for a large batch after short ones.
        """
        if self._settings.ahead_ms is not None:
            return self._settings.ahead_ms
        if not self.lags_ms:
            return DEFAULT_AHEAD_MS
        asked_ms = 2 * max(self.lags_ms) + (self._trigger_ms or 0) + _SPARE_MS
        return min(max(asked_ms, DEFAULT_AHEAD_MS), _LONGEST_MS)

    def _send(self) -> None:
        while not self._ends.is_set():
            try:
                self.sender.wait(self.sender.turn())
            except LeaseError as lost:
                self.sender.fail(f"{type(lost).__name__}: {lost}")
            except Exception as fault:  # noqa: BLE001  # it fails the query
                _log.exception("punctual delivery has failed")
                self.sender.fail(f"{type(fault).__name__}: {fault}")

    def _publish_loop(self) -> None:
        posts = 0
        while not self._ends.wait(_POST_EVERY_S):
            posts += 1
            try:
                self.post_news()
                if posts % self._note_every == 0:
                    self._write_note()
            except LeaseError:
                return
            except Exception as fault:  # noqa: BLE001  # of a file system, of any class; it is tried again
                _log.warning("the news of punctual delivery cannot be written: %s", in_short(fault))

    def _write_note(self) -> None:
        self._require_lease()  # the note is replaced, whoever has written it
        self._note.write(self.sender.confirmed())

    def post_news(self) -> None:
        """Posts what the sender has confirmed, and notes it in the checkpoint."""
        # Serialised, so that older news cannot overwrite newer.
        with self._posting:
            if (
                self._ends.is_set()
            ):  # a batch that outlives its query must not overwrite the news of the next run
                return
            rows, octets = self.sender.free
            news = SenderNews(self.ahead_ms, rows, octets, self.sender.confirmed())
            sending = Sending(news.to_json(), int(self.sender.fault is not None))
            if (text := repr(sending)) != self._posted:
                self._board.put(SENDERS, self._facts.frame, sending)
                self._posted = text


def _interval_ms(trigger: str) -> int | None:
    """The interval of a trigger; None for one that ends by itself, where nothing is handed over."""
    return None if trigger in ("available-now", "once") else parse_duration_ms(trigger)
