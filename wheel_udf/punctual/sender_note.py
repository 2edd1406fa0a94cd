"""The note of a query's senders: their confirmations, in a file beside the checkpoint, so that the next start repeats
less.

::

    wheel-sender.json    {"confirmed": [[0, 39, 9223372036854775807], [40, 57, 1700000004199]]}
                                        '- an earlier sender          '- the present one: records of batches 40 to 57
                                                                         due by then are acknowledged

A start without a sender reads the note, too: confirmed entries have fired, and the others in flight are released by
the batches. A lost or outdated note costs repetitions and nothing else. One with too many confirmations would lose
rows, so its entries for uncommitted batches, which are planned anew, are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from wheel_udf.policies.sender_news import Confirmed, SenderNews, confirmed_from_json, confirmed_to_json
from wheel_udf.spark.files import json_bytes, parsed_json
from wheel_udf.spark.folder import Folder

NOTE: Final = "wheel-sender.json"
"""The file of a checkpoint with what its senders have confirmed."""

_SENDERS_NOTED: Final = 4
"""The number of starts whose confirmations are kept; a lost one costs repetitions."""


class SenderNote:
    """The note in a folder.

    Args:
        files: The folder of the checkpoint.
    """

    def __init__(self, files: Folder) -> None:
        self._files, self._written = files, b""

    def read(self, since: int) -> tuple[Confirmed, ...]:
        """The confirmations of earlier senders for the batches before `since`, which are committed."""
        found = parsed_json(self._files.read(NOTE) or b"")
        try:
            noted = confirmed_from_json(found["confirmed"]) if isinstance(found, dict) else ()
        except (KeyError, ValueError):
            noted = ()
        earlier = (each.before(since) for each in noted)
        return tuple(each for each in earlier if each.since <= each.batch)[-_SENDERS_NOTED:]

    def news(self, since: int) -> str:
        """The news for the shards of a start from `since` on without a sender; empty if nothing is noted."""
        noted = self.read(since)
        nothing = Confirmed(since, since - 1, -1)
        return json.dumps(SenderNews(0, 0, 0, (*noted, nothing)).to_json()) if noted else ""

    def write(self, confirmed: Iterable[Confirmed]) -> None:
        """Writes the confirmations, if they have changed since the last call."""
        content = json_bytes({"confirmed": confirmed_to_json(confirmed)})
        if content != self._written:
            self._files.replace(NOTE, content)
            self._written = content
