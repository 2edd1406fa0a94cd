"""The sections ``destinations`` and ``rejects``: where rows go. One variant for each kind of sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, StrictBool, StrictInt, StrictStr, Tag
from pydantic_core import InitErrorDetails

from wheel_udf.common.errors import ConfigError, ConfigErrors
from wheel_udf.common.names import KAFKA_SERVERS, PATTERN_RULE, is_destination_pattern
from wheel_udf.job.kafka_options import option
from wheel_udf.job.models import kafka
from wheel_udf.job.models.section import Rule
from wheel_udf.job.models.service import NumberOrRetries, RetriesConfig, ServedConfig
from wheel_udf.job.models.tables import path_or_table
from wheel_udf.job.models.values import (
    NOT_EMPTY,
    DestinationName,
    FolderPath,
    Options,
    PositiveWaitMs,
    TableText,
    Text,
    WaitMs,
    as_written,
    fault,
    fault_at,
)
from wheel_udf.sinks.own_sink import OWN_SINK_PATTERN

# The sinks themselves are imported where one is made: they need pyspark, and a second start is refused before that is
# loaded.

OWN: Final = "module:Class"
"""Stands for the sinks of users among the kinds of sinks."""
NAMED: Final = "named"
"""Stands for the kinds that have a name."""


class _Sink(ServedConfig):
    discriminator: ClassVar = "sink"
    not_here: ClassVar = {"topic": "the topic is the destination's name; only rejects name theirs"}

    shown_as: ClassVar = "{path}"
    """Where it writes, for people; in braces, its settings."""

    @property
    def place(self) -> str | None:
        """The path; of rejects in Kafka their topic; None if each destination names its topic."""
        return getattr(self, "path", getattr(self, "topic", None))

    @property
    def creates(self) -> bool:
        """Whether what is missing is created."""
        return bool(getattr(self, "create", False))

    @property
    def shown(self) -> str:
        """Where it writes, for people."""
        return self.shown_as.format(**dict(self))


def _tables_are_not_tried_again(
    on_undeliverable: str | None, retries: RetriesConfig | None
) -> Iterator[InitErrorDetails]:
    if on_undeliverable == "retry" or retries is not None:
        at = "retries" if retries is not None else "on_undeliverable"
        rule = "of webhooks, databases, topics and sinks of your own"
        hint = "a batch that cannot write a table is repeated as a whole, so each row is there once"
        value = None if retries is not None else on_undeliverable
        yield fault_at(at, what="tables and files are not tried again", value=value, rule=rule, hint=hint)


class _Creating(_Sink):
    create: StrictBool = False
    """Whether a missing Delta table or topic is created. Folders of files, and tables of rejects, always are."""


class _Tables(_Creating):
    rules: ClassVar[tuple[Rule, ...]] = (*ServedConfig.rules, _tables_are_not_tried_again)


class DeltaSinkConfig(_Tables):
    """A Delta table for each destination name: below one folder, or by its name in a catalog. Of rejects: one table."""

    sink: Literal["delta"]
    """Delta tables: exactly once."""

    path: FolderPath | None = None
    """The folder of the tables; of rejects the table itself."""

    table: TableText | None = None
    """The table's name in a catalog, instead of a path; {destination} stands for the destination's name."""

    rules: ClassVar[tuple[Rule, ...]] = (*_Tables.rules, path_or_table)

    @property
    def shown(self) -> str:
        """The folder, or the table."""
        return self.path if self.path is not None else f"table {self.table}"


class IcebergSinkConfig(_Tables):
    """A table of an Iceberg catalog for each destination name. Of rejects: one table."""

    shown_as: ClassVar = "{table}"

    sink: Literal["iceberg"]
    """Iceberg tables: exactly once."""

    table: TableText
    """The table's name, such as lake.reminders.{destination}; {destination} stands for the destination's name."""


class FileSinkConfig(_Tables):
    """Files, for a first look at the output."""

    sink: Literal["parquet", "json", "csv"]
    """The format of the files."""

    path: FolderPath
    """The folder to write to."""

    @property
    def creates(self) -> bool:
        """Always."""
        return True


class KafkaSinkConfig(_Creating):
    """A topic of Kafka for each destination name."""

    sink: Literal["kafka"]
    """Topics of Kafka: at least once, with the same fire_id on a duplicate."""

    options: Options = Field(default_factory=dict)
    """kafka.bootstrap.servers, and other settings of the producer, each with kafka. before it."""

    rules: ClassVar[tuple[Rule, ...]] = (*ServedConfig.rules, kafka.has_servers, kafka.has_no_topic_option)

    @property
    def shown(self) -> str:
        """The cluster and the topic."""
        return f"{option(self.options, KAFKA_SERVERS)}, topic {self.place or 'of the same name'}"


class KafkaRejectsConfig(KafkaSinkConfig):
    """A topic of Kafka for what cannot be used or delivered."""

    topic: DestinationName
    """The topic for what cannot be delivered."""


def _faults_of(make: Callable[[], object]) -> Iterator[InitErrorDetails]:
    """The errors of a sink about its settings, under the keys of the file."""
    try:
        make()
    except ConfigError as error:
        for each in error.faults if isinstance(error, ConfigErrors) else (error,):
            keys = (each.field or "").removesuffix("_ms").partition(":")[0].split(".", 1)
            yield fault_at(*keys, what=each.what, value=each.value, rule=each.rule, hint=each.hint)


def _is_a_webhook(url: str, headers: Mapping[str, str]) -> Iterator[InitErrorDetails]:
    from wheel_udf.sinks.http_sink import HttpSink

    return _faults_of(lambda: HttpSink(url, headers))


class HttpSinkConfig(_Sink):
    """A webhook for each destination name."""

    shown_as: ClassVar = "{url}"

    sink: Literal["http"]
    """A POST for each row: at least once, with the fire_id as the idempotency key."""

    url: Text
    """Where rows are posted; {destination} stands for the destination's name."""

    headers: Options = Field(default_factory=dict)
    """Headers of every request, such as Authorization."""

    body: Literal["json", "value"] = "json"
    """json: the row as an object; value: the bytes of its value, with the other columns as headers."""

    id_header: Text = "Idempotency-Key"
    """The header that gets the fire_id."""

    timeout_ms: PositiveWaitMs = Field(as_written("5 seconds"), alias="timeout")
    """The longest time of one try."""

    retries: NumberOrRetries = Field(as_written(3))
    """Tries after the first one, in the batch; or when rows are tried again later."""

    backoff_ms: WaitMs = Field(as_written("500 ms"), alias="backoff")
    """The wait before the second try; it doubles with each further one."""

    concurrency: StrictInt = Field(8, ge=1, le=256)
    """Rows that a task sends to one endpoint at the same time."""

    budget_ms: PositiveWaitMs = Field(as_written("30 seconds"), alias="budget")
    """The longest time for all rows of an endpoint in a task."""

    cooldown_ms: WaitMs = Field(as_written("30 seconds"), alias="cooldown")
    """How long an endpoint that failed is not tried."""

    rules: ClassVar[tuple[Rule, ...]] = (*ServedConfig.rules, _is_a_webhook)


