"""The section ``source``: where commands come from. One variant for each kind of format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic_core import InitErrorDetails

from wheel_udf.job.kafka_options import option, topic_names
from wheel_udf.job.models import kafka
from wheel_udf.job.models.section import Rule, Section
from wheel_udf.job.models.tables import is_one_table, path_or_table
from wheel_udf.job.models.values import FolderPath, Options, TableText, Text, fault_at

_CHANGE_FEED = ("readChangeFeed", "readChangeData")  # Delta has both names


def _has_no_change_feed(format: str, options: Mapping[str, str]) -> Iterator[InitErrorDetails]:  # noqa: A002  (the key)
    # Other readers would ignore the option, and read other rows than the user expects.
    for name in _CHANGE_FEED:
        if option(options, name) is not None:
            yield fault_at("options", what=f"{format} has no change feed", rule=f"{name} only with delta")


class _Source(Section):
    discriminator: ClassVar = "format"

    options: Options = Field(default_factory=dict)
    """Options of Spark's reader, passed as they are."""

    @property
    def reads_changes(self) -> bool:
        """Whether the source is the change feed of a Delta table."""
        return False


class FileSourceConfig(_Source):
    """A folder of files. Its text formats (json, csv) are read as texts, which the command contract parses."""

    format: Literal["parquet", "json", "csv"]
    """Spark's name of the format."""

    path: FolderPath
    """The folder to read. It must exist; it may be empty. If no folder has this name, * ? [ ] { } are wildcards."""

    @property
    def place(self) -> str:
        """The path."""
        return self.path

    @property
    def place_field(self) -> str:
        """The setting that has it."""
        return "source.path"

    schema_ddl: Text | None = Field(None, alias="schema")
    """Columns of the files as SQL DDL. Default: those of the files, or of the command contract."""

    rules: ClassVar[tuple[Rule, ...]] = (_has_no_change_feed,)


class DeltaSourceConfig(_Source):
    """A Delta table, or its change feed with the option readChangeFeed."""

    format: Literal["delta"]
    """A Delta table."""

    path: FolderPath | None = None
    """The folder of the table to read."""

    table: TableText | None = None
    """The table's name in a catalog, instead of a path."""

    rules: ClassVar[tuple[Rule, ...]] = (path_or_table, is_one_table)

    @property
    def place(self) -> str:
        """The path or the name."""
        return self.path or self.table or ""

    @property
    def place_field(self) -> str:
        """The setting that has it."""
        return "source.table" if self.path is None else "source.path"

    @property
    def reads_changes(self) -> bool:
        """Whether the source is the change feed of the table, and not the table itself."""
        values = (option(self.options, name) for name in _CHANGE_FEED)
        return any(value is not None and value.lower() == "true" for value in values)


class KafkaSourceConfig(_Source):
    """Topics of Kafka. Options that begin with kafka. go to Kafka's client, the others to Spark's connector."""

    format: Literal["kafka"]
    """Topics of Kafka."""

    topics: kafka.Topics | None = None
    """The topics to read, unless one of the options subscribe, subscribePattern or assign names them."""

    rules: ClassVar[tuple[Rule, ...]] = (
        _has_no_change_feed,
        kafka.has_servers,
        kafka.names_topics_once,
        kafka.names_good_topics,
        kafka.starts_at_offsets,
        kafka.ends_at_offsets,
    )

    @property
    def topic_names(self) -> tuple[str, ...]:
        """The topics that are named, in whichever setting; none for a pattern."""
        return topic_names(self.topics, self.options)


SourceConfig = Annotated[
    FileSourceConfig | DeltaSourceConfig | KafkaSourceConfig, Field(discriminator="format")
]
