"""How a destination is served: how often it is tried, when it rests, how much it gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, StrictInt, WithJsonSchema
from pydantic_core import InitErrorDetails

from wheel_udf.common.errors import ConfigError
from wheel_udf.common.names import AllowList
from wheel_udf.common.rates import per_second
from wheel_udf.job.models.section import Rule, Section, all_defaults
from wheel_udf.job.models.values import DestinationName, PositiveWaitMs, WaitMs, as_written, fault, fault_at

if TYPE_CHECKING:
    from wheel_udf.policies.rates import Rates
    from wheel_udf.policies.retries import Retries, Retry

# The policies themselves are imported where one is made: they need numpy and pyarrow.

_MOST_AT_ONCE: Final = 20


class BreakerConfig(Section):
    """When a destination that fails rests: its rows wait in the wheel."""

    failures: StrictInt = Field(5, ge=0, le=1_000_000)
    """After how many failed attempts in a row; 0: never."""

    cooldown_ms: PositiveWaitMs = Field(as_written("30 seconds"), alias="cooldown")
    """How long; then one row tries it."""


def _list_has_waits(policy: str, waits: tuple[int, ...]) -> Iterator[InitErrorDetails]:
    if (policy == "list") != bool(waits):
        yield fault_at(
            "waits",
            what="not the waits of this policy",
            value=list(waits),
            rule="with policy: list, and only there",
        )


class RetriesConfig(Section):
    """When rows that could not be delivered are tried again. A number alone: in the batch, and no later."""

    policy: Literal["exponential", "linear", "list", "none"] = "exponential"
    """exponential: first times factor to the power of the attempts before; linear: first times the attempts; list: the
    waits; none: in the batch alone."""

    first_ms: WaitMs = Field(as_written("10 seconds"), alias="first")
    """The first wait."""

    factor: float = Field(2.0, ge=1, le=100)
    """Of exponential: how much longer each wait is than the one before."""

    cap_ms: WaitMs = Field(as_written("1 hour"), alias="cap")
    """The longest wait."""

    waits: tuple[WaitMs, ...] = ()
    """Of list: the waits, the last of them again and again."""

    jitter: Literal["full", "equal", "none"] = "equal"
    """How much of a wait is chance: all of it, half of it, none."""

    attempts: StrictInt = Field(10, ge=1, le=1000)
    """The most attempts, the first included; then the row is a dead letter."""

    max_age_ms: WaitMs | None = Field(None, alias="max_age")
    """No attempt is later than this after the time of release. Default: no bound."""

    dead_letters: DestinationName | None = None
    """The destination of dead letters. Default: dead_letters of the job."""

    in_batch: StrictInt = Field(0, ge=0, le=_MOST_AT_ONCE)
    """Of a webhook: tries after the first one, at once."""

    rules: ClassVar[tuple[Rule, ...]] = (_list_has_waits,)

    def retry(self, breaker: BreakerConfig, dead_letters: str | None) -> Retry:
        """As the library takes it; `dead_letters` are those of the job."""
        from wheel_udf.policies.retries import Retry

        given = self.model_dump(exclude={"policy", "waits", "in_batch", "dead_letters"})
        return Retry(
            policy="exponential" if self.policy == "none" else self.policy,
            waits_ms=self.waits,
            dead_letters=self.dead_letters or dead_letters,
            breaker_failures=breaker.failures,
            breaker_cooldown_ms=breaker.cooldown_ms,
            **given,
        )


def _of_number(value: object) -> object:
    """A number of tries alone, as a section."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value <= _MOST_AT_ONCE:
            raise fault("not a number of tries", rule=f"0 to {_MOST_AT_ONCE}; or a section with a policy")
        return {"policy": "none", "in_batch": value}
    return value


NumberOrRetries = Annotated[RetriesConfig, BeforeValidator(_of_number)]


def _per_s(value: object) -> float:
    try:
        return per_second(value)
    except ConfigError as error:
        raise fault(error.what, rule=error.rule) from None


PerSecond = Annotated[
    float,
    BeforeValidator(_per_s),
    PlainSerializer(lambda per_s: f"{per_s}/s", when_used="json"),
    WithJsonSchema({"type": "string", "pattern": "^[0-9.]+ */ *(s|min|h)$"}),
]


def _burst_has_a_rate(burst: int | None, rate: float | None) -> Iterator[InitErrorDetails]:
    if burst is not None and rate is None:
        yield fault_at("burst", what="a burst without a rate", value=burst, rule="with rate")


def _retries_are_meant(
    on_undeliverable: str | None, retries: RetriesConfig | None
) -> Iterator[InitErrorDetails]:
    if on_undeliverable == "reject" and retries is not None and retries.policy != "none":
        rule = "retry; or no retries, or a number of tries in the batch"
        yield fault_at("on_undeliverable", what="retries that are not wanted", value="reject", rule=rule)