def _is_a_database(url: str) -> Iterator[InitErrorDetails]:
    from wheel_udf.sinks.jdbc_sink import JdbcSink

    return _faults_of(lambda: JdbcSink(url))


class JdbcSinkConfig(_Sink):
    """A table of PostgreSQL for each destination name."""

    shown_as: ClassVar = "{url}, table {schema_}.{table}"

    sink: Literal["jdbc"]
    """Tables with a unique fire_id: each delivery is there once."""

    url: Text
    """The JDBC URL, jdbc:postgresql://host/database."""

    options: Options = Field(default_factory=dict)
    """Properties of the connection, such as user and password."""

    schema_: Text = Field("public", alias="schema")
    """The schema of the tables."""

    table: Text = "{destination}"
    """The table's name; {destination} stands for the destination's name."""

    timeout_ms: PositiveWaitMs = Field(as_written("1 minute"), alias="timeout")
    """The longest time of a statement, and of an answer."""

    when_down: Literal["fail", "undeliverable"] = "fail"
    """What happens to a batch whose database is away, if its rows are not tried again."""

    rules: ClassVar[tuple[Rule, ...]] = (*ServedConfig.rules, _is_a_database)


def _is_a_sink(sink: str, options: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
    from wheel_udf.sinks.own_sink import make_own_sink

    return _faults_of(lambda: make_own_sink(sink, options))


class OwnSinkConfig(_Sink):
    """A sink of your own: a class of a module that can be imported."""

    kinds: ClassVar[tuple[str, ...]] = (OWN,)
    shown_as: ClassVar = "destination of the same name"

    sink: Annotated[Text, Field(json_schema_extra={"pattern": f"^{OWN_SINK_PATTERN}$"})]
    """The class, as module:Class, such as my.module:MySink."""

    options: dict[StrictStr, Any] = Field(default_factory=dict)
    """The arguments of the class, by name."""

    rules: ClassVar[tuple[Rule, ...]] = (*ServedConfig.rules, _is_a_sink)


def _pattern(value: object) -> object:
    if not is_destination_pattern(value):
        raise fault("not a destination pattern", rule=PATTERN_RULE)
    return value


def _kind_of(given: Any) -> str:
    sink = given.get("sink") if isinstance(given, Mapping) else getattr(given, "sink", None)
    return OWN if isinstance(sink, str) and ":" in sink else NAMED


_Named = Annotated[
    DeltaSinkConfig | IcebergSinkConfig | KafkaSinkConfig | FileSinkConfig | HttpSinkConfig | JdbcSinkConfig,
    Field(discriminator="sink"),
]
SinkConfig = Annotated[
    Annotated[_Named, Tag(NAMED)] | Annotated[OwnSinkConfig, Tag(OWN)], Discriminator(_kind_of)
]
RejectsConfig = Annotated[
    DeltaSinkConfig | IcebergSinkConfig | KafkaRejectsConfig | FileSinkConfig, Field(discriminator="sink")
]
AnySink = (
    DeltaSinkConfig
    | IcebergSinkConfig
    | KafkaSinkConfig
    | FileSinkConfig
    | HttpSinkConfig
    | JdbcSinkConfig
    | OwnSinkConfig
)
DestinationsConfig = Annotated[
    dict[Annotated[str, BeforeValidator(_pattern)], SinkConfig],
    NOT_EMPTY,
    Field(json_schema_extra={"minProperties": 1, "propertyNames": {"pattern": "^[A-Za-z0-9._*?-]{1,249}$"}}),
]
