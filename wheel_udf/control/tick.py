"""A tick: the time of a batch and other news for one shard. One typed value with one codec.

::

    contributor    field          content
    clock, store   instant_ms     the time, where the offset itself carries it
                   run            the run of the clock source, which links the shard's report to it
    acts           acts           rows of acts on the shard's entries
    sender         sender         what the sender of the query has confirmed, and how much it takes
    limits         share          the shard's part of the row limit of a batch
    returned       returned       entries that could not be delivered, and come back
                   closed         destinations that rest because they fail, and until when

    offset of the clock (journaled) --> Tick of each shard --to_text--> row of the clock source --from_text--> worker

Imports the standard library only, besides :mod:`wheel_udf.policies.sender_news`: it runs in the planning process of the
clock source and on executors.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from wheel_udf.policies.sender_news import SenderNews

VERSION: Final = 1
"""Version of the text of a tick."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The time of a batch and other news for one shard.

    Attributes:
        run: Run of the clock source.
        instant_ms: The time, UTC epoch ms; None if the batch has it (its watermark, its timestamp).
        acts: Rows of acts, encoded tables (:func:`wheel_udf.wheel.acted.acts_of_texts`).
        sender: The news of the sender; None without one.
        share: The shard's part of the most rows of a batch; None: an even one.
        returned: Entries that come back, encoded tables (:data:`wheel_udf.policies.retries.RETURNED_SCHEMA`).
        closed: Destinations that rest, each with the instant from which on it may be tried, UTC epoch ms.
    """

    run: str
    instant_ms: int | None = None
    acts: tuple[str, ...] = ()
    sender: SenderNews | None = None
    share: int | None = None
    returned: tuple[str, ...] = ()
    closed: tuple[tuple[str, int], ...] = ()

    def to_text(self) -> str:
        """The tick as JSON; fields without a value are left out."""
        found = {
            "version": VERSION,
            "run": self.run,
            "instant_ms": self.instant_ms,
            "acts": list(self.acts) or None,
            "sender": self.sender.to_json() if self.sender else None,
            "share": self.share,
            "returned": list(self.returned) or None,
            "closed": list(self.closed) or None,
        }
        return json.dumps({name: value for name, value in found.items() if value is not None})

    @staticmethod
    def from_text(text: str) -> Tick:
        """The inverse of :meth:`to_text`."""
        found = json.loads(text)
        assert found.pop("version") == VERSION, "ticks live no longer than a batch"
        sender = found.pop("sender", None)
        return Tick(
            **found
            | {
                "acts": tuple(found.get("acts", ())),
                "returned": tuple(found.get("returned", ())),
                "closed": tuple((name, until_ms) for name, until_ms in found.get("closed", ())),
                "sender": SenderNews.from_json(sender) if sender else None,
            }
        )
