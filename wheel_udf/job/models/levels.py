"""The section ``levels``: the policy of delay levels (:mod:`wheel_udf.commands.delay_levels`), a variant for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import InitErrorDetails

from wheel_udf.commands.delay_levels import (
    DEFAULT_LIST_MS,
    BinaryLevels,
    FixedLevels,
    Levels,
    level_name,
    list_rule,
)
from wheel_udf.job.models.section import Rule, Section
from wheel_udf.job.models.values import DestinationName, PositiveMs, as_written, fault, fault_at


def _rising(list_ms: tuple[int, ...]) -> tuple[int, ...]:
    if rule := list_rule(list_ms):
        raise fault("not a list of delay levels", rule=rule)
    return list_ms


def _pauses_own_topics(topics: Mapping[str, int], paused: tuple[int, ...]) -> Iterator[InitErrorDetails]:
    named = ", ".join(dict.fromkeys(map(level_name, topics.values()))) or "there is none"
    for level_ms in paused:
        if level_ms not in topics.values():
            yield fault_at(
                "paused",
                what="the intake of this level cannot pause",
                value=level_name(level_ms),
                rule=f"a level with a topic of its own in levels.topics: {named}",
            )


class _Levels(Section):
    discriminator: ClassVar = "policy"

    topics: dict[DestinationName, PositiveMs] = Field(default_factory=dict)
    """More topics of Kafka: their records have this delay unless they name a due time. Fixed by the first start."""

    paused: tuple[PositiveMs, ...] = ()
    """Levels whose topics are not read for now. Their offsets do not move."""

    rules: ClassVar[tuple[Rule, ...]] = (_pauses_own_topics,)


class FixedLevelsConfig(_Levels):
    """A delay is rounded up to the next level of a list."""

    policy: Literal["fixed"] = "fixed"
    """Delays are rounded up to the next level of the list."""

    list_ms: Annotated[tuple[PositiveMs, ...], AfterValidator(_rising)] = Field(
        as_written([level_name(each) for each in DEFAULT_LIST_MS]), alias="list"
    )
    """The levels, rising."""

    on_beyond: Literal["reject", "top", "exact"] = "reject"
    """What happens to a delay beyond the last level: rejected, shortened to that level, or kept as it is."""

    def levels(self, tick_ms: int) -> Levels:  # noqa: ARG002  (the other policy needs it)
        """Returns the policy, for a wheel of this tick."""
        return FixedLevels(self.list_ms, self.on_beyond)


class BinaryLevelsConfig(_Levels):
    """Levels of 1, 2, 4, ... ticks; delays are kept as they are."""

    policy: Literal["binary"]
    """Levels are powers of two of the wheel's tick; delays are kept as they are."""

    def levels(self, tick_ms: int) -> Levels:
        """Returns the policy, for a wheel of this tick."""
        return BinaryLevels(tick_ms)


def _with_policy(section: object) -> object:
    return {"policy": "fixed", **section} if isinstance(section, Mapping) else section


LevelsConfig = Annotated[
    FixedLevelsConfig | BinaryLevelsConfig, Field(discriminator="policy"), BeforeValidator(_with_policy)
]
