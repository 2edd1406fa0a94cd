"""What the config may say about Kafka, and what becomes of it: the options of the source, the rules of sources and sinks.

Options go to Spark's connector as they are (``kafka.*`` to Kafka's own client, ``maxOffsetsPerTrigger`` and its like to Spark), with these
differences::

    startingOffsets     earliest unless something else is said: a scheduler must not lose what was said before its first start
    includeHeaders      always true: headers travel
    failOnDataLoss      true unless something else is said: commands that retention has eaten are a reason to stop
    endingOffsets       Spark has it for batches only. Here JSON as there, {"topic": {"0": 23}}: records at these offsets and beyond are
                        left out; a partition that is not named has no end. Meant for a backfill with a checkpoint of its own:
                        what is left out counts as read, so later runs from the same checkpoint do not see it.

All rules speak on their own and give every fault there is, since the config is told as a whole. The names of options are Spark's, in any
case of letters. No fault shows the value of an option, but for the offsets and topics.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from wheel_udf.errors import ConfigError

SERVERS: Final = "kafka.bootstrap.servers"
PRESETS: Final = ("native", "json", "scheduler")
"""Names of the presets of Kafka records."""
DEFAULT_PRESET: Final = "native"

_WAYS: Final = ("subscribe", "subscribepattern", "assign")
_STARTS: Final = ("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp")
_RATES: Final = ("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay")
_EARLIEST: Final = -2
_LATEST: Final = -1
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_TOPIC_RULE: Final = "1 to 249 of A-Z a-z 0-9 . _ -, not . or .."
_OFFSETS_RULE: Final = 'JSON such as {"topic": {"0": 23, "1": 7}}'

Offsets = dict[str, dict[int, int]]
"""Topic to partition to offset."""


def reader_options(options: Mapping[str, str], topics: tuple[str, ...] | None) -> dict[str, str]:
    """The options for Spark's reader, of a source that has no faults."""
    given = {
        key: value for key, value in options.items() if key.lower() not in ("endingoffsets", "includeheaders")
    }
    known = {key.lower() for key in given}
    if topics is not None:
        given["subscribe"] = ",".join(topics)
    if not known & set(_STARTS):
        given["startingOffsets"] = "earliest"
    if "failondataloss" not in known:
        given["failOnDataLoss"] = "true"
    return given | {"includeHeaders": "true"}


def for_topics(given: Mapping[str, str], topics: Collection[str]) -> dict[str, str]:
    """Options of a reader for some topics: Spark wants ``startingOffsets`` to name no others. A topic that they do not name begins with its earliest."""
    options = dict(given)
    for key, value in given.items():
        if key.lower() in _STARTS and value.lstrip().startswith("{"):
            places = {topic: place for topic, place in json.loads(value).items() if topic in topics}
            if places:
                options[key] = json.dumps(places)
            else:
                del options[key]
                options["startingOffsets"] = "earliest"
    return options


def for_level_topic(given: Mapping[str, str], topic: str, *, paused: bool) -> dict[str, str]:
    """Options of a reader for the topic of a delay level, from those for the topics of the source."""
    options = {key: value for key, value in for_topics(given, [topic]).items() if key.lower() not in _WAYS}
    options["subscribe"] = topic
    if paused:
        # Of what there is Spark takes up to so many records; so none, and the offsets stay where they are.
        options = {key: value for key, value in options.items() if key.lower() not in _RATES}
        options["maxOffsetsPerTrigger"] = "0"
    return options


def ending_offsets(options: Mapping[str, str]) -> Offsets:
    """The offsets where reading ends; empty for no end."""
    text = option(options, "endingOffsets")
    return {} if text is None else _offsets(text)


def topic_names(source: Mapping[str, Any]) -> tuple[str, ...]:
    """The topics that a section ``source`` names, in whichever way; none for a pattern or for what is no list of names."""
    if isinstance(topics := source.get("topics"), list | tuple):
        return tuple(topic for topic in topics if isinstance(topic, str))
    options = source.get("options")
    if not isinstance(options, Mapping):
        return ()
    if (names := option(options, "subscribe")) is not None:
        return tuple(name.strip() for name in names.split(","))
    if (assigned := option(options, "assign")) is not None:
        with suppress(ValueError):
            return tuple(_partitions(assigned))
    return ()


