"""What leaves the wheel and where it may go: the columns of deliveries and rejects, what a sink can do, the allow-list of names.

A sink is one kind of place (a folder of tables, a cluster of topics), a destination a name in it. There are two kinds of sinks::

    Sink        one write for each destination    tables, folders: each is exactly once for itself
    JointSink   one write for all destinations    topics: a write costs a Spark job (50 to 100 ms), however many topics it fills
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, cached_property
from typing import Final, Literal, Protocol, runtime_checkable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from wheel_udf.errors import ConfigError
from wheel_udf.prepared import Prepared
from wheel_udf.tables import NAME_RULE, is_destination_name

_HEADERS: Final = "headers array<struct<key: string, value: binary>>"
FIRED_SCHEMA: Final = (
    "schedule_id string, seq bigint, fire_id string, destination string, key binary, value binary, "
    f"{_HEADERS}, deliver_at timestamp, fired_at timestamp, lateness_ms bigint"
)
"""Columns of a delivery, as DDL."""
REJECT_SCHEMA: Final = (
    "error_code string, error_message string, record string, source string, schedule_id string, seq bigint, "
    f"destination string, key binary, value binary, {_HEADERS}, deliver_at timestamp, rejected_at timestamp"
)
"""Columns of the rejects, as DDL."""

LEVELED_SCHEMA: Final = f"{FIRED_SCHEMA}, scheduled_at timestamp, level_error_ms bigint"
"""Columns of a delivery of a wheel with delay levels (:mod:`wheel_udf.levels`), as DDL. ``deliver_at`` is what was asked for, ``scheduled_at`` when it
was to be released, ``level_error_ms`` how much later that is."""

OUTCOME_SCHEMA: Final = (
    "op_id string, group string, outcome string, by_key string, at timestamp, decided_at timestamp, present array<string>, "
    f"missing array<string>, generation int, destination string, key binary, value binary, {_HEADERS}, fire_id string"
)
"""Columns of an outcome of the purgatory, as DDL."""

SOURCE: Final = "source"
"""A further column of fired rows, a string: where the command came from, ``topic/partition/offset``; null where that is not known."""

_PATTERN: Final = re.compile(r"[A-Za-z0-9._*?-]{1,249}")


HeaderForm = Literal["text", "instant", "json"]
"""How a column is written into a header: as it is, as ISO 8601 in UTC, as JSON."""


@dataclass(frozen=True)
class Shape:
    """What rows look like that leave.

    Attributes:
        columns: DDL.
        order: The order of rows in a file, and of records in a partition.
        looked_up_by: Columns that tables keep statistics of.
        may_be_null: Columns that may have no value.
        headers: What a Kafka record says of the row beside its payload: name of the header, column, how it is written.
    """

    columns: str
    order: tuple[str, ...]
    looked_up_by: str
    may_be_null: frozenset[str]
    headers: tuple[tuple[str, str, HeaderForm], ...]

    @cached_property
    def projection(self) -> Prepared:
        """Its columns alone."""
        return Prepared(lambda: [F.col(name) for name in fields(self.columns).fieldNames()])

    @cached_property
    def oldest_first(self) -> Prepared:
        """Its order."""
        return Prepared(lambda: [F.col(name) for name in self.order])

    @property
    def record(self) -> tuple[str, ...]:
        """The columns that say which row it is, without its payload."""
        return tuple(
            name for name in fields(self.columns).fieldNames() if name not in ("key", "value", "headers")
        )


FIRED: Final = Shape(
    columns=FIRED_SCHEMA,
    order=("deliver_at", "schedule_id", "seq"),
    looked_up_by="schedule_id,seq,deliver_at,fired_at",
    may_be_null=frozenset({"key", "value", "headers"}),
    headers=(
        ("wheel-id", "schedule_id", "text"),
        ("wheel-fire-id", "fire_id", "text"),
        ("wheel-deliver-at", "deliver_at", "instant"),
        ("wheel-fired-at", "fired_at", "instant"),
        ("wheel-seq", "seq", "text"),
    ),
)
"""A firing of the wheel."""

LEVELED: Final = replace(
    FIRED,
    columns=LEVELED_SCHEMA,
    order=("scheduled_at", "schedule_id", "seq"),
    looked_up_by=f"{FIRED.looked_up_by},scheduled_at",
    headers=(
        *FIRED.headers,
        ("wheel-scheduled-at", "scheduled_at", "instant"),
        ("wheel-level-error-ms", "level_error_ms", "text"),
    ),
)
"""A firing of a wheel with delay levels."""

OUTCOME: Final = Shape(
    columns=OUTCOME_SCHEMA,
    order=("at", "group", "op_id"),
    looked_up_by="op_id,group,outcome,at",
    may_be_null=frozenset({"key", "value", "headers", "by_key"}),
    headers=(
        ("wheel-id", "op_id", "text"),
        ("wheel-fire-id", "fire_id", "text"),
        ("wheel-group", "group", "text"),
        ("wheel-outcome", "outcome", "text"),
        ("wheel-by-key", "by_key", "text"),
        ("wheel-at", "at", "instant"),
        ("wheel-decided-at", "decided_at", "instant"),
        ("wheel-generation", "generation", "text"),
        ("wheel-present", "present", "json"),
        ("wheel-missing", "missing", "json"),
    ),
)
"""An outcome of the purgatory."""


def shape_of(rows: DataFrame) -> Shape:
    """Which of the three rows are."""
    names = rows.columns
    if "outcome" in names:
        return OUTCOME
    return LEVELED if "scheduled_at" in names else FIRED


@cache
def fields(ddl: str) -> T.StructType:
    """The columns of a DDL text."""
    parsed = T.DataType.fromDDL(ddl)
    assert isinstance(parsed, T.StructType), ddl
    return parsed


class Sink(Protocol):
    """Where rows are written. A destination of None is the sink's own path as the one table; that is what rejects use."""

    def missing_reason(
        self, spark: SparkSession, destination: str | None, shape: Shape = FIRED
    ) -> str | None:
        """Why rows of a shape cannot be written for this destination, as a clause; None if they can."""

    def write(self, frame: DataFrame, destination: str | None, *, app_id: str, batch_id: int) -> None:
        """Writes rows; a second time with the same `app_id` and `batch_id` changes nothing.

        Args:
            frame: Rows of :data:`FIRED_SCHEMA`, :data:`LEVELED_SCHEMA` or :data:`OUTCOME_SCHEMA`, or of :data:`REJECT_SCHEMA` if `destination` is None.
            destination: The destination's name.
            app_id: Id of the series of batches; a checkpoint's own.
            batch_id: Number of the batch, rising in a series.

        Raises:
            SinkError: The destination cannot be written.
        """

    def holds(self, spark: SparkSession, destination: str | None, *, app_id: str, batch_id: int) -> bool:
        """Whether the batch has been written there completely."""


