"""Names of headers of other systems: which column of a command the preset ``native`` reads from which header.

Each setting names a part of the record::

    setting             value                       column          the header of other systems, for example
    id_from             header:NAME, key, offset    schedule_id     id (Celery), UNIQ_KEY (RocketMQ)
    due_from            header:NAME                 deliver_at      eta (Celery), TIMER_DELIVER_MS (RocketMQ)
    delay_from          header:NAME                 delay           x-delay (RabbitMQ), TIMER_DELAY_SEC (RocketMQ)
    destination_from    header:NAME                 destination     REAL_TOPIC (RocketMQ)
    seq_from            header:NAME, constant       seq
    key_from            header:NAME                 key

``key`` is the record's key; ``offset`` its topic, partition and offset (each record has an id of its own); ``constant``
gives all commands the version 0, so of an id the first one counts.

A ``wheel-*`` header of the record comes first: commands of :mod:`wheel_udf.client` may be in the same topic. A record
without the named header is read as if there was no setting: its key is that of the record, other columns are missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

HEADER: Final = "header:"
"""What a setting begins with that names a header."""

KEY: Final = "key"
OFFSET: Final = "offset"
CONSTANT: Final = "constant"

DelayUnit = Literal["ms", "s", "level"]

ROCKETMQ_LEVELS_MS: Final = tuple(
    seconds * 1_000 for seconds in (1, 5, 10, 30, *range(60, 601, 60), 1_200, 1_800, 3_600, 7_200)
)
"""1s 5s 10s 30s 1m 2m ... 10m 20m 30m 1h 2h: RocketMQ's default ``messageDelayLevel``, 18 levels."""


@dataclass(frozen=True, slots=True)
class HeaderNames:
    """The settings of the table above; None: only what ``native`` reads.

    Args:
        id_from: Where the id is.
        due_from: The header of the due time: ISO text, or a whole number of UTC epoch ms.
        delay_from: The header of the delay.
        destination_from: The header of the destination.
        seq_from: Where the version is.
        key_from: The header of the key that is delivered.
        delay_unit: What a number without a unit is in ``delay_from``; None: it is refused.
        levels_ms: With the unit ``level``: the delay of level 1, 2, ...
    """

    id_from: str | None = None
    due_from: str | None = None
    delay_from: str | None = None
    destination_from: str | None = None
    seq_from: str | None = None
    key_from: str | None = None
    delay_unit: DelayUnit | None = None
    levels_ms: tuple[int, ...] = ROCKETMQ_LEVELS_MS

    @property
    def headers(self) -> tuple[str, ...]:
        """All headers that are named."""
        parts = (self.id_from, self.destination_from, self.seq_from, self.key_from)
        named = (*self.times, *map(header_of, parts))
        return tuple(dict.fromkeys(name for name in named if name is not None))

    @property
    def times(self) -> tuple[str, ...]:
        """The headers of due time and delay."""
        named = (header_of(each) for each in (self.due_from, self.delay_from))
        return tuple(dict.fromkeys(name for name in named if name is not None))


NO_NAMES: Final = HeaderNames()
"""Only ``wheel-*`` headers are read."""

SETTINGS: Final = (
    "id_from", "due_from", "delay_from", "delay_unit", "destination_from", "seq_from", "key_from",
)  # fmt: skip
"""The names of the settings, in the order in which they are documented."""


def header_of(setting: str | None) -> str | None:
    """The name of the header in a setting; None if it names something else."""
    return setting.removeprefix(HEADER) if setting is not None and setting.startswith(HEADER) else None