def option(options: Mapping[str, Any], name: str) -> str | None:
    """The value of an option whatever the case of its name; None if it is not there."""
    return next((str(value) for key, value in options.items() if str(key).lower() == name.lower()), None)


# --- faults -----------------------------------------------------------------------------------------------------------


def source_faults(source: Mapping[str, Any], section: str = "source") -> Iterator[ConfigError]:
    """All that is wrong with a section of format kafka that is read from, as it stands in the file."""
    for fault in _source_faults(source):
        field = section + (fault.field or "").removeprefix("source")
        yield ConfigError(fault.what, field=field, value=fault.value, rule=fault.rule, hint=fault.hint)


def _source_faults(source: Mapping[str, Any]) -> Iterator[ConfigError]:
    options = source.get("options") or {}
    topics = source.get("topics")
    for key in ("path", "schema"):
        if source.get(key) is not None:
            yield ConfigError(
                "a kafka source has none", field=f"source.{key}", rule="topics, or options that name them"
            )
    if not isinstance(options, Mapping):
        return  # the section's own types say so
    yield from _server_faults(options, "source.options")
    yield from _topic_faults(options, topics)
    yield from _start_faults(options)
    yield from _end_faults(options)


def level_topic_faults(
    topics: Mapping[str, int], source: Mapping[str, Any], rejects: Mapping[str, Any]
) -> Iterator[ConfigError]:
    """All that is wrong with the topics of delay levels, beside a source and rejects as they stand in the file."""
    if not topics:
        return
    if source.get("format") != "kafka":
        rule = "source.format: kafka"
        yield ConfigError("a setting of kafka sources", field="levels.topics", rule=rule)
        return
    yield from _name_faults(tuple(topics), "levels.topics")
    named = topic_names(source)
    if not named and option(source.get("options") or {}, "subscribePattern") is not None:
        rule = "source.topics, or the option subscribe or assign: what a pattern matches may be one of these"
        yield ConfigError("topics beside a pattern", field="levels.topics", rule=rule)
    for topic in topics:
        if topic in named:
            what = "this topic is read already"
            yield ConfigError(what, field="levels.topics", value=topic, rule="not a topic of the source")
        if topic == rejects.get("topic"):
            what = "the rejects would come back as commands"
            yield ConfigError(what, field="rejects.topic", value=topic, rule="not a topic of levels.topics")


def sink_faults(sink: Mapping[str, Any], field: str, *, is_rejects: bool) -> Iterator[ConfigError]:
    """All that is wrong with a sink of kind kafka, as it stands in the file."""
    options, topic = sink.get("options") or {}, sink.get("topic")
    if sink.get("path") is not None:
        yield ConfigError(
            "a kafka sink has none", field=f"{field}.path", rule="the topic is the destination's name"
        )
    if is_rejects and topic is None:
        yield ConfigError("missing", field=f"{field}.topic", rule="the topic for what cannot be delivered")
    if not is_rejects and topic is not None:
        rule = "the topic is the destination's name; only rejects say theirs"
        yield ConfigError("a setting of the rejects", field=f"{field}.topic", rule=rule)
    if isinstance(topic, str) and is_rejects:
        yield from _name_faults((topic,), f"{field}.topic")
    if isinstance(options, Mapping):
        yield from _server_faults(options, f"{field}.options")
        if option(options, "topic") is not None:
            hint = "leave it out: it would send every row to one topic"
            yield ConfigError(
                "an option that a kafka sink does not take", field=f"{field}.options.topic", hint=hint
            )


def _server_faults(options: Mapping[str, Any], field: str) -> Iterator[ConfigError]:
    if not (option(options, SERVERS) or "").strip():
        yield ConfigError(
            "a required option is missing",
            field=f'{field}."{SERVERS}"',
            rule="host:port, several with commas",
        )


