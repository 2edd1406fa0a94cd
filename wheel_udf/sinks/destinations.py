"""The contract between rows and sinks: columns of deliveries and rejects, what a sink can do, the allow-list of
destination names.

A *sink* is one kind of place (a folder of tables, a cluster of topics); a *destination* is a name in it. There are two
kinds of sinks::

    Sink        one write per destination         tables, folders: each is exactly once on its own
    JointSink   one write for all destinations    topics: a write costs one Spark job for any number of topics
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, Protocol, Self, runtime_checkable

from pyspark.sql import Column, DataFrame, SparkSession, functions as F, types as T

from wheel_udf.common.errors import ConfigError
from wheel_udf.common.names import (
    PATTERN_RULE,
    AllowList,
    is_destination_name,
    is_destination_pattern,
    shares_a_folder,
)
from wheel_udf.common.secrets import hide
from wheel_udf.common.table_names import TableName, may_be_one, table_name
from wheel_udf.stream.frame_facts import FrameFacts
from wheel_udf.stream.outputs import SHAPES, columns_of

ISO_STYLE: Final = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "timeZone": "UTC"}
"""Options of Spark's writers of JSON and CSV: instants in UTC, to the millisecond."""

TABLE_PROPERTIES: Final[Mapping[str, str]] = {
    # A commit per second makes 86,400 log files a day. A consumer may be offline for a week; the table stays readable.
    "delta.logRetentionDuration": "interval 7 days",
}
"""Properties of new tables; existing tables are not changed."""

REJECT_STATISTICS: Final = "error_code,schedule_id,destination,rejected_at"
"""Columns of the rejects with statistics in tables."""

SOURCE: Final = "source"
"""Optional column of fired rows: the origin of the command as text, ``topic/partition/offset``; null if unknown."""


HeaderForm = Literal["text", "instant", "json"]
"""How a column is written into a header: as it is, as ISO 8601 in UTC, as JSON."""


@dataclass(frozen=True)
class Shape:
    """The form of delivered rows.

    Attributes:
        columns: Columns, as DDL.
        names: Their names.
        order: Columns that order rows in a file and records in a partition.
        looked_up_by: Columns with statistics in tables.
        may_be_null: Columns that may be null.
        headers: Headers of a Kafka record: name of the header, column, how the column is written.
        optional: Columns that a table may lack.
    """

    columns: str
    names: tuple[str, ...]
    order: tuple[str, ...]
    looked_up_by: str
    may_be_null: frozenset[str]
    headers: tuple[tuple[str, str, HeaderForm], ...]
    optional: frozenset[str] = frozenset()

    @classmethod
    def of(cls, *kinds: str) -> Self:
        """The shape of kinds of ``wheel_udf/stream/shapes.toml``, the later ones in addition to the first."""
        parts = [SHAPES[kind] for kind in kinds]
        return cls(
            columns=", ".join(columns_of(kind) for kind in kinds),
            names=tuple(name for part in parts for name in part["columns"]),
            order=tuple([part["order"] for part in parts if "order" in part][-1]),
            looked_up_by=",".join(name for part in parts for name in part.get("looked_up_by", ())),
            may_be_null=frozenset(name for part in parts for name in part.get("may_be_null", ())),
            headers=tuple((name, *how) for part in parts for name, how in part["headers"].items()),
            optional=frozenset(name for part in parts for name in part.get("optional", ())),
        )


FIRED: Final = Shape.of("fired")
"""A firing of the wheel."""

LEVELED: Final = Shape.of("fired", "leveled")
"""A firing of a wheel with delay levels."""

DEAD: Final = Shape.of("dead")
"""A dead letter."""

OUTCOME: Final = Shape.of("outcome")
"""An outcome of the purgatory."""

FIRED_SCHEMA: Final = FIRED.columns
"""Columns of a delivery, as DDL."""

REJECT_SCHEMA: Final = columns_of("reject")
"""Columns of the rejects, as DDL."""


def shape_of(facts: FrameFacts) -> Shape:
    """The shape of the rows that leave a frame of ``schedule`` or ``watch``."""
    if facts.is_purgatory:
        return OUTCOME
    more = {"leveled": facts.leveled, "repeated": facts.repeats, "tried": facts.retries}
    return _fired_with(*(kind for kind, is_there in more.items() if is_there))


@cache
def _fired_with(*kinds: str) -> Shape:
    return Shape.of("fired", *kinds)


_PAYLOAD: Final = ("key", "value", "headers")
_INSTANT_OF: Final = {OUTCOME: "decided_at", DEAD: "dead_at"}


