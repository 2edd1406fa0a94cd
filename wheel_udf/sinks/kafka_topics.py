"""Checks the topics of a write before it, and creates missing ones if the sink may.

::

    names --> missing (created on request), internal, not allowed for this user --> TopicCheck.reasons, by name
                 '-- the others, as their cluster describes them -----------------> TopicCheck.infos, by name
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from wheel_udf.common.errors import SinkError
from wheel_udf.kafka import admin as kafka_admin
from wheel_udf.kafka.admin import TopicInfo


@dataclass(frozen=True)
class TopicCheck:
    """State of the topics of one write; two are equal if nothing has changed between them."""

    infos: Mapping[str, TopicInfo]
    reasons: Mapping[str, str]


def check_topics(options: Mapping[str, str], names: Collection[str], *, create: bool) -> TopicCheck:
    """Checks topics before a write, and makes missing ones if it may.

    Raises:
        SinkError: The cluster does not answer.
    """
    allowed = [name for name in names if name not in kafka_admin.INTERNAL_TOPICS]
    if create:
        infos, faults = _described_and_made(options, allowed)
    else:
        infos, faults = kafka_admin.describe(options, allowed), {}
    reasons = {name: faults.get(name) or topic_reason(name, infos.get(name)) for name in names}
    refused = {name: reason for name, reason in reasons.items() if reason is not None}
    return TopicCheck({name: infos[name] for name in names if name not in refused}, refused)


def _described_and_made(
    options: Mapping[str, str], names: Collection[str]
) -> tuple[dict[str, TopicInfo], dict[str, str]]:
    """Describes topics and creates missing ones; returns the topics, and why some cannot be created."""
    infos, faults = kafka_admin.describe(options, names), {}
    missing = [name for name in names if name not in infos]
    for name in missing:
        try:
            kafka_admin.create(options, name)
        except SinkError as fault:
            faults[name] = fault.what
    # A cluster that is down raises here, not one that refuses a name (by a policy, or as similar to another).
    made = kafka_admin.describe(options, missing)
    # A broker may not know yet about a topic that the controller has created; the producer waits until it does.
    expected = {name: TopicInfo(partitions=1) for name in missing if name not in faults}
    return {**infos, **expected, **made}, {name: why for name, why in faults.items() if name not in made}


def topic_reason(name: str, info: TopicInfo | None) -> str | None:
    """Returns why a topic takes no row at all; None if it takes rows."""
    if name in kafka_admin.INTERNAL_TOPICS:
        return f"the topic {name} is an internal topic of Kafka"
    if info is None:
        return f"the topic {name} is missing"
    return f"writing to the topic {name} is not allowed" if info.may_write is False else None