def _topic_faults(options: Mapping[str, Any], topics: object) -> Iterator[ConfigError]:
    ways = [f"options.{key}" for key in options if str(key).lower() in _WAYS]
    ways += ["topics"] if topics is not None else []
    if len(ways) != 1:
        found = f"found {' and '.join(ways)}" if ways else "no topics"
        rule = "one of: topics, or the option subscribe, subscribePattern or assign"
        yield ConfigError(found, field="source", rule=rule)
    if isinstance(topics, list | tuple):
        if not topics:
            yield ConfigError("the list of topics is empty", field="source.topics", rule="at least one topic")
        yield from _name_faults(tuple(topics), "source.topics")
    if (names := option(options, "subscribe")) is not None:
        yield from _name_faults(tuple(name.strip() for name in names.split(",")), "source.options.subscribe")
    if (assigned := option(options, "assign")) is not None:
        try:
            _partitions(assigned)
        except ValueError:
            rule = 'JSON such as {"topic": [0, 1]}'
            yield ConfigError("not partitions", field="source.options.assign", value=assigned, rule=rule)


def _name_faults(names: tuple[object, ...], field: str) -> Iterator[ConfigError]:
    for name in names:
        if isinstance(name, str) and (name in (".", "..") or not _TOPIC.fullmatch(name)):
            yield ConfigError("not a topic's name", field=field, value=name, rule=_TOPIC_RULE)


def _start_faults(options: Mapping[str, Any]) -> Iterator[ConfigError]:
    text = option(options, "startingOffsets")
    if text is None or text.strip().lower() in ("earliest", "latest"):
        return
    field, rule = (
        "source.options.startingOffsets",
        f"earliest, latest, or {_OFFSETS_RULE} (-2 earliest, -1 latest)",
    )
    try:
        lowest = min((offset for places in _offsets(text).values() for offset in places.values()), default=0)
    except ValueError:
        yield ConfigError("not offsets", field=field, value=text, rule=rule)
    else:
        if lowest < _EARLIEST:
            yield ConfigError("no such offset", field=field, value=lowest, rule=rule)


def _end_faults(options: Mapping[str, Any]) -> Iterator[ConfigError]:
    for name in ("endingTimestamp", "endingOffsetsByTimestamp"):
        if option(options, name) is not None:
            hint = "use endingOffsets"
            yield ConfigError("an option that streams do not have", field=f"source.options.{name}", hint=hint)
    text = option(options, "endingOffsets")
    if text is None:
        return
    field = "source.options.endingOffsets"
    if text.strip().lower() == "latest":
        hint = "the trigger available-now reads to what is the latest at its start"
        yield ConfigError("an end that moves", field=field, value=text, rule=_OFFSETS_RULE, hint=hint)
        return
    try:
        lowest = min((offset for places in _offsets(text).values() for offset in places.values()), default=0)
    except ValueError:
        yield ConfigError("not offsets", field=field, value=text, rule=_OFFSETS_RULE)
    else:
        if lowest < 0:
            yield ConfigError("no such offset", field=field, value=lowest, rule=f"{_OFFSETS_RULE}, from 0 on")


def _offsets(text: str) -> Offsets:
    """Raises ValueError if it is not such JSON."""
    parsed = json.loads(text)
    if not isinstance(parsed, dict) or not all(isinstance(places, dict) for places in parsed.values()):
        raise ValueError(text)
    offsets = [offset for places in parsed.values() for offset in places.values()]
    if any(not isinstance(offset, int) or isinstance(offset, bool) for offset in offsets):
        raise ValueError(text)
    return {
        topic: {_partition(number): offset for number, offset in places.items()}
        for topic, places in parsed.items()
    }


def _partitions(text: str) -> dict[str, list[int]]:
    """Raises ValueError if it is not such JSON."""
    parsed = json.loads(text)
    good = isinstance(parsed, dict) and parsed
    if not good or not all(isinstance(numbers, list) and numbers for numbers in parsed.values()):
        raise ValueError(text)
    return {topic: [_partition(str(number)) for number in numbers] for topic, numbers in parsed.items()}


def _partition(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise ValueError(text)
    return int(text)