@dataclass(frozen=True)
class LeftOut:
    """What a write to many destinations has left out, and why.

    Attributes:
        reasons: Destinations none of whose rows were written, each with its reason as a clause.
        rows: Single rows of other destinations, with their columns and ``error_message``; None if there are none.
        row_count: How many rows `rows` has.
    """

    reasons: Mapping[str, str]
    rows: DataFrame | None = None
    row_count: int = 0


@runtime_checkable
class JointSink(Sink, Protocol):
    """A sink that writes all its destinations at once. Equal sinks of an allow-list are written as one, so it has a hash."""

    def write_all(
        self, frame: DataFrame, rows_to: Mapping[str, int], *, largest_to: Mapping[str, int] | None = None
    ) -> LeftOut:
        """Writes the rows of several destinations.

        Args:
            frame: Rows of :data:`FIRED_SCHEMA`, :data:`LEVELED_SCHEMA` or :data:`OUTCOME_SCHEMA` and :data:`SOURCE`, of these destinations and of others.
            rows_to: Which destinations to write, and how many rows each has in the frame.
            largest_to: Destination to the bytes of its largest row, or more: key, value, and of each header its name, its
                value and 10. What is known of sizes saves a look at the rows.

        Returns:
            What has been left out; all else is written.

        Raises:
            SinkError: The sink as a whole cannot be written, now.
        """


class Destinations:
    """The allow-list: which names may be written, and where. The first pattern that matches decides.

    Args:
        table: Names or patterns (``*`` any text, ``?`` one character, case counts) to sinks, in order.

    Attributes:
        patterns: The names and patterns, in order.

    Raises:
        ConfigError: Not a pattern that can match a name.
    """

    def __init__(self, table: Mapping[str, Sink]) -> None:
        for pattern in table:
            if not _PATTERN.fullmatch(pattern) or pattern in {".", ".."}:
                rule = f"{NAME_RULE}; * and ? for any"
                raise ConfigError("not a destination pattern", field="destinations", value=pattern, rule=rule)
        self._table = dict(table)
        self.patterns: tuple[str, ...] = tuple(self._table)

    def resolve(self, name: str) -> Sink | None:
        """The sink for a name; None if the name breaks the name rule or no pattern matches it."""
        if not is_destination_name(name):
            return None
        return next((sink for pattern, sink in self._table.items() if fnmatchcase(name, pattern)), None)

    def __iter__(self) -> Iterator[tuple[str, Sink]]:
        """Pattern and sink, in order."""
        return iter(self._table.items())

    def __len__(self) -> int:
        return len(self._table)
