"""Rules of Kafka's settings: names of topics, options of sources and sinks.

Options go to Spark's connector as they are; :mod:`wheel_udf.job.kafka_options` lists those that the job changes. The
names of options are Spark's, in any case of letters. No error shows the value of an option, except offsets and topics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Final

from pydantic_core import InitErrorDetails

from wheel_udf.common.extras import missing_package
from wheel_udf.common.names import KAFKA_SERVERS, NAME_RULE, is_destination_name
from wheel_udf.job.kafka_options import WAYS, assigned_partitions, offsets_of, option
from wheel_udf.job.models.values import NOT_EMPTY, DestinationName, fault_at

_OFFSETS_RULE: Final = 'JSON such as {"topic": {"0": 23, "1": 7}}'
_EARLIEST: Final = -2


Topics = Annotated[tuple[DestinationName, ...], NOT_EMPTY]


def has_servers(options: Mapping[str, str]) -> Iterator[InitErrorDetails]:
    """Rule: the options name the cluster, and there is a client for it."""
    if (missing := missing_package("confluent_kafka", "kafka", "")) is not None:
        yield fault_at(what=missing.what, hint=missing.hint)
    if not (option(options, KAFKA_SERVERS) or "").strip():
        yield fault_at(
            "options",
            KAFKA_SERVERS,
            what="a required option is missing",
            rule="host:port, several with commas",
        )


def has_no_topic_option(options: Mapping[str, str]) -> Iterator[InitErrorDetails]:
    """Rule of sinks: every row goes to the topic of its destination."""
    if option(options, "topic") is not None:
        hint = "leave it out: it would send every row to one topic"
        yield fault_at("options", "topic", what="an option that a kafka sink does not take", hint=hint)


def names_topics_once(
    topics: tuple[str, ...] | None, options: Mapping[str, str]
) -> Iterator[InitErrorDetails]:
    """Rule of sources: one setting names the topics."""
    ways = [f"options.{key}" for key in options if key.lower() in WAYS]
    ways += ["topics"] if topics is not None else []
    if len(ways) != 1:
        found = f"found {' and '.join(ways)}" if ways else "no topics"
        yield fault_at(what=found, rule="one of: topics, or the option subscribe, subscribePattern or assign")


def names_good_topics(options: Mapping[str, str]) -> Iterator[InitErrorDetails]:
    """Rule of sources: the options ``subscribe`` and ``assign`` can be read."""
    names = option(options, "subscribe")
    for name in names.split(",") if names is not None else ():
        if not is_destination_name(name.strip()):
            yield fault_at("options", "subscribe", what="not a name", value=name.strip(), rule=NAME_RULE)
    assigned = option(options, "assign")
    try:
        assigned_partitions(assigned or '{"topic": [0]}')
    except ValueError:
        rule = 'JSON such as {"topic": [0, 1]}'
        yield fault_at("options", "assign", what="not partitions", value=assigned, rule=rule)


def starts_at_offsets(options: Mapping[str, str]) -> Iterator[InitErrorDetails]:
    """Rule of sources: ``startingOffsets`` can be read."""
    text = option(options, "startingOffsets")
    if text is not None and text.strip().lower() not in ("earliest", "latest"):
        rule = f"earliest, latest, or {_OFFSETS_RULE} (-2 earliest, -1 latest)"
        yield from _offset_faults("startingOffsets", text, _EARLIEST, rule)


def ends_at_offsets(options: Mapping[str, str]) -> Iterator[InitErrorDetails]:
    """Rule of sources: ``endingOffsets`` can be read, and no other option sets an end."""
    for name in ("endingTimestamp", "endingOffsetsByTimestamp"):
        if option(options, name) is not None:
            what = "an option that streams do not have"
            yield fault_at("options", name, what=what, hint="use endingOffsets")
    text = option(options, "endingOffsets")
    if text is not None and text.strip().lower() == "latest":
        hint = "the trigger available-now reads to the latest offsets at its start"
        yield fault_at(
            "options", "endingOffsets", what="an end that moves", value=text, rule=_OFFSETS_RULE, hint=hint
        )
    elif text is not None:
        yield from _offset_faults("endingOffsets", text, 0, f"{_OFFSETS_RULE}, from 0 on")


def _offset_faults(name: str, text: str, lowest: int, rule: str) -> Iterator[InitErrorDetails]:
    try:
        found = min((offset for places in offsets_of(text).values() for offset in places.values()), default=0)
    except ValueError:
        yield fault_at("options", name, what="not offsets", value=text, rule=rule)
    else:
        if found < lowest:
            yield fault_at("options", name, what="no such offset", value=found, rule=rule)
