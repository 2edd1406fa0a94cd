"""The known facts of a run: :class:`Rules`."""

from __future__ import annotations

from dataclasses import dataclass

from wheel_udf.common.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """The known facts of the checked run. All times are ms; instants are UTC epoch ms of the wheel's clock.

    Args:
        until_ms: The clock has reached this instant, and all commands have been read: what is due by then must be out,
            or, with retries, shown in `pending` with its attempts. None: nothing has to be out, and nothing is found
            lost.
        memory_ms: How long the end of an id is remembered, as in the contract; None for ever.
        read_within_ms: A command without ``read_by`` is read at most so long after its ``event_time``. None: at any
            time.
        in_order: Whether the commands (of an id) are given in the order in which they were read.
        clock_rises: Whether each batch has a later clock than the one before. Then a CANCEL that was read at the very
            instant of a firing was in the same batch, where it wins.
        fires_within_ms: An entry is released at most so long after it is due and read, with retries for the last time.
            None: not known, and no row is too late.
        max_lateness_ms: The ``max_lateness`` of commands without one, as in the contract.
        default_destination: The destination of commands without one, as in the contract.
        levels_ms: The spans of fixed delay levels, if the job has them.
        time_zone: The zone of series without one, as in the contract.
        ahead_ms: With punctual delivery, how long before its due time a row is handed to the sender: a CANCEL, a
            higher version or a FIRE_NOW that is read after that may come too late.
        at_least_once: Whether a fired row may be repeated with its fire id (Kafka). A column ``at_least_once`` of the
            rows goes before.
        keep: How many findings of each kind the report holds; all are counted.

    Raises:
        ConfigError: A number is negative.
    """

    until_ms: int | None = None
    memory_ms: int | None = 300_000
    read_within_ms: int | None = None
    in_order: bool = False
    clock_rises: bool = False
    fires_within_ms: int | None = None
    max_lateness_ms: int | None = None
    default_destination: str | None = None
    levels_ms: tuple[int, ...] = ()
    time_zone: str = "UTC"
    ahead_ms: int = 0
    at_least_once: bool = False
    keep: int = 10

    def __post_init__(self) -> None:
        for name in ("memory_ms", "read_within_ms", "fires_within_ms", "max_lateness_ms", "ahead_ms", "keep"):
            if (getattr(self, name) or 0) < 0:
                raise ConfigError("negative", field=name, value=getattr(self, name), rule="0 or more")
        object.__setattr__(self, "levels_ms", tuple(sorted(self.levels_ms)))