def undeliverable(shape: Shape) -> dict[str, Column]:
    """The columns of the rejects that a row of a shape gets when it cannot be delivered, without ``error_message``."""
    named: dict[str, Column] = {
        "error_code": F.lit("undeliverable"),
        # Without the payload, which has columns of its own.
        "record": F.to_json(F.struct(*(name for name in shape.names if name not in _PAYLOAD)), ISO_STYLE),
        # The row's own instant, so that a repetition writes the same.
        "rejected_at": F.col(_INSTANT_OF.get(shape, "fired_at")),
    }
    if shape == OUTCOME:
        named |= {"schedule_id": F.col("op_id"), "seq": F.lit(None).cast("long"), "deliver_at": F.col("at")}
    return named


@cache
def fields(ddl: str) -> T.StructType:
    """Parses a DDL text."""
    parsed = T.DataType.fromDDL(ddl)
    assert isinstance(parsed, T.StructType), ddl
    return parsed


class Sink(Protocol):
    """A place that rows are written to. The destination None stands for the sink's own path, for rejects."""

    def missing_reason(
        self, spark: SparkSession, destination: str | None, shape: Shape = FIRED
    ) -> str | None:
        """Returns why rows of a shape cannot be written for this destination, as a clause; None if they can."""

    def write(
        self,
        frame: DataFrame,
        destination: str | None,
        *,
        app_id: str,
        batch_id: int,
        shape: Shape = FIRED,
    ) -> None:
        """Writes rows; a second time with the same `app_id` and `batch_id` changes nothing.

        Args:
            frame: Rows with the columns of `shape`, or of :data:`REJECT_SCHEMA` if `destination` is None.
            destination: Name of the destination.
            app_id: Id of the series of batches; each checkpoint has one.
            batch_id: Number of the batch, increasing in a series.
            shape: The shape of the rows; without a meaning if `destination` is None.

        Raises:
            SinkError: The destination cannot be written.
        """

    def holds(self, spark: SparkSession, destination: str | None, *, app_id: str, batch_id: int) -> bool:
        """Whether the destination has all of the batch already."""


def with_source(frame: DataFrame) -> DataFrame:
    """The rows with the column :data:`SOURCE`, null where they have none."""
    return frame if SOURCE in frame.columns else frame.withColumn(SOURCE, F.lit(None).cast("string"))


class WithoutRecord:
    """A joint sink whose destinations have no record of their batches. With its own ``write`` it takes rejects."""

    def write(self, *_rows: Any, **_batch: Any) -> None:
        """Is not called: ``missing_reason`` refuses rejects, and ``write_all`` writes the rows of destinations."""
        raise AssertionError("write_all() writes the rows of a joint sink")

    def holds(self, *_destination: object, **_batch: object) -> bool:
        """Returns False."""
        return False


@dataclass(frozen=True)
class Refusal:
    """Why a row was not written, and whether another attempt may succeed.

    Attributes:
        reason: As a clause.
        is_final: Whether no later attempt can succeed.
        is_tried: Whether this was an attempt: the receiver has seen the row, or may have.
        retry_after_ms: How long the receiver asks to wait; None: it does not.
    """

    reason: str
    is_final: bool = True
    is_tried: bool = True
    retry_after_ms: int | None = None


@dataclass(frozen=True)
class LeftOut:
    """The rows that a write to many destinations has left out, and why.

    Attributes:
        reasons: Destinations without any written row, each with its reason as a clause. One as a text is final.
        rows: Single rows of other destinations, with their columns, ``error_message`` and the other fields of
            :class:`Refusal` (all may be missing); None if there are none.
        row_count: Number of rows in `rows`.
    """

    reasons: Mapping[str, str | Refusal]
    rows: DataFrame | None = None
    row_count: int = 0

    @classmethod
    def of(
        cls,
        reasons: Mapping[str, str | Refusal],
        frame: DataFrame,
        refused: Mapping[str, str] | Mapping[str, Refusal],
    ) -> Self:
        """The result of a write that has found its refused rows by their fire ids, each with its reason."""
        return cls(reasons, _explained(frame, "fire_id", refused), len(refused))

    @classmethod
    def whole(
        cls, frame: DataFrame, reasons: Mapping[str, str | Refusal], rows_to: Mapping[str, int]
    ) -> Self:
        """All rows of some destinations, each with the reason of its destination."""
        return cls({}, _explained(frame, "destination", reasons), sum(rows_to[name] for name in reasons))


FATE: Final = "error_message string, is_final boolean, is_tried boolean, retry_after_ms long"
"""The columns of a row that was left out, as DDL: those of :class:`Refusal`, secrets hidden."""


