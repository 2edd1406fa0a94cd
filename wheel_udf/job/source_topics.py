"""Compares the offsets in a checkpoint with their topics, so that lost records are reported with their topic.

::

    checkpoint    orders/0 is read up to 6, id A      cluster     reported
                                                      [9, 12)     retention: 3 offsets are lost
                                                      id B        the topic was created again: its beginning is not read
                                                      [0, 2)      likewise, if the id was not noted

Compared before each start, after a failure, and every few seconds while a query reads. Spark compares offsets alone: a
topic that was created again and already holds more records than were read passes for the old one. So the ids of the
topics are noted beside the checkpoint's own files, in ``wheel-topics.json``.

With ``failOnDataLoss: false`` a loss does not end the job. The lost offsets are counted from the plans of the batches:
those that were skipped, and those below the earliest one that the topic still has. It is a count of offsets:
compaction and transactions leave some without a record. What a deleted topic held that was not read is not known.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from wheel_udf.checkpoint.spark_logs import last_committed, offsets_of_batch
from wheel_udf.common.errors import SinkError, SourceLostError, TransferError
from wheel_udf.common.secrets import in_short
from wheel_udf.job import kafka_options
from wheel_udf.job.models.purgatory import AnyConfig
from wheel_udf.job.models.scheduler import SchedulerConfig
from wheel_udf.job.models.source import KafkaSourceConfig
from wheel_udf.kafka import admin as kafka_admin
from wheel_udf.spark.failures import LOST_HINT
from wheel_udf.spark.files import json_bytes, open_folder, parsed_json

_log: Final = logging.getLogger(__name__)

NOTED: Final = "wheel-topics.json"

_TIMEOUT_MS: Final = 3_000
_SHOWN: Final = 5

Places = Mapping[int, int]
"""Partition to the offset that is read next."""


@dataclass(frozen=True)
class Loss:
    """Records of a topic that were not read.

    Attributes:
        what: A clause that names the topic, its partition and the offsets.
        offsets: How many offsets of today's topic are lost; 0 if only a deleted topic had them.
        anew: Whether the topic has another id than the noted one.
    """

    what: str
    offsets: int = 0
    anew: bool = False


def losses(
    topic: str,
    read: Places,
    now: kafka_admin.TopicOffsets | None,
    noted_id: str | None,
    until: Places | None = None,
) -> Iterator[Loss]:
    """Compares the places in a topic with what it holds.

    Args:
        topic: Its name.
        read: The places before.
        now: What the topic holds; None if it does not exist.
        noted_id: The id of the topic when these places were reached; None if unknown.
        until: The places after a batch that has read the topic; None: nothing was read since.
    """
    if now is None:
        yield Loss(f"topic {topic} was deleted")
        return
    anew = noted_id not in (None, now.topic_id)
    ids = f" (id {noted_id}, now {now.topic_id})" if anew else ""
    is_same = noted_id == now.topic_id  # cut off: a leader was elected that had not all records
    again = f"topic {topic} " + ("has lost its end" if is_same else f"was deleted and created again{ids}")
    for number, place in sorted(read.items()):
        if number not in now.ranges:
            yield Loss(f"{again}: partition {number} is gone, it was read up to offset {place}", anew=anew)
            continue
        first, end = now.ranges[number]
        reached = end if until is None else until.get(number, end)
        if anew or min(end, reached) < place:
            held = f"holds offsets {first} to {end - 1}" if first < end else "is empty"
            what = f"{again}: partition {number} was read up to offset {place}, and now {held}"
            yield Loss(what, 0 if is_same else max(0, min(place, reached) - first), anew)
        elif (lost := min(first, reached) - place) > 0:
            what = f"offsets {place} to {place + lost - 1} of {topic}/{number} were deleted before they were read"
            yield Loss(what, lost)


class SourceTopics:
    """The Kafka topics of a job.

    Args:
        config: The checked config; without a Kafka source there is nothing to compare.
        print_line: Takes the warning at the beginning and a line for each loss with ``failOnDataLoss: false``.

    Attributes:
        lost: How many offsets are known to be lost so far.
    """

    def __init__(self, config: AnyConfig, print_line: Callable[[str], None]) -> None:
        self._print_line, self.lost = print_line, 0
        self._path = config.checkpoints[0]
        self._sources = _topic_sources(config)
        self._paused = _paused(config)
        self._seen: int | None = None
        for name, source in self._sources.items():
            if not _is_strict(source):
                what = "records deleted before they are read, or a topic created again, do not end the job"
                print_line(
                    f"warning: {name}.options.failOnDataLoss: false: {what}; the commands in them are lost"
                )

    def check(self, error: Exception | None = None) -> None:
        """Compares the places in the checkpoint with the topics, before a start or after a failure.

        Args:
            error: The failure. If the cluster does not answer then, nothing is raised.

        Raises:
            SourceLostError: Records are lost, and ``failOnDataLoss`` is not false.
            SinkError: The Kafka cluster does not answer.
        """
        committed = last_committed(self._path) if self._sources else None
        if committed is None:
            return
        self._seen = committed if self._seen is None else self._seen
        read, noted = self._places(committed), self._noted()
        try:
            now = _offsets(self._sources, read)
        except SinkError as fault:
            if error is None and not isinstance(fault, kafka_admin.UncheckedError):
                raise
            return
        found = [
            loss
            for topic, places in read.items()
            if _is_strict(_source_of(topic, self._sources))
            for loss in losses(topic, places, now.get(topic), noted.get(topic))
        ]
        if found:
            raise _error_of(found) from error
        # Of another id with failOnDataLoss: false, the old one stays noted until a batch has read the topic.
        self._note(noted, _ids(now) | noted)

    def look(self) -> None:
        """Compares the topics with the batches since the last look. If the cluster or the checkpoint's file system does
        not answer, the next look does.

        Raises:
            SourceLostError: A topic was created again, and ``failOnDataLoss`` is not false.
        """
        try:
            with suppress(SinkError):
                self._look()
        except SourceLostError:
            raise
        except Exception as fault:  # noqa: BLE001  # of a file system, of any class
            _log.warning("the topics were not looked at: %s", in_short(fault))

    def _look(self) -> None:
        newest = last_committed(self._path) if self._sources else None
        if newest is None or newest == self._seen:
            return
        before = {} if self._seen is None else self._places(self._seen)
        first = 0 if self._seen is None else self._seen + 1
        if all(map(_is_strict, self._sources.values())):
            first = newest
        for batch in range(first, newest + 1):
            after = self._places(batch)
            if after != before:
                self._compare(before, after, _offsets(self._sources, {**before, **after}))
            before, self._seen = after, batch

    def _compare(
        self,
        before: Mapping[str, Places],
        after: Mapping[str, Places],
        now: Mapping[str, kafka_admin.TopicOffsets],
    ) -> None:
        noted, fatal = self._noted(), []
        for topic, read in before.items():
            is_strict = _is_strict(_source_of(topic, self._sources))
            for loss in losses(topic, read, now.get(topic), noted.get(topic), after.get(topic, {})):
                if not is_strict:
                    self.lost += loss.offsets
                    count = f": {loss.offsets:,} offsets are lost" if loss.offsets else ""
                    self._print_line(f"warning: {loss.what}{count}")
                elif loss.anew:  # the others may have been read before they were deleted
                    fatal.append(loss)
        if fatal:
            raise _error_of(fatal)
        self._note(noted, noted | _ids(now))

    def _places(self, batch: int) -> dict[str, Places]:
        """The offsets of each topic after a batch, without paused levels; empty if the batch is not on record."""
        found: dict[str, Places] = {}
        for value in offsets_of_batch(self._path, batch) or ():
            with suppress(ValueError):  # the clock, files, tables
                for topic, places in kafka_options.offsets_of(json.dumps(value)).items():
                    # Two sources may read one topic: what one of them has not read is not read.
                    other = found.get(topic, {})
                    least = {each: min(place, other.get(each, place)) for each, place in places.items()}
                    found[topic] = {**other, **least}
        return {topic: places for topic, places in found.items() if topic not in self._paused}

    def _noted(self) -> dict[str, str]:
        content = open_folder(self._path).read(NOTED)
        found = None if content is None else parsed_json(content)
        return found if isinstance(found, dict) else {}

    def _note(self, before: Mapping[str, str], now: Mapping[str, str]) -> None:
        if now != before:
            open_folder(self._path).replace(NOTED, json_bytes(now))


def begun_anew(config: AnyConfig, positions: Sequence[Any], topics: Collection[str]) -> list[Any]:
    """Returns positions of sources, with some topics at their earliest record.

    Args:
        config: The checked config.
        positions: Of each source, as JSON values; None for one that had no offset yet.
        topics: The topics that were created again.

    Raises:
        TransferError: None of the positions is of such a topic, or it does not exist.
        SinkError: The Kafka cluster does not answer.
    """
    sources = _topic_sources(config)
    now = _offsets(sources, topics) if sources else {}
    known = {topic for position in positions if isinstance(position, dict) for topic in position}
    if wrong := sorted(set(topics) - (now.keys() & known)):
        rule = "a topic that the old job has read, and that exists"
        raise TransferError("a topic cannot be read anew", field="--anew", value=", ".join(wrong), rule=rule)
    earliest = {
        topic: {str(number): first for number, (first, _) in each.ranges.items()}
        for topic, each in now.items()
    }
    return [
        {key: earliest.get(key, value) for key, value in position.items()}
        if isinstance(position, dict)
        else position
        for position in positions
    ]


def _error_of(found: list[Loss]) -> SourceLostError:
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return SourceLostError("; ".join(loss.what for loss in found[:_SHOWN]) + more, hint=LOST_HINT)


def _ids(now: Mapping[str, kafka_admin.TopicOffsets]) -> dict[str, str]:
    return {topic: each.topic_id for topic, each in now.items()}


def _is_strict(source: KafkaSourceConfig) -> bool:
    return (kafka_options.option(source.options, "failOnDataLoss") or "").lower() != "false"


def _topic_sources(config: AnyConfig) -> dict[str, KafkaSourceConfig]:
    """The sections that read topics, by name."""
    return {name: each for name, each in config.sources.items() if isinstance(each, KafkaSourceConfig)}


def _source_of(topic: str, sources: Mapping[str, KafkaSourceConfig]) -> KafkaSourceConfig:
    """The section that reads a topic: the one that names it, or has a pattern."""
    sections = list(sources.values())
    named = [each for each in sections if topic in each.topic_names]
    return (named or [each for each in sections if not each.topic_names] or sections)[0]


def _offsets(
    sources: Mapping[str, KafkaSourceConfig], topics: Collection[str]
) -> dict[str, kafka_admin.TopicOffsets]:
    found: dict[str, kafka_admin.TopicOffsets] = {}
    for source in sources.values():
        mine = [topic for topic in topics if _source_of(topic, sources) is source]
        if mine:
            found |= kafka_admin.offsets(source.options, mine, timeout_ms=_TIMEOUT_MS)
    return found


def _paused(config: AnyConfig) -> set[str]:
    """The topics of delay levels of which nothing is read for now."""
    levels = config.levels if isinstance(config, SchedulerConfig) else None
    paused = () if levels is None else levels.paused
    return {topic for topic, level_ms in config.level_topics.items() if level_ms in paused}
