"""Brings acts from the checkpoint to the clock source, which hands them to the shards.

::

    wheel-udf cancel ...  --> <checkpoint>/acts/7.json --> this courier, on the driver --> board --> clock --> shards

The process that plans the clock's ticks can read only the board. Before the query starts, the courier posts the acts
that no committed batch has taken: an act on a stopped job is in its first batch, and a planned batch finds its acts.
While the query runs, the courier looks for the next act every second.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from wheel_udf.checkpoint.act_files import acts_taken, read_act, require_acts
from wheel_udf.checkpoint.spark_logs import query_id
from wheel_udf.common.errors import WheelError
from wheel_udf.control.board import ACTS, FRAMES, ActRows, Link, ShardBoard
from wheel_udf.spark.files import local_folder, open_folder

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_EVERY_S: Final = 1
_EVERY_S_REMOTE: Final = 5
"""Each look is a request if the checkpoint is in an object store."""

_log = logging.getLogger(__name__)


class ActCourier:
    """Posts the acts of one query.

    Args:
        checkpoint: Of the query.
        board: Its board.
        frame: The name of its frame on the board.
    """

    def __init__(self, checkpoint: str, board: ShardBoard, frame: str) -> None:
        self._board, self._frame = board, frame
        self._files = open_folder(checkpoint)
        self._every_s = _EVERY_S if local_folder(checkpoint) is not None else _EVERY_S_REMOTE
        self._checkpoint = checkpoint
        self._taken = self._next = 0

    def prepare(self) -> None:
        """Posts the acts that no committed batch has taken. Call it before the query starts.

        Raises:
            CheckpointError: A file of an act is damaged or missing.
        """
        query = query_id(self._checkpoint)
        if query is None:
            return  # the first start: nothing is pending
        require_acts(self._checkpoint)
        self._taken = self._next = acts_taken(self._checkpoint)
        self.carry(query)
        if self._frame:
            self._board.put(FRAMES, self._frame, Link(query))

    def follow(self, query: StreamingQuery) -> None:
        """Posts further acts as long as a query runs, from a thread. Returns at once."""
        threading.Thread(target=self._follow, args=(query,), name="wheel-acts", daemon=True).start()

    def _follow(self, query: StreamingQuery) -> None:
        try:
            running = str(query.id)
            while not query.awaitTermination(self._every_s):
                self.carry(running)
        except WheelError as fault:
            _log.error("acts are no longer taken until the next start: %s", fault)  # it is one sentence
        except Exception as fault:  # noqa: BLE001  # awaitTermination elsewhere reports the query's error
            _log.debug("the query has ended: %s", fault)

    def carry(self, query_id: str) -> None:
        """Posts new acts, and once more those that no committed batch has taken: the board may have been emptied.

        Raises:
            CheckpointError: The file of an act is damaged.
        """
        if self._taken < self._next:
            self._taken = acts_taken(self._checkpoint)
        number = self._taken
        while (act := read_act(self._files, number)) is not None:
            if not self._board.has(ACTS, key := f"{query_id}/{number}"):
                self._board.put(ACTS, key, ActRows(dict(act[1])))
            number += 1
        self._next = number