def _explained(
    frame: DataFrame,
    key: str,
    reasons: Mapping[str, str] | Mapping[str, Refusal] | Mapping[str, str | Refusal],
) -> DataFrame | None:
    """The rows with one of these keys, each with its reason (:data:`FATE`); None for none."""
    if not reasons:
        return None
    # A join and not an expression: Spark's planner is slow with thousands of branches, and users choose the number.
    found = {value: why if isinstance(why, Refusal) else Refusal(why) for value, why in reasons.items()}
    lines = [
        (value, hide(why.reason), why.is_final, why.is_tried, why.retry_after_ms)
        for value, why in found.items()
    ]
    why = frame.sparkSession.createDataFrame(lines, f"{key} string, {FATE}")
    return frame.join(F.broadcast(why), key)


@runtime_checkable
class JointSink(Sink, Protocol):
    """A hashable sink that writes all its destinations in one write; equal sinks of an allow-list share it.

    Its method ``write`` is called for rejects alone.
    """

    def write_all(
        self,
        frame: DataFrame,
        rows_to: Mapping[str, int],
        *,
        largest_to: Mapping[str, int] | None = None,
        shape: Shape = FIRED,
    ) -> LeftOut:
        """Writes the rows of several destinations; returns those that were left out.

        Args:
            frame: Rows with the columns of `shape` and :data:`SOURCE`, of these destinations and of others.
            rows_to: The destinations to write, with the number of rows of each in the frame.
            largest_to: Destination to an upper bound of the bytes of its largest row: key, value, and for each header
                its name, its value and 10. With it the rows need not be measured.
            shape: The shape of the rows.

        Raises:
            SinkError: The sink as a whole cannot be written at the moment.
        """


@dataclass(frozen=True)
class TablesByName:
    """What the sinks have in common whose tables have names in a catalog.

    Attributes:
        table: The name, such as ``main.reminders.{destination}``; ``{destination}`` stands for the destination's name.
            Without it all destinations of the sink share one table. (For rejects: the table itself.)
        create: Create missing tables; otherwise their rows are undeliverable. The table of the rejects is always
            created. The schema has to be there.

    Raises:
        ConfigError: Not the name of a table.
    """

    table: str
    create: bool = False

    def __post_init__(self) -> None:
        table_name(self.table)

    @property
    def name(self) -> TableName:
        """The name, or template of names."""
        return table_name(self.table)


def series_of(app_id: str, destination: str | None) -> str:
    """The series of a destination's batches in a table by name, which several destinations may share."""
    return app_id if destination is None else f"{app_id}/{destination}"


class Destinations:
    """The allow-list: which destination names may be written, and by which sink. The first matching pattern decides.

    Args:
        table: Names or patterns (``*`` any text, ``?`` one character, case-sensitive) to sinks, in order.

    Raises:
        ConfigError: A pattern cannot match any name.
    """

    def __init__(self, table: Mapping[str, Sink]) -> None:
        for pattern in table:
            if not is_destination_pattern(pattern):
                raise ConfigError(
                    "not a destination pattern", field="destinations", value=pattern, rule=PATTERN_RULE
                )
        self._table = dict(table)
        self._allowed = AllowList(self._table)

    def resolve(self, name: str) -> Sink | None:
        """Returns the sink for a name; None if the name breaks the name rule or no pattern matches it."""
        if not is_destination_name(name):
            return None
        pattern = self._allowed.first(name)
        return None if pattern is None else self._table[pattern]

    def __iter__(self) -> Iterator[tuple[str, Sink]]:
        """Iterates over patterns and sinks, in order."""
        return iter(self._table.items())


def require_apart(destinations: Destinations, rejects: Sink) -> None:
    """Refuses rejects in the folder or the table of a destination: one of two tables in one place fails its batches,
    later.

    Raises:
        ConfigError: The folder of the rejects is that of a sink, above it, or one that a destination may have; or their
            table is one that a destination may have.
    """
    own, own_table = getattr(rejects, "path", None), _table_of(rejects)
    for pattern, sink in destinations:
        other = getattr(sink, "path", None)
        if own is not None and other is not None and shares_a_folder(own, pattern, other):
            raise ConfigError(
                "the rejects and a destination share a folder",
                field="rejects.path",
                value=own,
                rule=f"neither in nor above the folder of destination {pattern} below {other}",
            )
        template = _table_of(sink)
        if own_table is not None and template is not None and may_be_one(own_table, pattern, template):
            raise ConfigError(
                "the rejects and a destination share a table",
                field="rejects.table",
                value=str(own_table),
                rule=f"no table of destination {pattern}: {template}",
            )


def _table_of(sink: Sink) -> TableName | None:
    return sink.name if isinstance(sink, TablesByName) else None
