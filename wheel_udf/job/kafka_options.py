"""Options of a Kafka source: what the job passes to Spark's connector.

Options go to the connector as they are (``kafka.*`` to Kafka's own client, ``maxOffsetsPerTrigger`` and similar ones
to Spark), with these exceptions::

    startingOffsets     earliest by default: commands that were sent before the first start must not be lost
    includeHeaders      always true: headers are passed through
    failOnDataLoss      true by default: the job stops if commands were deleted before they were read
                        (wheel_udf.job.source_topics)
    endingOffsets       Spark has it for batches only. Here JSON as there, {"topic": {"0": 23}}: records at these
                        offsets and beyond are left out; a partition that is not named has no end. Use it for a
                        backfill with its own checkpoint: records that are left out count as read, so later runs
                        from the same checkpoint do not read them.

The names of options are Spark's, in any case of letters. :mod:`wheel_udf.job.models.kafka` checks them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final

WAYS: Final = ("subscribe", "subscribepattern", "assign")
"""The options that name topics, in lower case."""

_STARTS: Final = ("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp")
_RATES: Final = ("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay")

Offsets = dict[str, dict[int, int]]
"""Topic to partition to offset."""


def reader_options(options: Mapping[str, str], topics: tuple[str, ...] | None) -> dict[str, str]:
    """Returns the options for Spark's reader."""
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
    """Returns the options of a reader for some of the topics.

    Spark refuses ``startingOffsets`` that name other topics. A topic without an offset there starts at its earliest
    record.
    """
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
    """Returns the options of a reader for the topic of a delay level, from those for the topics of the source."""
    options = {key: value for key, value in for_topics(given, [topic]).items() if key.lower() not in WAYS}
    options["subscribe"] = topic
    if paused:
        # Spark reads at most this many records of a batch: none, and the offsets do not move.
        options = {key: value for key, value in options.items() if key.lower() not in _RATES}
        options["maxOffsetsPerTrigger"] = "0"
    return options


def ending_offsets(options: Mapping[str, str]) -> Offsets:
    """Returns the offsets where reading ends; empty for no end."""
    text = option(options, "endingOffsets")
    return {} if text is None else offsets_of(text)


def topic_names(topics: tuple[str, ...] | None, options: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the topics that a source names, in whichever setting; none for a pattern."""
    if topics is not None:
        return topics
    if (names := option(options, "subscribe")) is not None:
        return tuple(name.strip() for name in names.split(","))
    if (assigned := option(options, "assign")) is not None:
        with suppress(ValueError):
            return tuple(assigned_partitions(assigned))
    return ()


def option(options: Mapping[str, Any], name: str) -> str | None:
    """Returns the value of an option, whatever the case of its name; None if it is not set."""
    return next((str(value) for key, value in options.items() if str(key).lower() == name.lower()), None)


def offsets_of(text: str) -> Offsets:
    """Reads JSON such as ``{"topic": {"0": 23}}``; raises ValueError for other texts."""
    parsed = _json(text)
    if not isinstance(parsed, dict) or not all(isinstance(places, dict) for places in parsed.values()):
        raise ValueError(text)
    offsets = [offset for places in parsed.values() for offset in places.values()]
    if any(not isinstance(offset, int) or isinstance(offset, bool) for offset in offsets):
        raise ValueError(text)
    return {
        topic: {_partition(number): offset for number, offset in places.items()}
        for topic, places in parsed.items()
    }


def assigned_partitions(text: str) -> dict[str, list[int]]:
    """Reads JSON such as ``{"topic": [0, 1]}``; raises ValueError for other texts."""
    parsed = _json(text)
    good = isinstance(parsed, dict) and parsed
    if not good or not all(isinstance(numbers, list) and numbers for numbers in parsed.values()):
        raise ValueError(text)
    return {topic: [_partition(str(number)) for number in numbers] for topic, numbers in parsed.items()}


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:  # brackets a thousand deep
        raise ValueError(text) from None


def _partition(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise ValueError(text)
    return int(text)
