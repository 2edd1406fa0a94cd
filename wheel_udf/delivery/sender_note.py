"""The note of a query's senders: what they have confirmed, in a file beside the checkpoint, so that the next start
repeats less.

::

    wheel-sender.json    {"confirmed": [[0, 39, 9223372036854775807], [40, 57, 1700000004199]]}
                                        '- an earlier sender          '- the present one: of what batches 40 to 57 gave, all that
                                                                         is due by then is acknowledged

A start without a sender reads it, too: what was in flight and is confirmed has fired, and the rest is released by the
batches.

A note that is lost, or older than the truth, costs repetitions and nothing else. One that says too much would lose
rows; so what it says of batches that are not committed is not read: they are planned anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, Protocol

from wheel_udf.platform.files import json_bytes, parsed_json
from wheel_udf.wheel.sender_news import Confirmed, SenderNews, confirmed_from_json, confirmed_to_json

NOTE: Final = "wheel-sender.json"
"""The file of a checkpoint with what its senders have confirmed."""

_SENDERS_NOTED: Final = 4
"""Of so many starts the confirmations are kept; one that is lost costs repetitions."""


class Files(Protocol):
    """The part of a folder (:func:`~wheel_udf.platform.open_folder`) that a note uses."""

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none."""

    def replace(self, name: str, content: bytes) -> None:
        """Writes a file, whole or not at all."""


class SenderNote:
    """The note in a folder.

    Args:
        files: The folder of the checkpoint.
    """

    def __init__(self, files: Files) -> None:
        self._files, self._written = files, b""

    def read(self, since: int) -> tuple[Confirmed, ...]:
        """What earlier senders have noted of the batches before `since`, which are committed."""
        found = parsed_json(self._files.read(NOTE) or b"")
        try:
            noted = confirmed_from_json(found["confirmed"]) if isinstance(found, dict) else ()
        except (KeyError, ValueError):
            noted = ()
        earlier = (each.before(since) for each in noted)
        return tuple(each for each in earlier if each.since <= each.batch)[-_SENDERS_NOTED:]

    def news(self, since: int) -> str:
        """What the shards of a start from `since` on are told, which has no sender; empty if nothing is noted."""
        noted = self.read(since)
        nobody = Confirmed(since, since - 1, -1)
        return json.dumps(SenderNews(0, 0, 0, (*noted, nobody)).to_json()) if noted else ""

    def write(self, confirmed: Iterable[Confirmed]) -> None:
        """Notes what is confirmed, unless it is what was noted last."""
        content = json_bytes({"confirmed": confirmed_to_json(confirmed)})
        if content != self._written:
            self._files.replace(NOTE, content)
            self._written = content
