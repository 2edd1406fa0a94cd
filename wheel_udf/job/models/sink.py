"""The sections ``destinations`` and ``rejects``: where rows go. One variant for each kind of sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, StrictBool

from wheel_udf.common import PATTERN_RULE, is_destination_pattern
from wheel_udf.job.models import kafka
from wheel_udf.job.models.section import Rule, Section
from wheel_udf.job.models.values import Options, Text, fault


class _Sink(Section):
    told_by: ClassVar = "sink"
    not_here: ClassVar = {"topic": "the topic is the destination's name; only rejects name theirs"}

    create: StrictBool = False
    """Whether a missing Delta table or topic is created. Folders of files, and tables of rejects, always are."""

    @property
    def place(self) -> str | None:
        """The path; of rejects in Kafka their topic; None if each destination names its topic."""
        return None


class _Folder(_Sink):
    path: Text
    """The folder to write to."""

    @property
    def place(self) -> str:
        """The path."""
        return self.path


class DeltaSinkConfig(_Folder):
    """A Delta table for each destination name, below one folder. Of rejects: one table."""

    sink: Literal["delta"]
    """Delta tables: exactly once."""


class FileSinkConfig(_Folder):
    """Files, for a first look at the output."""

    sink: Literal["parquet", "json", "csv"]
    """The format of the files."""


class KafkaSinkConfig(_Sink):
    """A topic of Kafka for each destination name."""

    sink: Literal["kafka"]
    """Topics of Kafka: at least once, with the same fire_id on a duplicate."""

    options: Options = Field(default_factory=dict)
    """kafka.bootstrap.servers, and other settings of the producer, each with kafka. before it."""

    rules: ClassVar[tuple[Rule, ...]] = (kafka.has_servers, kafka.has_no_topic_option)


class KafkaRejectsConfig(KafkaSinkConfig):
    """A topic of Kafka for what cannot be used or delivered."""

    topic: kafka.TopicName
    """The topic for what cannot be delivered."""

    @property
    def place(self) -> str:
        """The topic."""
        return self.topic


def _patterns(value: object) -> object:
    if isinstance(value, Mapping) and not value:
        raise fault("no destination", rule="at least one name or pattern with its sink")
    return value


def _pattern(value: object) -> object:
    if not is_destination_pattern(value):
        raise fault("not a destination pattern", rule=PATTERN_RULE)
    return value


SinkConfig = Annotated[DeltaSinkConfig | KafkaSinkConfig | FileSinkConfig, Field(discriminator="sink")]
RejectsConfig = Annotated[DeltaSinkConfig | KafkaRejectsConfig | FileSinkConfig, Field(discriminator="sink")]
AnySink = DeltaSinkConfig | KafkaSinkConfig | FileSinkConfig
DestinationsConfig = Annotated[
    dict[Annotated[str, BeforeValidator(_pattern)], SinkConfig],
    BeforeValidator(_patterns),
    Field(json_schema_extra={"minProperties": 1, "propertyNames": {"pattern": "^[A-Za-z0-9._*?-]{1,249}$"}}),
]
