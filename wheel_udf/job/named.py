"""Tables of a config that have a name in a catalog: checked before a start, and the store's name turned into its place.

::

    source, operations, events, destinations, rejects --check_names--> the catalog stays, the schema is there
    store.table --located--> store.path, the location that the catalog has for it

The store commits by its log, so it needs the location of its table. A name is looked up once for a run; while the run
lasts, :class:`StoreName` notices that the name leads elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from pyspark.sql import SparkSession

from wheel_udf.checkpoint.spark_logs import last_committed
from wheel_udf.common.errors import ConfigError, ConfigErrors, SinkError, StoreError, WheelError
from wheel_udf.common.table_names import TableName, table_name
from wheel_udf.job.models.scheduler import TieredConfig
from wheel_udf.job.models.tables import table_of
from wheel_udf.store.table import PARTITIONED_BY, STORE_SCHEMA, table_properties
from wheel_udf.tables import named_tables
from wheel_udf.tables.delta_log import snapshot
from wheel_udf.tables.named_tables import NamedTable

if TYPE_CHECKING:
    from wheel_udf.job.models.purgatory import AnyConfig

_Config = TypeVar("_Config", bound="AnyConfig")

_STAYS: Final = (
    "spark.sql.catalogImplementation hive with a metastore, or another catalog (spark.sql.catalog.NAME), in "
    "spark-defaults.conf"
)


def check_names(spark: SparkSession, config: AnyConfig) -> None:
    """Checks the names of a config, as far as they are sure to be wrong before any row is written.

    Raises:
        ConfigErrors: A catalog forgets its tables, or a catalog or schema is missing; all that are wrong.
        SinkError: A catalog does not answer.
    """
    faults = [fault for field, name in _names_of(config).items() for fault in _faults_of(spark, field, name)]
    if faults:
        raise ConfigErrors(faults)


def _names_of(config: AnyConfig) -> Mapping[str, TableName]:
    sections: dict[str, object] = {**config.sources, "rejects": config.rejects}
    sections |= {f"destinations.{pattern}": sink for pattern, sink in config.destinations.items()}
    sections["store"] = getattr(config, "store", None)
    found = {f"{section}.table": table_of(settings) for section, settings in sections.items()}
    return {field: name for field, name in found.items() if name is not None}


def _faults_of(spark: SparkSession, field: str, name: TableName) -> Iterator[WheelError]:
    if named_tables.vanishes(spark, name):
        what = "the tables of this catalog are forgotten when the job ends"
        yield ConfigError(what, field=field, value=str(name), rule="a catalog with a metastore", hint=_STAYS)
    elif (fault := named_tables.schema_fault(spark, name)) is not None:
        hint = "CREATE SCHEMA, or correct the name; a job creates tables, no schemas"
        yield ConfigError(fault, field=field, value=str(name), rule="a schema that exists", hint=hint)


def located(spark: SparkSession, config: _Config, *, create: bool = False) -> _Config:
    """Returns a config whose store has a path: that of its table, or the table's name if there is no such table.

    Args:
        spark: A session.
        config: The config.
        create: Create a missing table, unless the checkpoint has filled one before.

    Raises:
        StoreError: The name leads to something else, or to a table whose commits a catalog keeps.
        ConfigErrors: As :func:`check_names`.
    """
    if not isinstance(config, TieredConfig) or config.store.path is not None:
        return config
    check_names(spark, config)
    name = table_name(config.store.place)
    found = named_tables.look_up(spark, name)
    if found is None and create and last_committed(config.checkpoints[0]) is None:
        properties = table_properties(config.wheel.layout(), config.store.keep_ms)
        location = config.store.location
        named_tables.create(
            spark, name, STORE_SCHEMA, properties, partitioned_by=PARTITIONED_BY, location=location
        )
        found = named_tables.look_up(spark, name)
    place = config.store.place if found is None else _place_of(name, found)
    return config.model_copy(update={"store": config.store.model_copy(update={"path": place})})


def _place_of(name: TableName, table: NamedTable) -> str:
    hint = "use store.path, or a table whose commits are in its log"
    if table.fault is not None:
        raise StoreError(f"not a slot store: {table.fault}", field="store.table", value=str(name), hint=hint)
    if (feature := table.catalog_feature) is not None:
        raise StoreError(
            "the catalog keeps the commits of this table, and the slot store makes its own",
            field="store.table",
            value=str(name),
            rule=f"a table without the feature {feature}",
            hint=hint,
        )
    if not table.has_log:
        raise StoreError(
            "the log of the slot store cannot be read",
            field="store.table",
            value=f"{name} at {table.location}",
            hint=hint,
        )
    return table.location


class StoreName:
    """Notices that the name of a store leads to another table than at the start of the run.

    Args:
        spark: The session.
        config: The config, located.
    """

    def __init__(self, spark: SparkSession, config: AnyConfig) -> None:
        self._spark, self._place = spark, ""
        self._name: TableName | None = None
        self._id: str | None = None
        if isinstance(config, TieredConfig) and config.store.table is not None:
            self._name, self._place = table_name(config.store.table), config.store.folder
            before = snapshot(self._place)
            self._id = before.table_id if before.version >= 0 else None

    def check(self) -> None:
        """Looks the name up. A catalog that does not answer is no reason to stop.

        Raises:
            StoreError: It leads elsewhere, or nowhere.
        """
        if self._name is None:
            return
        with suppress(SinkError):
            if not self._leads_elsewhere(named_tables.look_up(self._spark, self._name)):
                return
            raise StoreError(
                "the table of the slot store was dropped, or created anew, while the job runs",
                field="store.table",
                value=str(self._name),
                rule=f"the table at {self._place}, which holds what is pending",
                hint="restore it; the catalog or the storage may keep dropped tables for some days",
            )

    def _leads_elsewhere(self, found: NamedTable | None) -> bool:
        if found is None or found.fault is not None or found.location != self._place:
            return True
        return found.has_log and found.state.table_id != self._id