class ServedConfig(Section):
    """How a destination is served."""

    rate: PerSecond | None = None
    """How many rows each destination gets at most, such as 100/s or 30/min; the others wait. Default: no bound."""

    burst: StrictInt | None = Field(None, ge=1, le=100_000_000)
    """How many rows may come at once after a pause. Default: the rows of a second, at least one for each shard."""

    on_undeliverable: Literal["reject", "retry"] | None = None
    """What happens to rows that cannot be delivered: reject, or retry. Default: retry if there are retries."""

    retries: NumberOrRetries | None = None
    """When they are tried again."""

    breaker: BreakerConfig = all_defaults(BreakerConfig)
    """When the destination rests, if its rows are tried again."""

    rules: ClassVar[tuple[Rule, ...]] = (_burst_has_a_rate, _retries_are_meant)

    @property
    def comes_back(self) -> bool:
        """Whether rows that cannot be delivered are tried again later."""
        has_policy = self.retries is not None and self.retries.policy != "none"
        return self.on_undeliverable == "retry" or (self.on_undeliverable is None and has_policy)

    @property
    def service(self) -> frozenset[str]:
        """The settings of this section that were given."""
        return frozenset(ServedConfig.model_fields).intersection(self.model_fields_set)


def retries_of(destinations: Mapping[str, Any], dead_letters: str | None) -> Retries:
    """Which destinations are tried again."""
    from wheel_udf.policies.retries import Retries

    found = {
        name: (sink.retries or RetriesConfig.model_validate({})).retry(sink.breaker, dead_letters)
        for name, sink in destinations.items()
        if sink.comes_back
    }
    return Retries(found, tuple(destinations)) if found else Retries()


def rates_of(destinations: Mapping[str, Any], shards: int) -> Rates:
    """How much the destinations get."""
    from wheel_udf.policies.rates import Rate, Rates

    found = {
        name: Rate(sink.rate, sink.burst or max(shards, round(sink.rate)))
        for name, sink in destinations.items()
        if sink.rate is not None
    }
    return Rates(found, tuple(destinations)) if found else Rates()


def burst_faults(destinations: Mapping[str, Any], shards: int) -> Iterator[InitErrorDetails]:
    """Bursts that are too small for the shards."""
    for name, sink in destinations.items():
        if sink.burst is not None and sink.burst < shards:
            rule = f"at least wheel.shards, {shards}: each shard has a part of it"
            yield fault_at(
                "destinations", name, "burst", what="too small a burst", value=sink.burst, rule=rule
            )


def dead_letters_faults(destinations: Mapping[str, Any], of_job: str | None) -> Iterator[InitErrorDetails]:
    """Dead letters, of the job or of a destination, that have no place to go to. Whether the allow-list has those of
    the job: :func:`not_allowed`.
    """
    told: dict[tuple[str, ...], str] = {
        ("destinations", name, "retries", "dead_letters"): sink.retries.dead_letters
        for name, sink in destinations.items()
        if sink.retries is not None and sink.retries.dead_letters is not None
    }
    for location, to in told.items():
        yield from not_allowed("dead letters are", to, destinations, *location)
    if of_job is not None:
        told["dead_letters",] = of_job
    allowed = AllowList(destinations)
    for location, to in told.items():
        pattern = allowed.first(to)
        if pattern is not None and destinations[pattern].comes_back:
            rule = "a destination without retries"
            yield fault_at(*location, what="dead letters would come back themselves", value=to, rule=rule)


def not_allowed(
    what: str, name: str, destinations: Mapping[str, Any], *location: str
) -> Iterator[InitErrorDetails]:
    """A destination that the allow-list has not; `what` begins the sentence."""
    if AllowList(destinations).first(name) is None:
        rule = f"a name that one of destinations matches: {', '.join(destinations)}"
        yield fault_at(*location, what=f"{what} not on the allow-list", value=name, rule=rule)


def dead_letters_of(destinations: Mapping[str, Any], of_job: str | None) -> dict[str, tuple[str, str]]:
    """The destinations of dead letters: of each the setting that names it, and the pattern that matches it."""
    found = {
        sink.retries.dead_letters: f"destinations.{name}.retries.dead_letters"
        for name, sink in destinations.items()
        if sink.comes_back and sink.retries is not None and sink.retries.dead_letters is not None
    }
    if of_job is not None:
        found[of_job] = "dead_letters"
    allowed = AllowList(destinations)
    patterns = {name: allowed.first(name) for name in found}
    return {name: (found[name], pattern) for name, pattern in patterns.items() if pattern is not None}
